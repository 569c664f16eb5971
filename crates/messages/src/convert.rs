//! Messages as input items.

use amalgam_core::Seal;
use amalgam_protocol::{ANTHROPIC, Json, Raw, Shape, ShapeError, Writer};

use crate::{
    blocks::{self, PartSide},
    extension::{write_block, write_rest},
    request::{flag, present, required, text},
    tools,
};

/// The input items of `messages`.
pub(crate) fn input(messages: Raw<'_>, seal: &dyn Seal) -> Result<Json, ShapeError> {
    if messages.shape() != Shape::Array {
        return Err(ShapeError::expected("", "an array of messages", messages));
    }
    if messages.elements().next().is_none() {
        return Err(ShapeError::value("", "at least one message is required"));
    }
    let mut items = ItemList { writer: Writer::with_capacity(messages.text().len() + 256), seal };
    let mut result = Ok(());
    items.writer.outside(b"[");
    for (index, message) in messages.elements().enumerate() {
        result = items.message(message).map_err(|error| error.at(index));
        if result.is_err() {
            break;
        }
    }
    items.writer.outside(b"]");
    result.map(|()| Json::from_writer(items.writer))
}

/// The instructions of `system`: a text, or one system message with its blocks.
pub(crate) fn instructions(document: &Json, system: Raw<'_>) -> Result<Option<Json>, ShapeError> {
    match system.shape() {
        Shape::String => Ok(system.as_str().is_some_and(|text| !text.is_empty()).then(|| document.part(system))),
        Shape::Array => {
            let mut parts = Writer::with_capacity(system.text().len() + 64);
            for (index, block) in system.elements().enumerate() {
                blocks::write_part(&mut parts, block, PartSide::Input).map_err(|error| error.at(index))?;
            }
            let is_empty = parts.bytes().is_empty();
            let message = |writer: &mut Writer| write_message(writer, "system", Raw::NULL, parts.bytes());
            Ok((!is_empty).then(|| Json::array(message)))
        }
        _ => Err(ShapeError::expected("", "a string or an array of text blocks", system)),
    }
}

struct ItemList<'s> {
    writer: Writer,
    seal: &'s dyn Seal,
}

impl ItemList<'_> {
    fn message(&mut self, message: Raw<'_>) -> Result<(), ShapeError> {
        if message.shape() != Shape::Object {
            return Err(ShapeError::expected("", "an object", message));
        }
        let role = required(message, "role")?;
        let role = match role.as_str().map(|role| role.decode()).as_deref() {
            Some("user") => "user",
            Some("assistant") => "assistant",
            // Claude Code sends reminders in this role.
            Some("system") => "system",
            _ => return Err(ShapeError::value("role", "must be `user`, `assistant` or `system`")),
        };
        let content = required(message, "content")?;
        match content.shape() {
            Shape::String => {
                self.writer.object(|writer| {
                    writer.key("type").string("message");
                    writer.key("role").string(role);
                    writer.key("content").raw(content);
                    write_rest(writer, message, &["role", "content"]);
                });
                Ok(())
            }
            Shape::Array => self.blocks(role, message, content).map_err(|error| error.under("content")),
            _ => Err(ShapeError::expected("content", "a string or an array of content blocks", content)),
        }
    }

    /// Blocks that are items of their own end the message before them.
    fn blocks(&mut self, role: &'static str, message: Raw<'_>, content: Raw<'_>) -> Result<(), ShapeError> {
        let side = if role == "assistant" { PartSide::Output } else { PartSide::Input };
        let mut parts = Writer::default();
        let count = content.elements().count();
        for (index, block) in content.elements().enumerate() {
            // The last item has the further fields of the message.
            let rest = if index + 1 == count { message } else { Raw::NULL };
            let kind = blocks::kind(block).map_err(|error| error.at(index))?;
            let mut item = Writer::default();
            let is_item = match (&*kind, role) {
                ("tool_use", "assistant") => write_call(&mut item, block).map(|()| true),
                ("tool_result", "user") => write_output(&mut item, block).map(|()| true),
                ("thinking" | "redacted_thinking", "assistant") => {
                    self.write_reasoning(&mut item, &kind, block).map(|()| true)
                }
                ("tool_use" | "thinking" | "redacted_thinking", _) => Err(ShapeError::value(
                    "type",
                    format!("`{kind}` blocks can only be in messages of the role `assistant`"),
                )),
                ("tool_result", _) => {
                    Err(ShapeError::value("type", "`tool_result` blocks can only be in messages of the role `user`"))
                }
                ("tool_addition", _) if definition(block).is_some() => {
                    write_addition(&mut item, block, rest).map(|()| true)
                }
                // Calls that the upstream ran, and their results.
                (_, "assistant") if kind != "text" => {
                    write_carried(&mut item, block);
                    Ok(true)
                }
                _ => Ok(false),
            };
            match is_item.map_err(|error| error.at(index))? {
                true => {
                    self.flush(role, Raw::NULL, &mut parts);
                    self.writer.valid(item.bytes());
                }
                false => blocks::write_part(&mut parts, block, side).map_err(|error| error.at(index))?,
            }
        }
        self.flush(role, message, &mut parts);
        Ok(())
    }

    /// `message` holds further fields of the last item of a message.
    fn flush(&mut self, role: &'static str, message: Raw<'_>, parts: &mut Writer) {
        if !parts.bytes().is_empty() {
            write_message(&mut self.writer, role, message, &parts.take());
        }
    }

    /// A signature of this server is the sealed reasoning of the model that answered. Any other signature is only for
    /// an upstream with the Messages API, which gets the block unchanged.
    fn write_reasoning(&self, writer: &mut Writer, kind: &str, block: Raw<'_>) -> Result<(), ShapeError> {
        let field = if kind == "thinking" { "signature" } else { "data" };
        let thinking = match kind {
            "thinking" => {
                let thinking = required(block, "thinking")?;
                thinking.as_str().ok_or_else(|| ShapeError::expected("thinking", "a string", thinking))?
            }
            _ => Default::default(),
        };
        let signature = match present(block, field) {
            Some(signature) => {
                let text = signature.as_str().ok_or_else(|| ShapeError::expected(field, "a string", signature))?;
                Some(text).filter(|text| !text.is_empty())
            }
            None => None,
        };
        let sealed = signature.filter(|signature| self.seal.is_sealed(&signature.decode()));
        writer.object(|writer| {
            writer.key("type").string("reasoning");
            writer.key("summary").array(|writer| {
                if !thinking.is_empty() {
                    writer.object(|writer| {
                        writer.key("type").string("summary_text");
                        writer.key("text").json_str(thinking);
                    });
                }
            });
            match (sealed, signature) {
                (Some(sealed), _) => writer.key("encrypted_content").json_str(sealed),
                (None, Some(_)) => write_block(writer, block),
                (None, None) => {}
            }
        });
        Ok(())
    }
}

fn write_message(writer: &mut Writer, role: &str, message: Raw<'_>, parts: &[u8]) {
    writer.object(|writer| {
        writer.key("type").string("message");
        writer.key("role").string(role);
        writer.key("content").array(|writer| writer.valid(parts));
        write_rest(writer, message, &["role", "content"]);
    });
}

/// The tool that a block adds to the conversation.
fn definition(block: Raw<'_>) -> Option<Raw<'_>> {
    block.get("tool")?.get("definition").filter(|definition| definition.shape() == Shape::Object)
}

/// Tools that are added between messages are items of their own.
fn write_addition(writer: &mut Writer, block: Raw<'_>, message: Raw<'_>) -> Result<(), ShapeError> {
    let mut tool = Writer::default();
    let at = |error: ShapeError| error.under("definition").under("tool");
    tools::write_tool(&mut tool, definition(block).unwrap_or(Raw::NULL)).map_err(at)?;
    writer.object(|writer| {
        writer.key("type").string("additional_tools");
        writer.key("role").string("developer");
        writer.key("tools").array(|writer| writer.valid(tool.bytes()));
        writer.key(ANTHROPIC).object(|writer| {
            writer.key("block").raw(block);
            writer.key("message").object(|writer| {
                for (key, value) in message.fields().filter(|(key, _)| !key.is("role") && !key.is("content")) {
                    writer.key_text(&key.decode()).raw(value);
                }
            });
        });
    });
    Ok(())
}

/// A block that only an upstream with the Messages API understands.
fn write_carried(writer: &mut Writer, block: Raw<'_>) {
    writer.object(|writer| {
        writer.key("type").string(amalgam_protocol::MESSAGES_BLOCK);
        write_block(writer, block);
    });
}

fn write_call(writer: &mut Writer, block: Raw<'_>) -> Result<(), ShapeError> {
    let id = text(block, "id")?;
    let name = text(block, "name")?;
    let input = present(block, "input").unwrap_or(Raw::EMPTY_OBJECT);
    if input.shape() != Shape::Object {
        return Err(ShapeError::expected("input", "an object", input));
    }
    writer.object(|writer| {
        writer.key("type").string("function_call");
        writer.key("call_id").string(&id);
        writer.key("name").string(&name);
        writer.key("arguments").string(input.text());
        write_rest(writer, block, &["type", "id", "name", "input"]);
    });
    Ok(())
}

fn write_output(writer: &mut Writer, block: Raw<'_>) -> Result<(), ShapeError> {
    let id = text(block, "tool_use_id")?;
    let mut parts = Writer::default();
    let content = present(block, "content");
    match content.map(Raw::shape) {
        None | Some(Shape::String) => {}
        Some(Shape::Array) => {
            for (index, part) in content.map(Raw::elements).into_iter().flatten().enumerate() {
                blocks::write_part(&mut parts, part, PartSide::Input)
                    .map_err(|error| error.at(index).under("content"))?;
            }
        }
        Some(_) => {
            let content = content.unwrap_or(Raw::NULL);
            return Err(ShapeError::expected("content", "a string or an array of content blocks", content));
        }
    }
    flag(block, "is_error")?;
    writer.object(|writer| {
        writer.key("type").string("function_call_output");
        writer.key("call_id").string(&id);
        match content {
            Some(text) if text.shape() == Shape::String => writer.key("output").raw(text),
            Some(_) if !parts.bytes().is_empty() => {
                writer.key("output").array(|writer| writer.valid(parts.bytes()));
            }
            _ => writer.key("output").string(""),
        }
        write_rest(writer, block, &["type", "tool_use_id", "content"]);
    });
    Ok(())
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
