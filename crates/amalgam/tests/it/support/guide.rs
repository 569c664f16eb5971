//! The pages of the documentation, for tests that compare their tables with the code.

#![expect(clippy::expect_used, reason = "the helpers of a test fail by panicking, as the test does")]

use std::{fs, path::Path};

/// A page, by its path in the project.
pub(crate) fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(path).expect("the page is there")
}
