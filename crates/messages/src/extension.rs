//! The field `anthropic`: what an object of the Messages API has besides the fields that the Responses API shares.

use amalgam_protocol::{ANTHROPIC, Raw, Writer};

/// Writes the fields of `object` that are not in `shared`; nothing if there are none.
pub(crate) fn write_rest(writer: &mut Writer, object: Raw<'_>, shared: &[&str]) {
    let is_rest = |key: &str, value: Raw<'_>| !value.is_null() && !shared.contains(&key);
    if !object.fields().any(|(key, value)| is_rest(&key.decode(), value)) {
        return;
    }
    writer.key(ANTHROPIC).object(|writer| {
        for (key, value) in object.fields() {
            let key = key.decode();
            if is_rest(&key, value) {
                writer.key_text(&key).raw(value);
            }
        }
    });
}

/// Writes the whole block, for an upstream that knows such blocks.
pub(crate) fn write_block(writer: &mut Writer, block: Raw<'_>) {
    writer.key(ANTHROPIC).object(|writer| writer.key("block").raw(block));
}

/// The block that an item or a part carries.
pub(crate) fn block(carrier: Raw<'_>) -> Option<Raw<'_>> {
    carrier.get(ANTHROPIC)?.get("block")
}
