//! Ids that callers name.

use amalgam_core::{Fault, FaultKind};

/// The longest id that anything can have.
const LONGEST_ID: usize = 512;

/// Whether anything could have this id at all. No id has control characters, and PostgreSQL could not even look for them.
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= LONGEST_ID && !id.chars().any(char::is_control)
}

/// What is not there, or belongs to another caller: one answer for both.
pub fn not_found(what: &'static str, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("{what} with id '{shown}' not found."))
}
