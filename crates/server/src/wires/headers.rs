//! Request headers that several wires read.

use amalgam_app::is_id;
use amalgam_core::Fault;
use http::{HeaderMap, HeaderName};

const STRICT: HeaderName = HeaderName::from_static("amalgam-strict");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const CONVERSATION: HeaderName = HeaderName::from_static("amalgam-conversation");

/// The maximum length of an idempotency key.
const MAX_KEY_BYTES: usize = 255;

/// Whether a loss is an error.
pub(super) fn is_strict(headers: &HeaderMap) -> bool {
    headers.get(STRICT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// The caller's idempotency key, if it sent one.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_KEY_BYTES).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Fault::invalid("Idempotency-Key", format!("Must be 1 to {MAX_KEY_BYTES} visible ASCII characters."))
            .code("invalid_idempotency_key")),
    }
}

/// The conversation that a request of another API than Responses continues.
pub(super) fn conversation(headers: &HeaderMap) -> Result<Option<&str>, Fault> {
    let Some(value) = headers.get(CONVERSATION) else { return Ok(None) };
    match value.to_str() {
        Ok(id) if is_id(id) => Ok(Some(id)),
        _ => Err(Fault::invalid("amalgam-conversation", "Must be the id of a conversation.")),
    }
}
