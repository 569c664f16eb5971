//! What a client is given in place of an upstream's encrypted thoughts: the same, sealed together with whose they are.
//!
//! Thoughts belong to one model of one upstream: another one can make nothing of them, and may refuse them.

use amalgam_core::Seal;
use amalgam_protocol::{JsonStr, Raw, Writer};

/// Seals an item's own id and content; both must come back for the upstream to know its thoughts again.
pub(super) fn seal(
    upstream: &str,
    model: &str,
    id: Option<JsonStr<'_>>,
    encrypted_content: JsonStr<'_>,
    context: &str,
    seal: &dyn Seal,
) -> String {
    let mut writer = Writer::with_capacity(encrypted_content.escaped().len() + 128);
    writer.object(|writer| {
        writer.key("upstream").string(upstream);
        writer.key("model").string(model);
        if let Some(id) = id {
            writer.key("id").json_str(id);
        }
        writer.key("encrypted_content").json_str(encrypted_content);
    });
    seal.seal(context, writer.bytes())
}

/// The object that was sealed, if it is this upstream's and this model's. Earlier versions did not note the model.
pub(super) fn open(sealed: &str, upstream: &str, model: &str, context: &str, seal: &dyn Seal) -> Option<Vec<u8>> {
    let plain = seal.open(context, sealed)?;
    let raw = Raw::parse(&plain).ok()?;
    let own = raw.get("upstream")?.as_str()?.is(upstream)
        && raw.get("model").and_then(Raw::as_str).is_none_or(|own| own.is(model))
        && raw.get("encrypted_content").is_some();
    own.then_some(plain)
}
