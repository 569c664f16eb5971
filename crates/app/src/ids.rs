//! Checks of ids in requests.

use amalgam_core::{Fault, FaultKind};

/// The maximum length of any id.
const MAX_ID_BYTES: usize = 512;

/// Whether this can be an id. No id has control characters, which PostgreSQL refuses.
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID_BYTES && !id.chars().any(char::is_control)
}

/// The same error for a missing object and for one of another caller.
pub fn not_found(what: &'static str, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::new(FaultKind::NotFound, format!("{what} with id '{shown}' not found."))
}

/// The error for a page that begins or ends at an item which is not in the list.
pub fn no_such_cursor(name: &'static str, id: &str) -> Fault {
    let shown: String = id.chars().take(200).collect();
    Fault::invalid(name, format!("Invalid value for '{name}': no item of this list has the id `{shown}`."))
}
