//! The published description of the API.

/// The OpenAPI document as JSON text.
pub fn document() -> String {
    String::new()
}
