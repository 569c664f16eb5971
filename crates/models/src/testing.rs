//! What tests of this crate share.

use amalgam_core::Seal;

/// Seals in the clear, so that tests can look inside; bound to its context all the same.
pub(crate) struct PlainSeal;

impl Seal for PlainSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("ams1.{context}|{}", String::from_utf8_lossy(plain))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let plain = sealed.strip_prefix("ams1.")?.strip_prefix(context)?.strip_prefix('|')?;
        Some(plain.as_bytes().to_vec())
    }
}
