//! A response object as a message.

use amalgam_protocol::{JsonStr, Raw, Shape, Usage, Writer};

use crate::{
    extension::block,
    request::{MessagesRendering, ThinkingDisplay},
    stop::Stop,
};

/// Between the parts of a model's reasoning.
pub(crate) const PARAGRAPH: &str = "\n\n";

/// The body of a message.
pub fn message(response: Raw<'_>, rendering: MessagesRendering) -> Vec<u8> {
    let mut writer = Writer::with_capacity(response.text().len());
    writer.object(|writer| {
        write_head(writer, response);
        writer.key("content").array(|writer| {
            let output = response.get("output").unwrap_or(Raw::NULL);
            output.elements().for_each(|item| write_item(writer, item, rendering));
        });
        Stop::of(response).write(writer);
        write_message_usage(writer.key("usage"), response);
    });
    writer.into_bytes()
}

/// Writes the fields of a message before its content.
pub(crate) fn write_head(writer: &mut Writer, response: Raw<'_>) {
    let id = response.get_str("id").unwrap_or_default();
    writer.key("id").string(&format!("msg_{}", id.trim_start_matches("resp_")));
    writer.key("type").string("message");
    writer.key("role").string("assistant");
    writer.key("model").json_str(response.get("model").and_then(Raw::as_str).unwrap_or_default());
}

/// Writes the usage of a response; input tokens do not include cached ones.
pub fn write_message_usage(writer: &mut Writer, response: Raw<'_>) {
    let usage = response.get("usage").filter(|usage| !usage.is_null()).map(Usage::read).unwrap_or_default();
    let cached = usage.cached_tokens.saturating_add(usage.cache_write_tokens);
    writer.object(|writer| {
        writer.key("input_tokens").number(usage.input_tokens.saturating_sub(cached));
        writer.key("cache_creation_input_tokens").number(usage.cache_write_tokens);
        writer.key("cache_read_input_tokens").number(usage.cached_tokens);
        writer.key("output_tokens").number(usage.output_tokens);
    });
}

fn write_item(writer: &mut Writer, item: Raw<'_>, rendering: MessagesRendering) {
    match item.get_str("type").as_deref() {
        Some("message") => {
            let parts = item.get("content").unwrap_or(Raw::NULL);
            for text in parts.elements().filter_map(part_text).filter(|text| !text.is_empty()) {
                writer.object(|writer| {
                    writer.key("type").string("text");
                    writer.key("text").json_str(text);
                });
            }
        }
        Some("reasoning") => write_reasoning(writer, item, rendering),
        Some("function_call" | "custom_tool_call") => writer.object(|writer| {
            write_call_head(writer, item);
            write_input(writer.key("input"), &arguments(item));
        }),
        Some("web_search_call") => write_search(writer, item),
        Some(amalgam_protocol::MESSAGES_BLOCK) => {
            if let Some(block) = block(item) {
                writer.raw(block);
            }
        }
        // Calls that this server has run are in the record of the turn.
        _ => {}
    }
}

/// The text of a part, or its refusal.
pub(crate) fn part_text(part: Raw<'_>) -> Option<JsonStr<'_>> {
    part.get("text").or_else(|| part.get("refusal")).and_then(Raw::as_str)
}

fn write_reasoning(writer: &mut Writer, item: Raw<'_>, rendering: MessagesRendering) {
    let signature = signature(item);
    let summary = item.get("summary").unwrap_or(Raw::NULL);
    let texts = summary.elements().filter_map(part_text).filter(|text| !text.is_empty());
    let text = texts.map(JsonStr::decode).collect::<Vec<_>>().join(PARAGRAPH);
    match (rendering.thinking, signature) {
        (ThinkingDisplay::Hidden, _) | (ThinkingDisplay::Omitted, None) => {}
        (ThinkingDisplay::Omitted, Some(signature)) => write_thinking(writer, "", Some(signature)),
        (ThinkingDisplay::Shown, signature) if !text.is_empty() => write_thinking(writer, &text, signature),
        (ThinkingDisplay::Shown, Some(data)) => write_redacted(writer, data),
        (ThinkingDisplay::Shown, None) => {}
    }
}

fn write_thinking(writer: &mut Writer, text: &str, signature: Option<JsonStr<'_>>) {
    writer.object(|writer| {
        writer.key("type").string("thinking");
        writer.key("thinking").string(text);
        writer.key("signature").json_str(signature.unwrap_or_default());
    });
}

/// Writes reasoning without a readable text.
pub(crate) fn write_redacted(writer: &mut Writer, data: JsonStr<'_>) {
    writer.object(|writer| {
        writer.key("type").string("redacted_thinking");
        writer.key("data").json_str(data);
    });
}

/// What a caller returns for the model that has answered.
pub(crate) fn signature(reasoning: Raw<'_>) -> Option<JsonStr<'_>> {
    reasoning.get("encrypted_content").and_then(Raw::as_str).filter(|text| !text.is_empty())
}

/// Writes the fields of a call before its input.
pub(crate) fn write_call_head(writer: &mut Writer, item: Raw<'_>) {
    writer.key("type").string("tool_use");
    for (name, field) in [("id", "call_id"), ("name", "name")] {
        writer.key(name).json_str(item.get(field).and_then(Raw::as_str).unwrap_or_default());
    }
}

/// The arguments of a call, as JSON.
pub(crate) fn arguments(item: Raw<'_>) -> String {
    match item.get("input").and_then(Raw::as_str) {
        // A tool that takes free text.
        Some(input) => {
            let mut writer = Writer::default();
            writer.object(|writer| writer.key("input").json_str(input));
            String::from_utf8_lossy(writer.bytes()).into_owned()
        }
        None => item.get_str("arguments").unwrap_or_default().into_owned(),
    }
}

/// The API allows only objects; other arguments become text inside one.
fn write_input(writer: &mut Writer, arguments: &str) {
    match Raw::parse(arguments.as_bytes()) {
        Ok(input) if input.shape() == Shape::Object => writer.raw(input),
        _ if arguments.trim().is_empty() => writer.object(|_| {}),
        _ => writer.object(|writer| writer.key("arguments").string(arguments)),
    }
}

/// Writes the two blocks of a search that the upstream has run.
pub(crate) fn write_search(writer: &mut Writer, item: Raw<'_>) {
    let id = format!("srvtoolu_{}", item.get_str("id").unwrap_or_default());
    let action = item.get("action").unwrap_or(Raw::NULL);
    writer.object(|writer| {
        writer.key("type").string("server_tool_use");
        writer.key("id").string(&id);
        writer.key("name").string("web_search");
        writer.key("input").object(|writer| {
            if let Some(query) = action.get("query") {
                writer.key("query").raw(query);
            }
        });
    });
    writer.object(|writer| {
        writer.key("type").string("web_search_tool_result");
        writer.key("tool_use_id").string(&id);
        writer.key("content").array(|writer| {
            for source in action.get("sources").unwrap_or(Raw::NULL).elements() {
                writer.object(|writer| {
                    writer.key("type").string("web_search_result");
                    for name in ["url", "title"] {
                        let text = source.get(name).and_then(Raw::as_str).unwrap_or_default();
                        writer.key(name).json_str(text);
                    }
                    writer.key("encrypted_content").string("");
                    writer.key("page_age").null();
                });
            }
        });
    });
}
