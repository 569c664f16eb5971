//! Fields of kept items that are for the model alone: they never leave the server.
//!
//! An item of a call that the server ran is shown as the published wire has it. What a later request needs in order to tell
//! the model the same once more, byte for byte, stands beside it in fields that are struck out whenever the item is shown.

use std::borrow::Cow;

use amalgam_protocol::{JsonStr, Raw, Writer};

/// What the model was told that a search has found, where its caller does not see that.
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
