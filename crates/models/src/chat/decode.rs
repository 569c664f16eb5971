//! Decodes answers of Chat Completions, streamed or whole, in the variants that servers send.

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Finish, ModelError, ModelEvent, PreparedRequest, Seal};
use amalgam_protocol::{DEFAULT_DEPTH, Frame, Json, JsonStr, Literal, Raw, Shape, Usage, ValueIndex, Writer};
use bytes::Bytes;

use crate::{decode::Decode, reasoning_seal::Sealing, template::Template};

use super::{REASONING_FIELDS, calls::Calls, constrained::AnswerReader, failure};

/// Decodes one answer.
pub(super) struct Decoder {
    calls: Calls,
    wants_logprobs: bool,
    /// Reads the text, if the request used the tool schema.
    answer: Option<AnswerReader>,
    started: bool,
    /// Whether text or a refusal was passed on.
    has_text: bool,
    /// Whether a reasoning item is open.
    thinking: bool,
    /// The escaped text of the open reasoning item, if it is sealed, and the field that it came in.
    reasoning_text: Vec<u8>,
    reasoning_field: &'static str,
    sealing: Sealing,
    /// Whether a message has arrived, even an empty one.
    answered: bool,
    /// Whether text, reasoning or calls have arrived.
    has_content: bool,
    /// Events after the beginning of a call. Passed on at once, they would end a call whose arguments are still
    /// arriving.
    late: Vec<ModelEvent>,
    usage: Option<Usage>,
    finish: Option<Finish>,
    over: bool,
    /// The last chunk, if it contained a piece of text and nothing else that matters.
    template: Option<Template>,
}

/// The pieces of one message or delta, in the order in which they are passed on.
#[derive(Default)]
struct Delta<'a> {
    reasoning_text: Option<(&'static str, Raw<'a>)>,
    content: Option<Raw<'a>>,
    refusal: Option<JsonStr<'a>>,
    annotations: Option<Raw<'a>>,
    tool_calls: Option<Raw<'a>>,
    function_call: Option<Raw<'a>>,
}

/// Whether tool calls are fragments or complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Delta,
    Message,
}

impl Decoder {
    pub(super) fn new(prepared: &PreparedRequest, upstream: &str, seal: Arc<dyn Seal>) -> Self {
        Self {
            calls: Calls::new(prepared.calls.clone()),
            wants_logprobs: prepared.answer_context.wants_logprobs,
            answer: AnswerReader::of_note(prepared.answer_context.own.as_deref()),
            started: false,
            has_text: false,
            thinking: false,
            reasoning_text: Vec::new(),
            reasoning_field: REASONING_FIELDS[0],
            sealing: Sealing::new(&prepared.answer_context, upstream, seal),
            answered: false,
            has_content: false,
            late: Vec::new(),
            usage: None,
            finish: None,
            over: false,
            template: None,
        }
    }

    /// Handles one chunk of a stream, or the whole answer.
    fn chunk(&mut self, raw: Raw<'_>, data: &Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let mut choices = None;
        let mut error = None;
        let (mut id, mut model) = (None, None);
        for (key, value) in raw.fields() {
            match key.escaped() {
                "choices" => choices = Some(value),
                "usage" => self.count(value),
                // Groq's field.
                "x_groq" => value.get("usage").into_iter().for_each(|usage| self.count(usage)),
                "error" if !value.is_null() => error = Some(value),
                "object" if value.text() == "\"error\"" => error = error.or(Some(raw)),
                "id" if !self.started => id = value.as_str(),
                "model" if !self.started => model = value.as_str(),
                _ => {}
            }
        }
        if let Some(error) = error {
            return self.fail(error, events);
        }
        if !std::mem::replace(&mut self.started, true) {
            let text =
                |text: Option<JsonStr<'_>>| text.filter(|text| !text.is_empty()).map(|text| text.decode().into_owned());
            events.push(ModelEvent::Begun { id: text(id), model: text(model) });
        }
        let first = |choice: &Raw<'_>| choice.get("index").and_then(Raw::as_u64).unwrap_or_default() == 0;
        match choices.and_then(|choices| choices.elements().find(first)) {
            Some(choice) => self.choice(choice, data, events),
            None => Ok(()),
        }
    }

    fn choice(&mut self, choice: Raw<'_>, data: &Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let (mut delta, mut message, mut logprobs, mut reason) = (None, None, None, None);
        for (key, value) in choice.fields() {
            match key.escaped() {
                "delta" if value.shape() == Shape::Object => delta = Some(value),
                "message" if value.shape() == Shape::Object => message = Some(value),
                "logprobs" if self.wants_logprobs => logprobs = value.get("content"),
                "finish_reason" => reason = value.as_str(),
                // Moonshot's field.
                "usage" => self.count(value),
                "error" if !value.is_null() => return self.fail(value, events),
                _ => {}
            }
        }
        self.answered |= delta.is_some() || message.is_some();
        let logprobs = logprobs.filter(|list| list.shape() == Shape::Array);
        match (delta, message) {
            (Some(delta), _) => self.delta(delta, Piece::Delta, logprobs, data, events),
            (None, Some(message)) => self.delta(message, Piece::Message, logprobs, data, events),
            (None, None) => {}
        }
        if let Some(finish) = reason.and_then(finish_of)
            && matches!(self.finish, None | Some(Finish::Stop))
        {
            self.finish = Some(finish);
        }
        Ok(())
    }

    fn delta(
        &mut self,
        raw: Raw<'_>,
        piece: Piece,
        logprobs: Option<Raw<'_>>,
        data: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) {
        let mut delta = Delta::default();
        for (key, value) in raw.fields().filter(|(_, value)| !value.is_null()) {
            match key.escaped() {
                "content" => delta.content = Some(value),
                "refusal" => delta.refusal = value.as_str(),
                // The same reasoning in two fields counts once.
                name if let Some(field) = REASONING_FIELDS.into_iter().find(|field| *field == name)
                    && delta.reasoning_text.is_none_or(|(_, known)| known.text() == "\"\"") =>
                {
                    delta.reasoning_text = Some((field, value));
                }
                "annotations" => delta.annotations = Some(value),
                "tool_calls" => delta.tool_calls = Some(value),
                "function_call" => delta.function_call = Some(value),
                _ => {}
            }
        }
        if let Some((field, reasoning_text)) = delta.reasoning_text {
            self.reasoning_field = field;
            self.think(reasoning_text, data, events);
        }
        if let Some(content) = delta.content {
            self.content(content, logprobs, data, events);
        }
        if let Some(refusal) = delta.refusal.filter(|refusal| !refusal.is_empty()) {
            self.emit_text(ModelEvent::Refusal(Literal::within(data, refusal)), events);
        }
        for annotation in delta.annotations.into_iter().flat_map(Raw::elements) {
            if self.has_text
                && let Some(annotation) = annotation_of(annotation)
            {
                self.emit_text(ModelEvent::Annotation(annotation), events);
            }
        }
        if delta.tool_calls.is_some_and(|list| list.elements().next().is_some()) || delta.function_call.is_some() {
            self.has_content = true;
            self.stop_thinking(events);
        }
        match (delta.tool_calls, piece) {
            (Some(list), Piece::Delta) => self.calls.fragments(list, data, events),
            (Some(list), Piece::Message) => self.calls.whole(list, data, events),
            (None, _) => {}
        }
        if let Some(call) = delta.function_call {
            self.calls.function_call(call, data, events);
        }
    }

    /// A text, or the list of parts that some servers send.
    fn content(&mut self, content: Raw<'_>, logprobs: Option<Raw<'_>>, data: &Bytes, events: &mut Vec<ModelEvent>) {
        if let Some(text) = content.as_str() {
            return self.text(text, logprobs, data, events);
        }
        for part in content.elements() {
            if let Some(text) = part.as_str() {
                self.text(text, None, data, events);
            } else if let Some(reasoning_text) = part.get("thinking") {
                self.think(reasoning_text, data, events);
            } else if let Some(refusal) = part.get("refusal").and_then(Raw::as_str) {
                self.emit_text(ModelEvent::Refusal(Literal::within(data, refusal)), events);
            } else if let Some(text) = part.get("text").and_then(Raw::as_str) {
                self.text(text, None, data, events);
            }
        }
    }

    fn text(&mut self, text: JsonStr<'_>, logprobs: Option<Raw<'_>>, data: &Bytes, events: &mut Vec<ModelEvent>) {
        if text.is_empty() {
            return;
        }
        self.has_content = true;
        match &mut self.answer {
            Some(answer) => {
                let mut found = Vec::new();
                answer.push(&text.decode(), &mut found);
                found.into_iter().for_each(|event| self.emit_text(event, events));
            }
            None => {
                let logprobs = logprobs.map(logprobs_of);
                self.emit_text(ModelEvent::Text { delta: Literal::within(data, text), logprobs }, events);
            }
        }
    }

    fn emit_text(&mut self, event: ModelEvent, events: &mut Vec<ModelEvent>) {
        (self.has_text, self.has_content) = (true, true);
        self.stop_thinking(events);
        self.pass(event, events);
    }

    /// Passes an event on, or holds it until the calls have ended.
    fn pass(&mut self, event: ModelEvent, events: &mut Vec<ModelEvent>) {
        match self.calls.is_empty() {
            true => events.push(event),
            false => self.late.push(event),
        }
    }

    /// Handles reasoning: a text, an object with one, or a list of either.
    fn think(&mut self, reasoning_text: Raw<'_>, data: &Bytes, events: &mut Vec<ModelEvent>) {
        match reasoning_text.shape() {
            Shape::String => {
                let Some(text) = reasoning_text.as_str().filter(|text| !text.is_empty()) else { return };
                (self.has_content, self.thinking) = (true, true);
                if self.sealing.is_wanted() {
                    self.reasoning_text.extend_from_slice(text.escaped().as_bytes());
                }
                self.pass(ModelEvent::ReasoningSummary(Literal::within(data, text)), events);
            }
            Shape::Array => reasoning_text.elements().for_each(|element| self.think(element, data, events)),
            Shape::Object => {
                let texts = ["content", "text", "summary", "thinking"];
                if let Some(text) =
                    texts.iter().find_map(|name| reasoning_text.get(name).filter(|text| !text.is_null()))
                {
                    self.think(text, data, events);
                }
            }
            _ => {}
        }
    }

    fn stop_thinking(&mut self, events: &mut Vec<ModelEvent>) {
        if std::mem::take(&mut self.thinking) {
            let text = std::mem::take(&mut self.reasoning_text);
            let encrypted_content = self.sealing.close(|writer| {
                writer.key("field").string(self.reasoning_field);
                writer.key("text").escaped(&[&text]);
            });
            self.pass(ModelEvent::ReasoningEnd { encrypted_content }, events);
        }
    }

    /// Reads usage. The last report counts, unless it is empty.
    fn count(&mut self, raw: Raw<'_>) {
        let mut usage = Usage::read(raw);
        if usage.cached_tokens == 0 {
            // DeepSeek's field.
            usage.cached_tokens = raw.get("prompt_cache_hit_tokens").and_then(Raw::as_u64).unwrap_or_default();
        }
        if usage.input_tokens > 0 || usage.output_tokens > 0 {
            self.usage = Some(usage);
        }
    }

    /// An error before any content is an error of the request; later it ends the answer as failed.
    fn fail(&mut self, error: Raw<'_>, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let error = failure::read(error);
        if !self.has_content {
            return Err(error);
        }
        self.finish = Some(Finish::Failed(error.into_fault()));
        self.conclude(events);
        Ok(())
    }

    fn conclude(&mut self, events: &mut Vec<ModelEvent>) {
        self.over = true;
        let mut finish = self.finish.take().unwrap_or(Finish::Stop);
        self.stop_thinking(events);
        if let Some(mut answer) = self.answer.take() {
            let cut = answer.conclude(&mut self.calls, events);
            if cut && finish == Finish::Stop {
                finish = Finish::Length;
            }
        }
        self.calls.conclude(finish != Finish::Stop, events);
        let blank =
            |event: &ModelEvent| matches!(event, ModelEvent::Text { delta, .. } if delta.decode().trim().is_empty());
        if !self.late.iter().all(blank) {
            events.append(&mut self.late);
        }
        events.extend(self.usage.take().map(ModelEvent::Usage));
        events.push(ModelEvent::Finish(finish));
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        match frame.data.trim_ascii() {
            _ if self.over => Ok(()),
            b"" => Ok(()),
            b"[DONE]" if self.finish.is_none() && !self.has_content => Err(ModelError::CutShort),
            b"[DONE]" => {
                self.conclude(events);
                Ok(())
            }
            _ => {
                if let Some(delta) = self.template.as_ref().and_then(|template| template.fill(&frame)) {
                    if !delta.is_empty() {
                        self.emit_text(ModelEvent::Text { delta, logprobs: None }, events);
                    }
                    return Ok(());
                }
                let mut ends = ValueIndex::default();
                let raw = Raw::parse_large(&frame.data, DEFAULT_DEPTH, &mut ends).map_err(unreadable)?;
                let before = events.len();
                self.chunk(raw, &frame.data, events)?;
                self.template = match events.get(before..) {
                    Some([ModelEvent::Text { logprobs: None, .. }])
                        if self.answer.is_none() && !self.wants_logprobs =>
                    {
                        text_of(raw).and_then(|text| Template::of(&frame, text))
                    }
                    _ => None,
                };
                Ok(())
            }
        }
    }

    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        match self.finish {
            // Several servers omit `[DONE]`.
            Some(_) => {
                self.conclude(events);
                Ok(())
            }
            None => Err(ModelError::CutShort),
        }
    }

    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let mut ends = ValueIndex::default();
        let raw = Raw::parse_large(&body, DEFAULT_DEPTH, &mut ends).map_err(unreadable)?;
        self.chunk(raw, &body, events)?;
        if !self.answered {
            return Err(ModelError::Unreadable("an answer without a message".to_owned()));
        }
        if !self.over {
            self.conclude(events);
        }
        Ok(())
    }
}

/// The only text of a chunk.
fn text_of(chunk: Raw<'_>) -> Option<JsonStr<'_>> {
    let choice = chunk.get("choices")?.elements().next()?;
    choice.get("delta")?.get("content")?.as_str()
}

fn unreadable(error: amalgam_protocol::SyntaxError) -> ModelError {
    ModelError::Unreadable(error.to_string())
}

/// The finish reason. An unknown reason counts as `stop`; an empty one is ignored.
fn finish_of(reason: JsonStr<'_>) -> Option<Finish> {
    let failed = |kind, message: &'static str| {
        Finish::Failed(Fault::new(kind, message).detail(format_args!("finish_reason {}", reason.escaped())))
    };
    Some(match reason.escaped() {
        "" | "null" => return None,
        "length" | "max_tokens" | "model_length" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        "insufficient_system_resource" => {
            failed(FaultKind::UpstreamDown, "The upstream ran out of resources before the answer was complete.")
        }
        "error" => failed(FaultKind::UpstreamDown, "The upstream failed before the answer was complete."),
        "abort" => failed(FaultKind::UpstreamBroken, "The upstream gave up before the answer was complete."),
        _ => Finish::Stop,
    })
}

/// Log probabilities in the format of the Responses API: every entry has all four fields.
fn logprobs_of(list: Raw<'_>) -> Json {
    let is_full = |entry: Raw<'_>| {
        let array = |name| entry.get(name).is_some_and(|value| value.shape() == Shape::Array);
        array("bytes") && array("top_logprobs")
    };
    if list.elements().all(is_full) {
        return Json::from(list);
    }
    let mut writer = Writer::with_capacity(list.text().len() * 2);
    writer.array(|writer| {
        for entry in list.elements() {
            writer.object(|writer| {
                write_token(writer, entry);
                let others = entry.get("top_logprobs").into_iter().flat_map(Raw::elements);
                writer
                    .key("top_logprobs")
                    .array(|writer| others.for_each(|other| writer.object(|writer| write_token(writer, other))));
            });
        }
    });
    Json::from_writer(writer)
}

fn write_token(writer: &mut Writer, entry: Raw<'_>) {
    let token = entry.get("token").and_then(Raw::as_str).unwrap_or_default();
    writer.key("token").json_str(token);
    writer.key("logprob").raw(entry.get("logprob").unwrap_or(Raw::NULL));
    writer.key("bytes");
    match entry.get("bytes").filter(|bytes| bytes.shape() == Shape::Array) {
        Some(bytes) => writer.raw(bytes),
        None => writer.array(|writer| token.decode().bytes().for_each(|byte| writer.number(u64::from(byte)))),
    }
}

/// A citation in the format of the Responses API: its fields are not nested.
fn annotation_of(annotation: Raw<'_>) -> Option<Json> {
    let kind = annotation.get("type")?.as_str()?;
    let nested = match annotation.get(&kind.decode()) {
        Some(nested) if nested.shape() == Shape::Object => nested,
        _ => return Some(annotation.into()),
    };
    let mut writer = Writer::with_capacity(nested.text().len() + 32);
    writer.object(|writer| {
        writer.key("type").json_str(kind);
        for (key, value) in nested.fields() {
            writer.key_text(&key.decode()).raw(value);
        }
    });
    Some(Json::from_writer(writer))
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
