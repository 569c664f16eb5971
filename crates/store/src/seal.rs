//! Encrypts and authenticates small pieces of data with XChaCha20-Poly1305.
//!
//! A sealed text reads `ams1.` and then, in URL-safe base64, nonce, ciphertext and tag. The digit stands for the
//! format and for how its key comes from the master key; another one of either takes another digit. The context (the
//! tenant, and what the data is) is associated data: it is not in the text, and without the same one nothing opens.

mod master_key;

use std::fmt;

use amalgam_core::Seal;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};

pub use self::master_key::{KeyError, MasterKey};

const PREFIX: &str = "ams1.";
const PURPOSE: &str = "amalgam seal 1";
const NONCE_BYTES: usize = 24;

/// Seals and opens with a key that comes from the master key.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
}

impl Sealer {
    /// A sealer; two with the same master key open each other's texts.
    pub fn new(master_key: &MasterKey) -> Self {
        let key = master_key.derive(PURPOSE);
        Self { cipher: XChaCha20Poly1305::new((&*key).into()) }
    }
}

impl Seal for Sealer {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        // 192 random bits: chance never repeats one, so there is no counter to keep.
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = self
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: context.as_bytes() })
            .expect("the cipher refuses only messages of 256 GiB and more");
        let mut text = String::with_capacity(PREFIX.len() + (nonce.len() + sealed.len()).div_ceil(3) * 4);
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut text);
        text
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(PREFIX)?).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: context.as_bytes() }).ok()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer([redacted])")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sealer(byte: u8) -> Sealer {
        let key: String = (0..32).map(|index| format!("{:02x}", byte.wrapping_add(index))).collect();
        Sealer::new(&MasterKey::from_env_value(&key).unwrap())
    }

    #[test]
    fn the_same_data_sealed_twice_gives_two_texts_that_both_open() {
        let sealer = sealer(1);
        let (first, second) = (sealer.seal("tenant 1", b"signature"), sealer.seal("tenant 1", b"signature"));
        assert_ne!(first, second);
        for text in [first, second] {
            assert_eq!(sealer.open("tenant 1", &text).as_deref(), Some(&b"signature"[..]));
        }
    }

    // P10
    #[test]
    fn a_text_of_one_tenant_does_not_open_for_another() {
        let sealer = sealer(1);
        let text = sealer.seal("tenant 1", b"signature");
        assert_eq!(sealer.open("tenant 2", &text), None);
        assert_eq!(sealer.open("", &text), None);
    }

    #[test]
    fn a_text_does_not_open_with_another_master_key() {
        assert_eq!(sealer(2).open("tenant 1", &sealer(1).seal("tenant 1", b"signature")), None);
    }

    #[test]
    fn a_text_opens_after_a_restart_with_the_same_master_key() {
        assert_eq!(sealer(1).open("a", &sealer(1).seal("a", b"kept")).as_deref(), Some(&b"kept"[..]));
    }

    /// Clients keep such texts, so a change of format or of key derivation must not go unnoticed. This one was made by
    /// an implementation of its own, from the published descriptions of the cipher.
    #[test]
    fn a_text_sealed_by_the_first_version_still_opens() {
        let text = "ams1.ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7Zib7ufEU9zrH-PSPvPTsBx4Cm_6PtWvtjcQ0IRE";
        assert_eq!(sealer(1).open("tenant 1", text).as_deref(), Some(&b"from long ago"[..]));
    }

    #[test]
    fn what_is_not_ours_does_not_open() {
        let sealer = sealer(1);
        let text = sealer.seal("a", b"");
        assert_eq!(sealer.open("a", &text).as_deref(), Some(&b""[..]));
        let other_version = text.replacen("ams1.", "ams2.", 1);
        let padded = format!("{text}=");
        for foreign in ["", "ams1", "ams1.", "ams1.AAAA", "gAAAAABo", "ams1.ä", &other_version, &padded] {
            assert_eq!(sealer.open("a", foreign), None, "{foreign}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_sealed_opens_to_the_same_bytes(context in ".*", plain in prop::collection::vec(any::<u8>(), 0..500)) {
            let sealer = sealer(1);
            let text = sealer.seal(&context, &plain);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)));
            prop_assert_eq!(sealer.open(&context, &text), Some(plain));
        }

        #[test]
        fn no_changed_or_shortened_text_opens(plain in prop::collection::vec(any::<u8>(), 0..50), place in any::<prop::sample::Index>(), replacement in "[A-Za-z0-9_-]") {
            let sealer = sealer(1);
            let text = sealer.seal("a", &plain);
            let place = place.index(text.len());
            let (before, after) = text.split_at(place);
            prop_assert_eq!(sealer.open("a", before), None);
            let mut rest = after.chars();
            if rest.next() != replacement.chars().next() {
                let changed = format!("{before}{replacement}{}", rest.as_str());
                prop_assert_eq!(sealer.open("a", &changed), None);
            }
        }

        #[test]
        fn no_text_at_all_makes_opening_fail_harder_than_none(text in ".*") {
            prop_assert_eq!(sealer(1).open("a", &text), None);
            let prefixed = format!("ams1.{text}");
            prop_assert_eq!(sealer(1).open("a", &prefixed), None);
        }
    }
}
