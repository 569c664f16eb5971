//! Translates a request to Chat Completions: all parameters except the messages, and the losses.

use amalgam_core::{
    AnswerContext, Choice, Delivery, Entry, Fault, History, Loss, Losses, ModelRequest, Offer, PreparedRequest, Seal,
    Toolset,
};
use amalgam_protocol::{ANTHROPIC, CreateResponse, JsonSchemaFormat, Raw, TextFormat, Writer};

use crate::{
    messages_fields,
    reasoning_seal::{Owner, asks_for_sealed},
    settings::ToolCalls,
};

use super::{Wire, constrained, messages};

/// Fields that are not forwarded: they concern clients and Responses servers only, or would change the answer into a
/// form that the decoder does not read.
const NOT_FORWARDED: [(&str, Option<&str>); 8] = [
    (ANTHROPIC, None),
    ("client_metadata", None),
    ("generate", None),
    ("type", None),
    ("messages", Some("the conversation is sent from `input`")),
    ("functions", Some("functions are sent from `tools`")),
    ("function_call", Some("the choice is sent from `tool_choice`")),
    ("n", Some("one answer is asked for")),
];

/// Translates a request.
pub(super) fn prepare(
    wire: Wire,
    request: &ModelRequest<'_>,
    upstream: &str,
    seal: &dyn Seal,
) -> Result<PreparedRequest, Fault> {
    let settings = request.settings;
    let mut toolset = Toolset::plain(settings, request.history)?;
    let mut losses = Losses::default();
    losses.extend(std::mem::take(&mut toolset.losses));
    if toolset.choice == Choice::None {
        toolset.offers.clear();
    }
    let calls = toolset.call_map();
    let constrained = wire.tool_calls == ToolCalls::Constrained && !toolset.offers.is_empty();
    let has_calls = || request.history.entries.iter().any(|entry| matches!(entry, Entry::Call(_)));
    let own = match wire.tool_calls {
        ToolCalls::Constrained if constrained => Some(constrained::NOTE),
        ToolCalls::Constrained if settings.text.format == TextFormat::Text && has_calls() => {
            Some(constrained::NOTE_WITHOUT_CALLS)
        }
        ToolCalls::Constrained | ToolCalls::Native => None,
    };
    let wants_logprobs = !constrained && asks_for_logprobs(settings);
    let mut body =
        Body { writer: Writer::with_capacity(size_of(request.history, settings)), written: Vec::with_capacity(24) };
    body.writer.outside(b"{");
    body.field("model").string(request.model);
    let preamble = constrained.then(|| constrained::preamble(&toolset, &settings.text.format));
    let owner = Owner { upstream, model: request.model, context: request.seal_context, seal };
    body.field("messages").array(|writer| messages::write(writer, wire, request, owner, preamble, &mut losses));
    body.delivery(wire, request.delivery);
    match constrained {
        true => body.constrained(&toolset, settings, &mut losses),
        false => {
            body.tools(&toolset, settings);
            body.format(&settings.text.format, &mut losses);
        }
    }
    body.settings(wire, settings, wants_logprobs);
    body.messages_fields(settings);
    messages_fields::report_losses(settings, request.history, &["stop_sequences", "top_k"], &mut losses);
    body.extra(settings, &mut losses);
    body.writer.outside(b"}");
    report_losses(settings, &mut losses);
    Ok(PreparedRequest {
        body: body.writer.into_bytes().into(),
        losses: losses.into_list(),
        delivery: request.delivery,
        calls,
        answer_context: AnswerContext {
            model: request.model.to_owned(),
            seal_context: request.seal_context.to_owned(),
            wants_sealed_reasoning: asks_for_sealed(&settings.include),
            wants_logprobs,
            own: own.map(ToOwned::to_owned),
            ..AnswerContext::default()
        },
    })
}

/// The approximate size of the body, so that it is written into one allocation.
fn size_of(history: &History<'_>, settings: &CreateResponse<'_>) -> usize {
    let entries = history.instructions.iter().chain(&history.entries).map(|entry| match entry {
        Entry::Message { item: Some(item), .. } => item.text().len(),
        Entry::Message { content: amalgam_protocol::Content::Text(text), .. } => text.escaped().len() + 64,
        Entry::Message { .. } => 256,
        Entry::Note(text) | Entry::Summary(text) => text.len() + 64,
        Entry::Call(call) => call.item.text().len() + 64,
        Entry::Output(output) => output.item.text().len() + 64,
        Entry::Reasoning(item) | Entry::Opaque(item) => item.raw.text().len().min(4096),
    });
    let tools = settings.tools.iter().map(|tool| tool.raw.text().len() + 64);
    512 + entries.chain(tools).sum::<usize>()
}

fn asks_for_logprobs(settings: &CreateResponse<'_>) -> bool {
    settings.top_logprobs.is_some_and(|count| count > 0)
        || settings.include.iter().any(|include| include == "message.output_text.logprobs")
}

/// The body, and the fields that it has.
struct Body {
    writer: Writer,
    written: Vec<&'static str>,
}

impl Body {
    fn field(&mut self, name: &'static str) -> &mut Writer {
        self.written.push(name);
        self.writer.key(name)
    }

    fn optional_text(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.field(name).string(text);
        }
    }

    fn optional_float(&mut self, name: &'static str, number: Option<f64>) {
        if let Some(number) = number {
            self.field(name).float(number);
        }
    }

    fn delivery(&mut self, wire: Wire, delivery: Delivery) {
        match delivery {
            Delivery::Whole => self.field("stream").bool(false),
            Delivery::Stream => {
                self.field("stream").bool(true);
                if wire.stream_usage {
                    self.field("stream_options").object(|writer| writer.key("include_usage").bool(true));
                }
            }
        }
    }

    fn tools(&mut self, toolset: &Toolset<'_>, settings: &CreateResponse<'_>) {
        if toolset.offers.is_empty() {
            return;
        }
        self.field("tools").array(|writer| toolset.offers.iter().for_each(|offer| write_offer(writer, offer)));
        match &toolset.choice {
            // RAM-25: a named tool is the only one offered, so that more servers understand the choice.
            Choice::Required | Choice::Named(_) => self.field("tool_choice").string("required"),
            Choice::Auto if settings.tool_choice.is_some() => self.field("tool_choice").string("auto"),
            Choice::Auto | Choice::None => {}
        }
        if let Some(parallel) = toolset.parallel {
            self.field("parallel_tool_calls").bool(parallel);
        }
    }

    fn format(&mut self, format: &TextFormat<'_>, losses: &mut Losses) {
        match format {
            TextFormat::Text => {}
            TextFormat::JsonObject => {
                self.field("response_format").object(|writer| writer.key("type").string("json_object"));
            }
            TextFormat::JsonSchema(format) => {
                self.field("response_format").object(|writer| {
                    writer.key("type").string("json_schema");
                    write_schema(writer.key("json_schema"), format);
                });
            }
            TextFormat::Other(raw) => losses.push(unknown_format(*raw)),
        }
    }

    /// Writes the tool list as a schema for the answer.
    fn constrained(&mut self, toolset: &Toolset<'_>, settings: &CreateResponse<'_>, losses: &mut Losses) {
        let schema = constrained::schema(toolset, &settings.text.format);
        self.field("response_format").object(|writer| {
            writer.key("type").string("json_schema");
            writer.key("json_schema").object(|writer| {
                writer.key("name").string("reply");
                writer.key("schema").valid(&schema);
            });
        });
        if let TextFormat::Other(raw) = &settings.text.format {
            losses.push(unknown_format(*raw));
        }
        if asks_for_logprobs(settings) {
            let reason = "an answer by our tool schema has no log probabilities of its text";
            losses.add("top_logprobs", reason);
        }
    }

    fn settings(&mut self, wire: Wire, settings: &CreateResponse<'_>, wants_logprobs: bool) {
        if let Some(most) = settings.max_output_tokens {
            self.field(if wire.newer_limit { "max_completion_tokens" } else { "max_tokens" }).number(most);
        }
        self.optional_float("temperature", settings.temperature);
        self.optional_float("top_p", settings.top_p);
        self.optional_float("presence_penalty", settings.presence_penalty);
        self.optional_float("frequency_penalty", settings.frequency_penalty);
        if wants_logprobs {
            self.field("logprobs").bool(true);
            if let Some(count) = settings.top_logprobs {
                self.field("top_logprobs").number(count);
            }
        }
        let effort = settings.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
        self.optional_text("reasoning_effort", effort);
        self.optional_text("verbosity", settings.text.verbosity.as_deref());
        self.optional_text("prompt_cache_key", settings.prompt_cache_key.as_deref());
        self.optional_text("prompt_cache_retention", settings.prompt_cache_retention.as_deref());
        self.optional_text("service_tier", settings.service_tier.as_deref());
        self.optional_text("safety_identifier", settings.safety_identifier.as_deref());
        self.optional_text("user", settings.user.as_deref());
    }

    /// Writes parameters of the Messages API for which this API has a name.
    fn messages_fields(&mut self, settings: &CreateResponse<'_>) {
        let Some(fields) = messages_fields::of_request(settings) else { return };
        for (name, field) in [("stop", "stop_sequences"), ("top_k", "top_k")] {
            if let Some(value) = fields.get(field) {
                self.field(name).raw(value);
            }
        }
    }

    /// Unknown fields may belong to this server: `seed`, `stop`, `top_k`, `chat_template_kwargs` …
    fn extra(&mut self, settings: &CreateResponse<'_>, losses: &mut Losses) {
        let fields = settings.chat_fields.iter().chain(&settings.extra);
        for (key, value) in fields.filter(|(_, value)| !value.is_null()) {
            let name = key.decode();
            if let Some((_, reason)) = NOT_FORWARDED.iter().find(|(field, _)| *field == name) {
                losses.extend(reason.map(|reason| Loss::new(name.into_owned(), reason)));
            } else if self.written.contains(&&*name) {
                losses.add(name.into_owned(), "another field of the request decides this one");
            } else {
                self.writer.key_text(&name).raw(*value);
            }
        }
    }
}

fn write_offer(writer: &mut Writer, offer: &Offer<'_>) {
    writer.object(|writer| {
        writer.key("type").string("function");
        writer.key("function").object(|writer| {
            writer.key("name").string(&offer.name);
            // RAM-24: templates fail on a missing description.
            match &offer.description {
                Some(description) => description.write(writer.key("description")),
                None => writer.key("description").string(""),
            }
            write_parameters(writer.key("parameters"), offer.parameters);
            if let Some(strict) = offer.strict {
                writer.key("strict").bool(strict);
            }
        });
    });
}

fn write_parameters(writer: &mut Writer, parameters: Option<Raw<'_>>) {
    match parameters {
        Some(schema) => writer.raw(schema),
        None => writer.valid(br#"{"type":"object","properties":{}}"#),
    }
}

fn write_schema(writer: &mut Writer, format: &JsonSchemaFormat<'_>) {
    writer.object(|writer| {
        writer.key("name").string(&format.name);
        if let Some(description) = format.description {
            writer.key("description").json_str(description);
        }
        writer.key("schema").raw(format.schema);
        if let Some(strict) = format.strict {
            writer.key("strict").bool(strict);
        }
    });
}

fn unknown_format(format: Raw<'_>) -> Loss {
    let kind = format.get_str("type").unwrap_or_default();
    Loss::new("text.format", format!("this upstream has no format `{kind}`"))
}

/// Reports parameters for which the API has no field.
fn report_losses(settings: &CreateResponse<'_>, losses: &mut Losses) {
    let no_field = "this upstream has no such field";
    if settings.prompt.is_some() {
        losses.add("prompt", no_field);
    }
    if settings.context_management.is_some() {
        losses.add("context_management", no_field);
    }
    // Reasoning is always returned as summaries, so a request for summaries is not a loss.
    let known = |name: &str| matches!(name, "effort" | "summary" | "generate_summary");
    for (key, value) in settings.reasoning.iter().flat_map(|reasoning| reasoning.raw.fields()) {
        if !known(key.escaped()) && !value.is_null() {
            losses.add(format!("reasoning.{}", key.decode()), no_field);
        }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
