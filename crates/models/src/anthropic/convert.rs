//! Translates a request to the Messages API, and lists what is lost.

use std::borrow::Cow;

use amalgam_core::{
    AnswerContext, Choice, Delivery, Description, Entry, Fault, Loss, Losses, ModelRequest, Offer, PreparedRequest,
    Seal, Toolset,
};
use amalgam_protocol::{ANTHROPIC, CreateResponse, Raw, Shape, TextFormat, Writer};

use crate::{messages_fields, reasoning_seal::asks_for_sealed, settings::StructuredOutput};

use super::{
    answer::{Answer, has_object_root},
    content::text_block,
    messages::{Context, Messages, marked},
    native::Native,
    thinking::{Abilities, Plan, Sampling, Style},
};

/// Top-level fields that are not meant for a model.
const NOT_FOR_MODELS: [&str; 3] = ["client_metadata", "generate", "type"];

/// The settings of the upstream that requests depend on.
pub(super) struct Upstream<'a> {
    pub(super) name: &'a str,
    /// `max_tokens` if the caller sets no limit.
    pub(super) max_output_tokens: u64,
    pub(super) structured_output: StructuredOutput,
    pub(super) seal: &'a dyn Seal,
}

/// Translates one call.
pub(super) fn prepare(request: &ModelRequest<'_>, upstream: &Upstream<'_>) -> Result<PreparedRequest, Fault> {
    let settings = request.settings;
    let toolset = Toolset::plain(settings, request.history)?;
    let abilities = Abilities::of(request.model);
    let mut losses = Losses::default();
    let native = Native::of(settings);
    let is_kept = |loss: &&Loss| native.as_ref().is_some_and(|native| native.is_kept(loss));
    losses.extend(toolset.losses.iter().filter(|loss| !is_kept(loss)).cloned());

    // A client of this API says itself how the model thinks.
    let (mut plan, mut max_tokens) = match native {
        Some(_) => (Plan::Off, settings.max_output_tokens.unwrap_or(upstream.max_output_tokens)),
        None => Plan::new(settings, abilities, upstream.max_output_tokens, &mut losses),
    };
    let mut stop_thinking = |plan: &mut Plan, losses: &mut Losses, reason: &'static str| {
        losses.add("reasoning.effort", reason);
        *plan = Plan::Off;
        max_tokens = settings.max_output_tokens.unwrap_or(upstream.max_output_tokens);
    };
    if plan.is_on() && matches!(toolset.choice, Choice::Required | Choice::Named(_)) {
        stop_thinking(&mut plan, &mut losses, "the upstream does not think when tool_choice demands a call");
    }
    let uncallable = match toolset.offers.is_empty() {
        true => request.history.entries.iter().any(|entry| matches!(entry, Entry::Call(_))),
        false => toolset.choice == Choice::None,
    };
    let is_structured = match upstream.structured_output {
        StructuredOutput::Auto => abilities.structured,
        StructuredOutput::Native => true,
        StructuredOutput::Tool => false,
    };
    let answer = match native {
        Some(_) => Answer::Plain,
        None => Answer::new(&settings.text.format, &toolset, is_structured),
    };
    if plan.is_on() && uncallable && matches!(answer, Answer::Tool { .. }) {
        stop_thinking(&mut plan, &mut losses, "the upstream does not think when the answer's form is forced");
    }
    let switched_off = settings.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref()) == Some("none");
    let mut context = Context {
        upstream: upstream.name,
        model: request.model,
        seal_context: request.seal_context,
        seal: upstream.seal,
        images: request.images,
        // Models with adaptive thinking may have thought without a request for it, and need those blocks back.
        replay: native.is_some() || plan.is_on() || (abilities.style == Style::Adaptive && !switched_off),
        native: native.is_some(),
    };
    let mut messages = Messages::new(request.history, &context);
    if matches!(plan, Plan::Budget(_)) && messages.loop_lacks_thinking() {
        stop_thinking(&mut plan, &mut losses, "the pending tool calls have no thinking block to continue from");
        context.replay = false;
        messages = Messages::new(request.history, &context);
    }
    losses.extend(std::mem::take(&mut messages.losses).into_list());
    report_losses(settings, &toolset, &mut losses);

    let native = native.as_ref();
    let body = Body { request, toolset: &toolset, messages: &messages, plan, max_tokens, answer: &answer, native };
    let body = body.write(abilities.sampling, &mut losses);
    Ok(PreparedRequest {
        body: body.into(),
        losses: losses.into_list(),
        delivery: request.delivery,
        calls: toolset.call_map(),
        answer_context: AnswerContext {
            model: request.model.to_owned(),
            seal_context: request.seal_context.to_owned(),
            wants_sealed_reasoning: asks_for_sealed(&settings.include),
            keeps_messages_blocks: native.is_some(),
            betas: native.and_then(|native| messages_fields::betas(native.fields)),
            own: answer.to_note(),
            ..AnswerContext::default()
        },
    })
}

struct Body<'r, 'a> {
    request: &'r ModelRequest<'a>,
    toolset: &'r Toolset<'a>,
    messages: &'r Messages,
    plan: Plan,
    max_tokens: u64,
    answer: &'r Answer,
    native: Option<&'r Native<'a>>,
}

impl Body<'_, '_> {
    fn write(&self, sampling: Sampling, losses: &mut Losses) -> Vec<u8> {
        let settings = self.request.settings;
        let cache = cache_mark(settings, losses);
        let mut writer = Writer::with_capacity(4096);
        writer.object(|writer| {
            writer.key("model").string(self.request.model);
            writer.key("max_tokens").number(self.max_tokens);
            self.write_system(writer, cache);
            self.messages.write(writer.key("messages"), cache);
            self.write_tools(writer, cache, losses);
            let schema = match (self.answer, &settings.text.format) {
                (Answer::Native, TextFormat::JsonSchema(format)) => Some(format.schema),
                _ => None,
            };
            self.plan.write(schema, writer);
            if let Some(native) = self.native {
                native.write(settings, writer);
                return writer.key("stream").bool(self.request.delivery == Delivery::Stream);
            }
            write_sampling(settings, sampling, self.plan, writer, losses);
            if let Some(user) = settings.safety_identifier.as_deref().or(settings.user.as_deref()) {
                writer.key("metadata").object(|writer| writer.key("user_id").string(user));
            }
            match settings.service_tier.as_deref() {
                Some("auto" | "priority") => writer.key("service_tier").string("auto"),
                Some("default") => writer.key("service_tier").string("standard_only"),
                _ => {}
            }
            writer.key("stream").bool(self.request.delivery == Delivery::Stream);
        });
        writer.into_bytes()
    }

    /// Whether the API forces the answer's tool. It does not allow that together with thinking.
    fn forces_answer(&self) -> bool {
        matches!(self.answer, Answer::Tool { .. }) && !self.plan.is_on()
    }

    fn write_system(&self, writer: &mut Writer, cache: Option<&str>) {
        let mut system = Writer::with_capacity(self.messages.system.bytes().len() + 256);
        if !self.messages.system.bytes().is_empty() {
            system.valid(self.messages.system.bytes());
        }
        if let Some(instruction) = self.answer.instruction(self.forces_answer()) {
            text_block(&mut system, |writer| writer.string(&instruction));
        }
        write_list(writer, "system", system.bytes(), cache);
    }

    fn write_tools(&self, writer: &mut Writer, cache: Option<&str>, losses: &mut Losses) {
        let mut tools = Writer::default();
        let is_offered = |offer: &&Offer<'_>| self.native.is_none_or(|native| native.has(&offer.target.name));
        self.toolset.offers.iter().filter(is_offered).for_each(|offer| {
            write_tool(&mut tools, offer, self.native, losses);
        });
        if let Some(native) = self.native {
            native.write_server_tools(&mut tools);
        }
        let mut choice = self.toolset.choice.clone();
        if tools.bytes().is_empty() && !self.messages.called.is_empty() {
            // A history with calls needs a tool list, even if no tool may be called any more.
            for name in &self.messages.called {
                write_named(&mut tools, name);
            }
            choice = Choice::None;
        }
        self.answer.write_tool(&self.request.settings.text.format, &mut tools);
        write_list(writer, "tools", tools.bytes(), cache);
        if tools.bytes().is_empty() {
            return;
        }
        let (kind, name) = match (&choice, self.answer) {
            (Choice::Auto, Answer::Tool { name, .. }) if self.forces_answer() => match self.toolset.offers.is_empty() {
                true => ("tool", Some(name)),
                false => ("any", None),
            },
            (Choice::None, Answer::Tool { name, .. }) if self.forces_answer() => ("tool", Some(name)),
            // With thinking nothing can be forced, and `none` would forbid the answer's tool, the only one here.
            (Choice::None, Answer::Tool { .. }) => ("auto", None),
            (Choice::None, _) => ("none", None),
            (Choice::Auto, _) => ("auto", None),
            (Choice::Required, _) => ("any", None),
            (Choice::Named(name), _) => ("tool", Some(name)),
        };
        let alone = self.toolset.parallel == Some(false) && kind != "none";
        if kind == "auto" && !alone {
            return;
        }
        writer.key("tool_choice").object(|writer| {
            writer.key("type").string(kind);
            if let Some(name) = name {
                writer.key("name").string(name);
            }
            if alone {
                writer.key("disable_parallel_tool_use").bool(true);
            }
        });
    }
}

/// Writes an array of objects, unless it is empty. The cache mark goes into the last one.
fn write_list(writer: &mut Writer, key: &str, objects: &[u8], cache: Option<&str>) {
    if objects.is_empty() {
        return;
    }
    writer.key_text(key).array(|writer| match cache {
        Some(cache) => writer.valid(&marked(objects, cache)),
        None => writer.valid(objects),
    });
}

/// The API caches up to marks. For a caller that sends a cache key, tools, system and history are marked. Without a key
/// nothing is marked, because a cache write costs more than an uncached prompt.
fn cache_mark(settings: &CreateResponse<'_>, losses: &mut Losses) -> Option<&'static str> {
    settings.prompt_cache_key.as_deref().filter(|key| !key.is_empty())?;
    match settings.prompt_cache_retention.as_deref() {
        Some("24h") => {
            losses.add("prompt_cache_retention", "the upstream keeps its cache for an hour at most");
            Some(r#"{"type":"ephemeral","ttl":"1h"}"#)
        }
        _ => Some(r#"{"type":"ephemeral"}"#),
    }
}

fn write_tool(writer: &mut Writer, offer: &Offer<'_>, native: Option<&Native<'_>>, losses: &mut Losses) {
    if let Some(tool) = native.and_then(|native| native.whole_tool(&offer.target.name)) {
        return writer.raw(tool);
    }
    if offer.strict == Some(true) && native.is_none() {
        losses.add("tools.strict", "the upstream does not hold arguments to the schema");
    }
    let schema = offer.parameters.filter(|schema| schema.shape() == Shape::Object);
    // The API refuses alternatives at the root, so they are described in words.
    let in_words = schema.filter(|schema| !has_object_root(*schema) && !is_object_but_for_its_type(*schema));
    writer.object(|writer| {
        writer.key("name").string(&offer.name);
        match (in_words, &offer.description) {
            (Some(schema), description) => {
                losses.add("tools.parameters", "a schema that is no plain object is told in words");
                let description: Cow<'_, str> = match description {
                    Some(Description::Json(text)) => text.decode(),
                    Some(Description::Own(text)) => Cow::Borrowed(text),
                    None => Cow::Borrowed(""),
                };
                let text = format!("{description}\n\nThe input must follow this JSON Schema:\n{}", schema.text());
                writer.key("description").string(text.trim_start());
            }
            (None, Some(description)) => description.write(writer.key("description")),
            (None, None) => {}
        }
        writer.key("input_schema");
        match schema.filter(|_| in_words.is_none()) {
            Some(schema) if has_object_root(schema) => writer.raw(schema),
            Some(schema) => writer.object(|writer| {
                writer.key("type").string("object");
                for (key, value) in schema.fields().filter(|(key, _)| !key.is("type")) {
                    writer.key_text(&key.decode()).raw(value);
                }
            }),
            None => empty_schema(writer),
        }
        if let Some(native) = native {
            if let Some(strict) = offer.strict {
                writer.key("strict").bool(strict);
            }
            native.write_tool_fields(&offer.target.name, writer);
        }
    });
}

/// Writes a tool that is known only from the history.
fn write_named(writer: &mut Writer, name: &str) {
    writer.object(|writer| {
        writer.key("name").string(name);
        writer.key("description").string("No longer available.");
        empty_schema(writer.key("input_schema"));
    });
}

fn empty_schema(writer: &mut Writer) {
    writer.object(|writer| {
        writer.key("type").string("object");
        writer.key("properties").object(|_| {});
    });
}

/// Whether a schema describes objects without `"type": "object"`: `{}`, or `"type": ["object", "null"]`.
fn is_object_but_for_its_type(schema: Raw<'_>) -> bool {
    let kind = match schema.get("type") {
        None => true,
        Some(kind) => kind.elements().any(|name| name.as_str().is_some_and(|name| name.is("object"))),
    };
    kind && !["anyOf", "oneOf", "allOf", "$ref"].iter().any(|word| schema.get(word).is_some())
}

/// Writes temperature, top_p and top_k, as far as the model and thinking allow.
fn write_sampling(
    settings: &CreateResponse<'_>,
    sampling: Sampling,
    plan: Plan,
    writer: &mut Writer,
    losses: &mut Losses,
) {
    // 1 is the API's default.
    let mut temperature = settings.temperature.filter(|value| *value != 1.0);
    let mut top_p = settings.top_p.filter(|value| *value != 1.0);
    let mut top_k = extra(settings, "top_k").and_then(Raw::as_u64);
    let mut lose = |value: &mut Option<f64>, field: &'static str, reason: &'static str| {
        if value.take().is_some() {
            losses.add(field, reason);
        }
    };
    match (sampling, plan.is_on()) {
        (Sampling::None, _) => {
            lose(&mut temperature, "temperature", "the model does not take it");
            lose(&mut top_p, "top_p", "the model does not take it");
            lose(&mut top_k.take().map(|value| value as f64), "top_k", "the model does not take it");
        }
        (_, true) => {
            lose(&mut temperature, "temperature", "the upstream fixes it while the model thinks");
            if top_p.is_some_and(|value| value < 0.95) {
                lose(&mut top_p, "top_p", "the upstream wants at least 0.95 while the model thinks");
            }
            lose(&mut top_k.take().map(|value| value as f64), "top_k", "the upstream fixes it while the model thinks");
        }
        (Sampling::OneOf, false) if temperature.is_some() => {
            lose(&mut top_p, "top_p", "the model takes temperature or top_p, not both");
        }
        (Sampling::OneOf | Sampling::Free, false) => {}
    }
    if temperature.is_some_and(|value| value > 1.0) {
        losses.add("temperature", "the upstream takes at most 1");
        temperature = Some(1.0);
    }
    if let Some(temperature) = temperature {
        writer.key("temperature").float(temperature);
    }
    if let Some(top_p) = top_p {
        writer.key("top_p").float(top_p);
    }
    if let Some(top_k) = top_k {
        writer.key("top_k").number(top_k);
    }
    if let Some(stop) = extra(settings, "stop_sequences").or_else(|| extra(settings, "stop")) {
        match stop.shape() {
            Shape::Array => writer.key("stop_sequences").raw(stop),
            Shape::String => writer.key("stop_sequences").array(|writer| writer.raw(stop)),
            _ => losses.add("stop", "neither a string nor an array"),
        }
    }
}

fn extra<'a>(settings: &CreateResponse<'a>, name: &str) -> Option<Raw<'a>> {
    let mut fields = settings.chat_fields.iter().chain(&settings.extra);
    fields.find(|(key, _)| key.is(name)).map(|(_, value)| *value).filter(|value| !value.is_null())
}

/// Reports parameters for which the API has no field.
fn report_losses(settings: &CreateResponse<'_>, toolset: &Toolset<'_>, losses: &mut Losses) {
    let nowhere = "the upstream has nothing like it";
    let set = [
        ("presence_penalty", settings.presence_penalty.is_some_and(|value| value != 0.0)),
        ("frequency_penalty", settings.frequency_penalty.is_some_and(|value| value != 0.0)),
        ("top_logprobs", settings.top_logprobs.is_some_and(|count| count > 0)),
        ("text.verbosity", settings.text.verbosity.is_some()),
        ("prompt", settings.prompt.is_some()),
        ("context_management", settings.context_management.is_some()),
        ("include", settings.include.iter().any(|word| word == "message.output_text.logprobs")),
        ("text.format", matches!(settings.text.format, TextFormat::Other(_))),
    ];
    set.iter().filter(|(_, set)| *set).for_each(|(field, _)| losses.add(*field, nowhere));
    let demands = matches!(toolset.choice, Choice::Required | Choice::Named(_));
    if demands && matches!(settings.text.format, TextFormat::JsonSchema(_)) {
        losses.add("text.format", "tool_choice demands a call, so there is no text to shape");
    }
    let carried = ["top_k", "stop", "stop_sequences", ANTHROPIC];
    for (key, value) in settings.chat_fields.iter().chain(&settings.extra) {
        let key = key.decode();
        if !value.is_null() && !carried.contains(&&*key) && !NOT_FOR_MODELS.contains(&&*key) {
            losses.add(key.into_owned(), nowhere);
        }
    }
}

#[cfg(test)]
#[path = "convert_tests.rs"]
pub(super) mod tests;
