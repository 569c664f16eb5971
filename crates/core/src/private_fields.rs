//! Private fields of stored items: they are sent to the model and never to callers.
//!
//! The item of a call that the server ran has the published shape. What a later request needs to send the model the same
//! text again, byte for byte, is stored in additional fields, which are removed whenever the item is returned to a caller.

use std::borrow::Cow;

use amalgam_protocol::{JsonStr, Raw, Writer};

/// The search results for the model, where the caller does not get them.
pub(crate) const OUTPUT: &str = "kept_output";
/// The id under which the model knows the call.
const CALL_ID: &str = "kept_call_id";
/// The number of the model's answer, within its turn, that holds the call.
const ROUND: &str = "kept_round";

/// Whether a field is for the model alone.
pub(crate) fn is_private(name: JsonStr<'_>) -> bool {
    [OUTPUT, CALL_ID, ROUND].iter().any(|private| name.is(private))
}

/// How the model knows a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelCall<'a> {
    /// The model's id for the call, or the one that it was given in the place of a missing or repeated one.
    pub(crate) call_id: &'a str,
    /// The number of the answer that holds it.
    pub(crate) round: u64,
}

impl ModelCall<'_> {
    /// Writes the fields that keep it.
    pub(crate) fn write_fields(self, writer: &mut Writer) {
        writer.key(CALL_ID).string(self.call_id);
        writer.key(ROUND).number(self.round);
    }
}

/// The id under which the model knows the call of an item: the one that was kept, or shown; the item's own id for an item
/// of an earlier version, or one that its caller sends back.
pub(crate) fn call_id<'a>(item: Raw<'a>, item_id: &Cow<'a, str>) -> Cow<'a, str> {
    let known = |name: &str| item.get_str(name).filter(|id| !id.is_empty());
    known(CALL_ID).or_else(|| known("call_id")).unwrap_or_else(|| item_id.clone())
}

/// The number of the answer that holds the call of an item, where that was kept.
pub(crate) fn round(item: Raw<'_>) -> Option<u64> {
    item.get(ROUND).and_then(Raw::as_u64)
}
