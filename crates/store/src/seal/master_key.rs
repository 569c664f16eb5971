//! The one secret of an installation: where it comes from and what is made from it.
//!
//! It comes from the environment, or from a file in the data folder that is made at the first start. It never lies in
//! a database, so a copy of one opens nothing.

use std::{
    fmt::{self, Write as _},
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

const KEY_BYTES: usize = 32;
/// A key takes 65 bytes in its file; anything much larger is another file.
const MAX_FILE_BYTES: u64 = 1024;

/// 256 secret bits from which every other key is derived. Wiped from memory when dropped, never printed.
pub struct MasterKey(Zeroizing<[u8; KEY_BYTES]>);

/// Why there is no master key. No variant holds any part of one.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The text is not 32 bytes in hexadecimal or base64.
    #[error("a master key is 32 bytes, written as 64 hexadecimal digits or as base64")]
    Malformed,
    /// All bytes are alike: somebody left a placeholder.
    #[error("the master key is one byte repeated, which is no secret; make one with `openssl rand -hex 32`")]
    Placeholder,
    /// The file holds something else.
    #[error("`{}` does not hold a master key", path.display())]
    NotAKeyFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with what it holds.
        #[source]
        source: Box<KeyError>,
    },
    /// Others than the owner may use the file.
    #[error("`{}` has mode {mode:03o}, so others may have read the master key; set it to 600", path.display())]
    Exposed {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file cannot be read or made.
    #[error("could not {attempt} master key `{}`", path.display())]
    File {
        /// What was tried.
        attempt: &'static str,
        /// Which file.
        path: PathBuf,
        /// What the system said.
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

    /// Reads the key in the file `path`, or makes the file, and its folder, with a new one.
    ///
    /// A file that others may read is refused rather than mended: whoever could read it may have done so, and a
    /// person has to decide whether the key is still a secret. Of several processes that start at once one makes the
    /// key and all use it; a crash leaves a whole file or none.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match File::open(path) {
            Ok(file) => Self::load(file, path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path).map_err(failed("create", path))?;
                // Not the key just made: another process may have been quicker.
                Self::load(File::open(path).map_err(failed("open", path))?, path)
            }
            Err(error) => Err(failed("open", path)(error)),
        }
    }

    /// A key for one purpose. Different purposes give keys that tell nothing about each other.
    pub(crate) fn derive(&self, purpose: &str) -> Zeroizing<[u8; KEY_BYTES]> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.0).expect("a MAC takes a key of any length");
        mac.update(purpose.as_bytes());
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    fn load(file: File, path: &Path) -> Result<Self, KeyError> {
        // Asked of the open file, so that it cannot be exchanged in between.
        let mode = file.metadata().map_err(failed("inspect", path))?.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES as usize));
        match file.take(MAX_FILE_BYTES).read_to_string(&mut text) {
            Ok(_) => Self::from_env_value(&text),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(KeyError::Malformed),
            Err(error) => return Err(failed("read", path)(error)),
        }
        .map_err(|source| KeyError::NotAKeyFile { path: path.to_owned(), source: Box::new(source) })
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

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> KeyError {
    move |source| KeyError::File { attempt, path: path.to_owned(), source }
}

/// Makes the file whole or not at all; one that is already there stays.
fn create(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;

    let mut key: [u8; KEY_BYTES] = rand::random();
    // Reserved at once: a buffer that grows leaves copies of the key behind.
    let mut text = Zeroizing::new(String::with_capacity(2 * KEY_BYTES + 1));
    for byte in &key {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
    }
    text.push('\n');
    key.zeroize();

    let draft = folder.join(format!(".master-key-{:016x}", rand::random::<u64>()));
    let written = write_durably(&draft, text.as_bytes()).and_then(|()| match std::fs::hard_link(&draft, path) {
        // A link, unlike a rename, never replaces a key that another process made meanwhile.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    // Whatever happened, no second copy of a key stays behind.
    let removed = std::fs::remove_file(&draft);
    written?;
    removed?;
    File::open(folder)?.sync_all()
}

fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
#[path = "master_key_tests.rs"]
mod tests;
