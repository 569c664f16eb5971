//! The field `anthropic` of requests, tools, items and parts: what only the Messages API has.
//!
//! Upstreams with that API get it back. The others get what they can express, and the rest is a loss.

use std::borrow::Cow;

use amalgam_core::{Call, Entry, History, Losses, Output};
use amalgam_protocol::{ANTHROPIC, CreateResponse, Item, ItemKind, Json, MESSAGES_BLOCK, Raw, Shape, Tool, Writer};

/// The reason for a field that only the Messages API has.
const NOWHERE: &str = "only the Messages API has it";

/// Flags of `anthropic-beta` for what this server does anyway, or what concerns only how clients use the API.
const KNOWN_BETAS: [&str; 22] = [
    "advanced-tool-use",
    "claude-code",
    "context-1m",
    "context-management",
    "effort",
    "extended-cache-ttl",
    "files-api",
    "fine-grained-tool-streaming",
    "interleaved-thinking",
    "message-batches",
    "mid-conversation-system",
    "mid-conversation-tool-changes",
    "oauth",
    "output-128k",
    "pdfs",
    "per-turn-control",
    "prompt-caching",
    "redact-thinking",
    "structured-outputs",
    "thinking",
    "token-counting",
    "token-efficient-tools",
];

/// Fields without a meaning for other upstreams, or that the parameters of the response express.
const EXPRESSED: [&str; 6] =
    ["metadata", "output_format", "service_tier", "eager_input_streaming", "allowed_callers", "caller"];

/// The object in the field `anthropic`.
pub(crate) fn of(carrier: Raw<'_>) -> Option<Raw<'_>> {
    carrier.get(ANTHROPIC).filter(|fields| fields.shape() == Shape::Object)
}

/// The object in the field `anthropic` of a request.
pub(crate) fn of_request<'a>(settings: &CreateResponse<'a>) -> Option<Raw<'a>> {
    let extra = settings.extra.iter().find(|(key, _)| key.is(ANTHROPIC));
    extra.map(|(_, value)| *value).filter(|value| value.shape() == Shape::Object)
}

/// Reports what another upstream does not get; `taken` are the parameters that it does.
pub(crate) fn report_losses(settings: &CreateResponse<'_>, history: &History<'_>, taken: &[&str], losses: &mut Losses) {
    let Some(request) = of_request(settings) else { return };
    for (key, value) in request.fields() {
        match &*key.decode() {
            "thinking" if value.get("budget_tokens").is_some() => {
                losses.add("thinking.budget_tokens", "it is sent as an effort");
            }
            "thinking" => {}
            "output_config" => {
                if value.get_str("effort").as_deref() == Some("max") {
                    losses.add("output_config.effort", "`max` is sent as `xhigh`");
                }
            }
            "betas" => {
                let flags = value.elements().filter_map(Raw::as_str).map(|flag| flag.decode());
                flags.filter(|flag| !is_known_beta(flag)).for_each(|flag| {
                    losses.add("anthropic-beta", format!("`{flag}` is not known"));
                });
            }
            "context_management" => losses.add("context_management", "nothing is edited by this version"),
            key if taken.contains(&key) || EXPRESSED.contains(&key) => {}
            key => losses.add(key.to_owned(), NOWHERE),
        }
    }
    for tool in settings.tools.iter().filter_map(|tool| of(tool.raw)) {
        match tool.get_str("type") {
            Some(kind) => losses.add("tools", format!("`{kind}` is not sent in its own form")),
            None => report_fields("tools.", tool, losses),
        }
    }
    for entry in history.instructions.iter().chain(&history.entries) {
        if let Some(item) = item_of(entry).filter(|item| carries(*item)) {
            // Tools that are added between messages are offered from the beginning.
            if !matches!(entry, Entry::Opaque(_)) {
                report_fields("", of(item).unwrap_or(Raw::NULL), losses);
            }
            let lists = [item.get("content"), item.get("output")];
            for part in lists.into_iter().flatten().flat_map(Raw::elements) {
                report_fields("", of(part).unwrap_or(Raw::NULL), losses);
            }
        }
    }
}

fn report_fields(prefix: &str, fields: Raw<'_>, losses: &mut Losses) {
    for (key, value) in fields.fields() {
        match &*key.decode() {
            "block" => {
                let kind = value.get_str("type").unwrap_or_default();
                losses.add(format!("messages.{kind}"), "it is sent as text");
            }
            key if EXPRESSED.contains(&key) => {}
            key => losses.add(format!("{prefix}{key}"), NOWHERE),
        }
    }
}

/// A flag ends with a date, which does not change what it is about.
fn is_known_beta(flag: &str) -> bool {
    KNOWN_BETAS
        .iter()
        .any(|known| flag.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

/// The flags of the request's header.
pub(crate) fn betas(request: Raw<'_>) -> Option<String> {
    let flags = request.get("betas")?.elements().filter_map(Raw::as_str).map(|flag| flag.decode());
    let list = flags.collect::<Vec<_>>().join(",");
    (!list.is_empty()).then_some(list)
}

fn item_of<'a>(entry: &Entry<'a>) -> Option<Raw<'a>> {
    match entry {
        Entry::Message { item, .. } => *item,
        Entry::Call(call) => Some(call.item),
        Entry::Output(output) => Some(output.item),
        Entry::Opaque(item) => matches!(item.kind, ItemKind::AdditionalTools(_)).then_some(item.raw),
        Entry::Note(_) | Entry::Summary(_) | Entry::Reasoning(_) => None,
    }
}

/// Whether an item may have the field, in itself or in a part. In texts its quotes are escaped.
fn carries(item: Raw<'_>) -> bool {
    item.text().contains("\"anthropic\":")
}

/// Whether an item is a content block that only the Messages API has.
pub(crate) fn is_block(item: &Item<'_>) -> bool {
    matches!(&item.kind, ItemKind::Other(kind) if kind == MESSAGES_BLOCK)
}

/// Whether a tool is run by an upstream with the Messages API.
pub(crate) fn is_server_tool(tool: &Tool<'_>) -> bool {
    tool.raw.get_str("type").is_some_and(|kind| kind != "function") && of(tool.raw).is_some()
}

/// An entry's item without the field, in itself and in its parts; none if it has none.
pub(crate) fn stripped(entry: &Entry<'_>) -> Option<Json> {
    let item = item_of(entry).filter(|item| carries(*item))?;
    Some(Json::object(|writer| {
        for (key, value) in item.fields().filter(|(key, _)| !key.is(ANTHROPIC)) {
            let writer = writer.key_text(&key.decode());
            match (&*key.decode(), value.shape()) {
                ("content" | "output" | "tools", Shape::Array) => writer.array(|writer| {
                    value.elements().for_each(|part| write_stripped(writer, part));
                }),
                _ => writer.raw(value),
            }
        }
    }))
}

/// Writes an object without the field.
pub(crate) fn write_stripped(writer: &mut Writer, object: Raw<'_>) {
    if of(object).is_none() {
        return writer.raw(object);
    }
    writer.object(|writer| {
        for (key, value) in object.fields().filter(|(key, _)| !key.is(ANTHROPIC)) {
            writer.key_text(&key.decode()).raw(value);
        }
    });
}

/// The entry with another form of its item.
pub(crate) fn with_item<'a>(entry: &Entry<'_>, item: &'a Item<'a>) -> Option<Entry<'a>> {
    Some(match (entry, &item.kind) {
        (Entry::Message { role, .. }, ItemKind::Message(message)) => {
            Entry::Message { role: *role, content: message.content.clone(), item: Some(item.raw) }
        }
        (Entry::Call(call), ItemKind::FunctionCall(function)) => Entry::Call(Call {
            item: item.raw,
            kind: call.kind,
            call_id: Cow::Owned(call.call_id.clone().into_owned()),
            renamed: call.renamed,
            name: function.name.clone(),
            namespace: function.namespace.clone(),
            payload: amalgam_core::Payload::Arguments(function.arguments),
            hosted: call.hosted,
        }),
        (Entry::Output(output), ItemKind::FunctionCallOutput(call_output)) => Entry::Output(Output {
            item: item.raw,
            kind: output.kind,
            call_id: Cow::Owned(output.call_id.clone().into_owned()),
            renamed: output.renamed,
            content: call_output.output.clone(),
            hosted: output.hosted,
        }),
        (Entry::Opaque(_), ItemKind::AdditionalTools(_)) => Entry::Opaque(item.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_known_with_any_date() {
        for (flag, known) in [
            ("interleaved-thinking-2025-05-14", true),
            ("claude-code-20250219", true),
            ("context-1m-2025-08-07", true),
            ("context-1month", false),
            ("teleport-2031-01-01", false),
        ] {
            assert_eq!(is_known_beta(flag), known, "{flag}");
        }
    }
}
