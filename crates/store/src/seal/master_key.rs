//! One master key of an installation, and the keys that are derived from it. `key_ring` has the list of them.

use std::{
    fmt::{self, Write as _},
    io,
    path::PathBuf,
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::Zeroizing;

pub(super) const KEY_BYTES: usize = 32;

/// The purpose from which the id of a key is derived; the id reveals nothing about the key.
const ID_PURPOSE: &str = "amalgam key id";

/// 256 secret bits from which every other key is derived. Wiped from memory when dropped, never printed.
#[derive(Clone)]
pub struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why there is no master key. No variant contains any part of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not 32 bytes in hexadecimal or base64.
    #[error("a master key is 32 bytes, written as 64 hexadecimal digits or as base64")]
    Malformed,
    /// All bytes are equal: a placeholder was not replaced.
    #[error("the master key is one byte repeated, which is no secret; make one with `openssl rand -hex 32`")]
    Placeholder,
    /// The file has the same key twice.
    #[error("the same master key is given twice")]
    Repeated,
    /// The file has no key, or more than are supported.
    #[error("there are {0} master keys; one to {most} can be used", most = super::key_ring::MOST_KEYS)]
    Count(usize),
    /// The content is not a list of keys.
    #[error("`{}` does not hold a master key", path.display())]
    NotAKeyFile {
        /// The file.
        path: PathBuf,
        /// The error in its content.
        #[source]
        source: Box<KeyError>,
    },
    /// Other users than the owner may access the file.
    #[error("`{}` has mode {mode:03o}, so others may have read the master key; set it to 600", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file cannot be read or created.
    #[error("could not {attempt} master key `{}`", path.display())]
    File {
        /// The attempted operation.
        attempt: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

impl MasterKey {
    /// Reads a key from text: 64 hexadecimal digits, or base64 of either alphabet with or without padding.
    pub fn from_env_value(value: &str) -> Result<Self, KeyError> {
        let value = value.trim();
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if value.len() == 2 * KEY_BYTES {
            for (byte, digits) in key.iter_mut().zip(value.as_bytes().chunks_exact(2)) {
                let [high, low] = [digits[0], digits[1]].map(hex_digit);
                *byte = high.zip(low).map(|(high, low)| high << 4 | low).ok_or(KeyError::Malformed)?;
            }
        } else {
            let alphabet = if value.contains(['-', '_']) { alphabet::URL_SAFE } else { alphabet::STANDARD };
            let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
            let decoded = GeneralPurpose::new(&alphabet, config).decode(value).map(Zeroizing::new);
            let decoded = decoded.map_err(|_| KeyError::Malformed)?;
            key.copy_from_slice(decoded.as_array::<KEY_BYTES>().ok_or(KeyError::Malformed)?);
        }
        if key.iter().all(|byte| *byte == key[0]) {
            return Err(KeyError::Placeholder);
        }
        Ok(Self(key))
    }

    /// A new key from the system's random numbers.
    pub(super) fn random() -> Self {
        Self(Zeroizing::new(rand::random()))
    }

    /// The id of the key in sealed texts: eight hexadecimal digits that are derived from it.
    pub fn id(&self) -> KeyId {
        let derived = self.derive(ID_PURPOSE);
        KeyId(u32::from_be_bytes([derived[0], derived[1], derived[2], derived[3]]))
    }

    /// The key as a line of its file.
    pub(super) fn push_line(&self, text: &mut String) {
        for byte in &*self.0 {
            write!(text, "{byte:02x}").expect("writing to a string does not fail");
        }
        text.push('\n');
    }

    /// Derives a key for one purpose. Keys of different purposes reveal nothing about each other.
    pub(crate) fn derive(&self, purpose: &str) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("a MAC takes a key of any length");
        mac.update(purpose.as_bytes());
        Zeroizing::new(mac.finalize().into_bytes().into())
    }
}

/// The id of a master key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(u32);

impl KeyId {
    /// Parses the id of a key in a sealed text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let plain = text.len() == 8 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u32::from_str_radix(text, 16).ok().map(Self))?
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:08x}", self.0)
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MasterKey([redacted])")
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
#[path = "master_key_tests.rs"]
mod tests;
