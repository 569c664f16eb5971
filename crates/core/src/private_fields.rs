//! Private fields of stored items: sent to the model and never to callers.
//!
//! The item of a server-run call has the published format. Additional fields store what a later request needs to send
//! the model the same text again, byte for byte. They are removed whenever the item is returned to a caller.

use std::borrow::Cow;

use amalgam_protocol::{JsonStr, Raw, Writer};

/// The search results for the model, if the caller does not get them.
pub(crate) const OUTPUT: &str = "kept_output";
/// The model's id of the call.
const CALL_ID: &str = "kept_call_id";
/// The number of the model's answer within its turn that contains the call.
const ROUND: &str = "kept_round";

/// Whether a field is only for the model.
pub(crate) fn is_private(name: JsonStr<'_>) -> bool {
    [OUTPUT, CALL_ID, ROUND].iter().any(|private| name.is(private))
}

/// The ids by which the model knows a call.
#[derive(Debug, Clone, Copy)]
pub struct ModelCallId<'a> {
    /// The model's id of the call, or the one that replaced a missing or repeated one.
    pub call_id: &'a str,
    /// The number of the answer that contains it.
    pub round: u64,
}

impl ModelCallId<'_> {
    /// Writes the private fields.
    pub fn write_fields(self, writer: &mut Writer) {
        writer.key(CALL_ID).string(self.call_id);
        writer.key(ROUND).number(self.round);
    }
}

/// The model's id of an item's call: the stored or shown one; the item's own id for an item of an earlier version, or
/// one that its caller sends back.
pub(crate) fn call_id<'a>(item: Raw<'a>, item_id: &Cow<'a, str>) -> Cow<'a, str> {
    let known = |name: &str| item.get_str(name).filter(|id| !id.is_empty());
    known(CALL_ID).or_else(|| known("call_id")).unwrap_or_else(|| item_id.clone())
}

/// The number of the answer that contains the call of an item, if it is stored.
pub(crate) fn round(item: Raw<'_>) -> Option<u64> {
    item.get(ROUND).and_then(Raw::as_u64)
}
