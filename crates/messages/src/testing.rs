//! Shared parts of this crate's tests.

use amalgam_core::Seal;

/// Recognises what a server has sealed; nothing is sealed here.
pub(crate) struct NoSeal;

impl Seal for NoSeal {
    fn seal(&self, _: &str, _: &[u8]) -> String {
        String::new()
    }

    fn open(&self, _: &str, _: &str) -> Option<Vec<u8>> {
        None
    }
}
