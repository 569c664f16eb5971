//! Translates a request for a Responses upstream: items and parameters as the caller wrote them, except what must
//! change.
//!
//! Unless the configuration says that the upstream stores responses, it stores none, and ids of this server are never
//! sent to it. If it does, a call that continues an answer names it by the upstream's id.

use amalgam_core::{AnswerContext, Chain, Delivery, Entry, History, Loss, Losses, ModelRequest, PreparedRequest, Seal};
use amalgam_protocol::{ANTHROPIC, Content, CreateResponse, Raw, Role, Shape, Text, Tool, ToolKind, Writer};

use crate::{messages_fields, reasoning_seal::asks_for_sealed};

use super::items::{self, Context};

/// Translates a request. Losses of the history itself are reported elsewhere.
pub(super) fn convert(request: &ModelRequest<'_>, upstream: &str, seal: &dyn Seal) -> PreparedRequest {
    let settings = request.settings;
    let mut context = Context {
        upstream,
        model: request.model,
        seal,
        seal_context: request.seal_context,
        images: request.images,
        losses: Vec::new(),
    };
    let new = new_entries(request);
    let mut writer = Writer::with_capacity(capacity(&request.history.instructions, new));
    writer.object(|writer| {
        writer.key("model").string(request.model);
        if let Chain::Continue { id, .. } = request.chain {
            writer.key("previous_response_id").string(id);
        }
        write_entries(writer, request.history, new, &mut context);
        write_settings(writer, settings);
        report_chat_fields(settings, &mut context.losses);
        writer.key("store").bool(request.chain != Chain::Standalone);
        if request.delivery == Delivery::Stream {
            writer.key("stream").bool(true);
            if let Some(options) = settings.stream_options {
                writer.key("stream_options").raw(options);
            }
        }
    });
    let mut losses = Losses::default();
    losses.extend(context.losses);
    messages_fields::report_losses(settings, request.history, &[], &mut losses);
    PreparedRequest {
        body: writer.into_bytes().into(),
        losses: losses.into_list(),
        delivery: request.delivery,
        calls: Default::default(),
        answer_context: answer_context(request),
    }
}

/// The entries that the upstream has not stored.
pub(super) fn new_entries<'e, 'a>(request: &'e ModelRequest<'a>) -> &'e [Entry<'a>] {
    let entries = &request.history.entries;
    match request.chain {
        Chain::Continue { known, .. } => entries.get(known..).unwrap_or_default(),
        Chain::Standalone | Chain::Start => entries,
    }
}

/// The facts about the request that the decoder needs.
pub(super) fn answer_context(request: &ModelRequest<'_>) -> AnswerContext {
    let included = |name: &str| request.settings.include.iter().any(|included| included == name);
    AnswerContext {
        model: request.model.to_owned(),
        seal_context: request.seal_context.to_owned(),
        max_output_tokens: request.settings.max_output_tokens,
        wants_sealed_reasoning: asks_for_sealed(&request.settings.include),
        wants_logprobs: included("message.output_text.logprobs"),
        ..AnswerContext::default()
    }
}

/// Most of a body is its items; a wrong guess only costs a reallocation.
fn capacity(instructions: &[Entry<'_>], entries: &[Entry<'_>]) -> usize {
    let size = |entry: &Entry<'_>| match entry {
        Entry::Message { item: Some(item), .. } => item.text().len(),
        Entry::Message { content: Content::Text(text), .. } => text.escaped().len(),
        Entry::Message { .. } => 256,
        Entry::Note(text) | Entry::Summary(text) => text.len(),
        Entry::Call(call) => call.item.text().len(),
        Entry::Output(output) => output.item.text().len(),
        Entry::Reasoning(item) | Entry::Opaque(item) => item.raw.text().len(),
    };
    4096 + instructions.iter().chain(entries).map(|entry| size(entry) + 64).sum::<usize>()
}

/// A prompt that is only text is sent as `instructions`, which apply to this call alone; any other prompt precedes the
/// input.
fn write_entries(writer: &mut Writer, history: &History<'_>, entries: &[Entry<'_>], context: &mut Context<'_>) {
    let before: &[Entry<'_>] = match history.instructions.as_slice() {
        [Entry::Message { role: Role::System, content: Content::Text(text), item: None }] => {
            writer.key("instructions").json_str(*text);
            &[]
        }
        [Entry::Message { role: Role::System, content: Content::Parts(parts), item: None }] => {
            let texts = parts.iter().filter_map(|part| Some(part.text()?.decode()));
            let texts: Vec<_> = texts.filter(|text| !text.trim().is_empty()).collect();
            writer.key("instructions").string(&texts.join("\n\n"));
            &[]
        }
        entries => entries,
    };
    writer.key("input").array(|writer| {
        for entry in before.iter().chain(entries) {
            items::write(writer, entry, context);
        }
    });
}

/// Writes all parameters except the input, and except state and delivery, which the server decides.
fn write_settings(writer: &mut Writer, settings: &CreateResponse<'_>) {
    let string = |writer: &mut Writer, key: &str, value: &Option<std::borrow::Cow<'_, str>>| {
        if let Some(value) = value {
            writer.key_text(key).string(value);
        }
    };
    let raw = |writer: &mut Writer, key: &str, value: Option<Raw<'_>>| {
        if let Some(value) = value {
            writer.key_text(key).raw(value);
        }
    };
    let number = |writer: &mut Writer, key: &str, value: Option<u64>| {
        if let Some(value) = value {
            writer.key_text(key).number(value);
        }
    };
    let float = |writer: &mut Writer, key: &str, value: Option<f64>| {
        if let Some(value) = value {
            writer.key_text(key).float(value);
        }
    };
    let tools = || settings.tools.iter().filter(|tool| !is_only_for_messages(tool));
    if tools().next().is_some() {
        writer.key("tools").array(|writer| tools().for_each(|tool| write_tool(writer, tool)));
    }
    if let Some(choice) = &settings.tool_choice {
        choice.write(writer.key("tool_choice"));
    }
    if let Some(parallel) = settings.parallel_tool_calls {
        writer.key("parallel_tool_calls").bool(parallel);
    }
    number(writer, "max_tool_calls", settings.max_tool_calls);
    write_text(writer, &settings.text);
    raw(writer, "reasoning", settings.reasoning.as_ref().map(|reasoning| reasoning.raw));
    if !settings.include.is_empty() {
        writer.key("include").array(|writer| settings.include.iter().for_each(|name| writer.string(name)));
    }
    number(writer, "max_output_tokens", settings.max_output_tokens);
    float(writer, "temperature", settings.temperature);
    float(writer, "top_p", settings.top_p);
    float(writer, "presence_penalty", settings.presence_penalty);
    float(writer, "frequency_penalty", settings.frequency_penalty);
    number(writer, "top_logprobs", settings.top_logprobs);
    string(writer, "truncation", &settings.truncation);
    raw(writer, "metadata", settings.metadata);
    string(writer, "service_tier", &settings.service_tier);
    string(writer, "safety_identifier", &settings.safety_identifier);
    string(writer, "prompt_cache_key", &settings.prompt_cache_key);
    string(writer, "prompt_cache_retention", &settings.prompt_cache_retention);
    string(writer, "user", &settings.user);
    raw(writer, "prompt", settings.prompt);
    raw(writer, "context_management", settings.context_management);
    for (key, value) in settings.extra.iter().filter(|(key, _)| !key.is(ANTHROPIC)) {
        writer.key_text(&key.decode()).raw(*value);
    }
}

/// Fields of Chat Completions servers are not sent: a Responses server refuses fields that it does not know.
pub(super) fn report_chat_fields(settings: &CreateResponse<'_>, losses: &mut Vec<Loss>) {
    let set = settings.chat_fields.iter().filter(|(_, value)| !value.is_null());
    losses.extend(set.map(|(name, _)| Loss::new(name.decode().into_owned(), "the Responses API has no such field")));
}

/// Writes a tool unchanged; a function in the format of Chat Completions moves up one level.
fn write_tool(writer: &mut Writer, tool: &Tool<'_>) {
    match (&tool.kind, tool.raw.get("function")) {
        (ToolKind::Function(_), Some(nested)) if nested.shape() == Shape::Object && tool.raw.get("name").is_none() => {
            writer.object(|writer| {
                writer.key("type").string("function");
                for (key, value) in nested.fields() {
                    writer.key_text(&key.decode()).raw(value);
                }
            });
        }
        _ => messages_fields::write_stripped(writer, tool.raw),
    }
}

/// Whether a tool is one that only upstreams with the Messages API run.
fn is_only_for_messages(tool: &Tool<'_>) -> bool {
    matches!(tool.kind, ToolKind::Other(_)) && messages_fields::is_server_tool(tool)
}

/// Writes `text` unchanged; a schema in the format of Chat Completions moves up one level.
fn write_text(writer: &mut Writer, text: &Text<'_>) {
    let Some(raw) = text.raw else {
        if *text != Text::default() {
            text.write(writer.key("text"));
        }
        return;
    };
    let nested = |format: Raw<'_>| format.get("json_schema").is_some_and(|schema| schema.shape() == Shape::Object);
    let Some(format) = raw.get("format").filter(|format| nested(*format)) else {
        return writer.key("text").raw(raw);
    };
    writer.key("text").object(|writer| {
        for (key, value) in raw.fields() {
            writer.key_text(&key.decode());
            match key.is("format") {
                false => writer.raw(value),
                true => writer.object(|writer| {
                    writer.key("type").string("json_schema");
                    for (key, value) in format.get("json_schema").map(Raw::fields).into_iter().flatten() {
                        writer.key_text(&key.decode()).raw(value);
                    }
                }),
            }
        }
    });
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
