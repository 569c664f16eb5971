//! What a client is given in place of an upstream's encrypted thoughts: the same, sealed together with whose they are.

use amalgam_core::Seal;
use amalgam_protocol::{JsonStr, Raw, Writer};

/// Seals an item's own id and content; both must come back for the upstream to know its thoughts again.
pub(super) fn seal(
    upstream: &str,
    id: Option<JsonStr<'_>>,
    encrypted_content: JsonStr<'_>,
    context: &str,
    seal: &dyn Seal,
) -> String {
    let mut writer = Writer::with_capacity(encrypted_content.escaped().len() + 128);
    writer.object(|writer| {
        writer.key("upstream").string(upstream);
        if let Some(id) = id {
            writer.key("id").json_str(id);
        }
        writer.key("encrypted_content").json_str(encrypted_content);
    });
    seal.seal(context, writer.bytes())
}

/// The object that was sealed, if it is this upstream's.
pub(super) fn open(sealed: &str, upstream: &str, context: &str, seal: &dyn Seal) -> Option<Vec<u8>> {
    let plain = seal.open(context, sealed)?;
    let raw = Raw::parse(&plain).ok()?;
    let own = raw.get("upstream")?.as_str()?.is(upstream) && raw.get("encrypted_content").is_some();
    own.then_some(plain)
}
