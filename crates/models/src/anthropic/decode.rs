//! Decodes answers of the Messages API, streamed or whole. A whole answer is read as if its blocks were streamed.

use std::sync::Arc;

use amalgam_core::{
    CallHead, CallKind, CallMap, Finish, ItemExtra, ModelError, ModelEvent, PartOwner, PreparedRequest, Seal,
    unwrap_custom,
};
use amalgam_protocol::{DEFAULT_DEPTH, Frame, Json, JsonStr, Literal, Raw, Usage, ValueIndex, Writer};
use bytes::Bytes;

use crate::{decode::Decode, reasoning_seal::Sealing};

use super::{
    answer::{Answer, WRAPPER, bare_object},
    block::{Arguments, Block, kept_item, stop_fields},
    thinking::ThinkingBlocks,
};

/// Decodes one answer.
pub(super) struct Decoder {
    calls: CallMap,
    answer: Answer,
    sealing: Sealing,
    /// Blocks that have begun and not ended, by index.
    open: Vec<(u64, Block)>,
    /// Text that is held until it is known to be the answer.
    held: Vec<Literal>,
    /// Whether text was passed on since the last message ended.
    message_open: bool,
    /// The number of characters of the current message, which positions annotations.
    message_chars: usize,
    /// Whether the answer's tool was called.
    answered: bool,
    usage: Usage,
    /// Input tokens without cached ones, as the API counts them.
    fresh_input: u64,
    /// Whether the upstream has reported usage.
    is_counted: bool,
    stop_reason: Option<String>,
    /// The stop sequence that ended the answer.
    stop_sequence: Option<String>,
    refusal: Option<String>,
    /// Whether blocks that only this API has are passed on.
    keeps_blocks: bool,
    done: bool,
}

impl Decoder {
    pub(super) fn new(prepared: &PreparedRequest, upstream: &str, seal: Arc<dyn Seal>) -> Self {
        let answer_context = &prepared.answer_context;
        Self {
            calls: prepared.calls.clone(),
            answer: Answer::from_context(answer_context.own.as_deref()),
            sealing: Sealing::new(answer_context, upstream, seal),
            open: Vec::new(),
            held: Vec::new(),
            message_open: false,
            message_chars: 0,
            answered: false,
            usage: Usage::default(),
            fresh_input: 0,
            is_counted: false,
            stop_reason: None,
            stop_sequence: None,
            refusal: None,
            keeps_blocks: answer_context.keeps_messages_blocks,
            done: false,
        }
    }

    fn event(
        &mut self,
        kind: &str,
        raw: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        let index = || raw.get("index").and_then(Raw::as_u64).unwrap_or(0);
        match kind {
            "message_start" => {
                self.begin(raw.get("message").unwrap_or(raw), events);
                // The usage of the prompt is reported now, in case the answer does not reach its end.
                if self.usage != Usage::default() {
                    events.push(ModelEvent::Usage(self.usage));
                }
            }
            "content_block_start" => {
                if let Some(block) = raw.get("content_block") {
                    self.start(index(), block, whole, events);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = raw.get("delta") {
                    self.delta(index(), delta, whole, events);
                }
            }
            "content_block_stop" => self.stop(index(), events),
            "message_delta" => {
                if let Some(delta) = raw.get("delta") {
                    self.take_stop(delta);
                }
                if let Some(usage) = raw.get("usage") {
                    self.count(usage);
                }
            }
            "message_stop" => self.finish(events),
            "error" => return Err(refusal(raw)),
            // `ping`, and unknown events.
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, message: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let word = |name| message.get_str(name).map(|text| text.into_owned());
        events.push(ModelEvent::Begun { id: word("id"), model: word("model") });
        if let Some(usage) = message.get("usage") {
            self.count(usage);
        }
    }

    fn start(&mut self, index: u64, block: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        self.stop(index, events);
        let kind = block.get("type").and_then(Raw::as_str).unwrap_or_default();
        match kind.escaped() {
            "text" => {
                self.open.push((index, self.text_block()));
                self.delta_text(index, block, "text", whole, events);
                for citation in block.get("citations").unwrap_or(Raw::NULL).elements() {
                    self.cite(index, citation);
                }
            }
            "thinking" => {
                self.end_message(events);
                self.open.push((index, Block::Thinking { text: Vec::new(), signature: Vec::new(), shown: false }));
                self.delta_thinking(index, block, whole, events);
                self.delta_signature(index, block);
            }
            "redacted_thinking" => {
                self.end_message(events);
                let data = block.get("data").and_then(Raw::as_str).unwrap_or_default();
                self.open.push((index, Block::Redacted { data: data.escaped().into() }));
            }
            "tool_use" => self.start_call(index, block, events),
            _ if self.keeps_blocks => {
                self.release(events);
                self.end_message(events);
                self.open.push((index, Block::Kept { block: block.into(), input: String::new() }));
            }
            _ => self.open.push((index, Block::Ignored)),
        }
    }

    fn start_call(&mut self, index: u64, block: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let name = block.get_str("name").unwrap_or_default();
        if let Answer::Tool { name: own, wrapped } = &self.answer
            && *own == *name
        {
            // A second answer would make the first one unreadable.
            let block = match self.answered {
                true => Block::Ignored,
                false => Block::Answer { arguments: Arguments::new(block, *wrapped) },
            };
            self.answered = true;
            self.held.clear();
            return self.open.push((index, block));
        }
        self.release(events);
        self.end_message(events);
        let target = self.calls.target(&name);
        let custom = target.kind == CallKind::Custom;
        let call_id = block.get_str("id").filter(|id| !id.is_empty()).map(|id| id.into_owned());
        let call = CallHead { kind: target.kind, call_id, name: target.name, namespace: target.namespace };
        events.push(ModelEvent::CallStart { key: index, call });
        self.open.push((index, Block::Call { custom, arguments: Arguments::new(block, custom) }));
    }

    fn delta(&mut self, index: u64, delta: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let kind = delta.get("type").and_then(Raw::as_str).unwrap_or_default();
        match kind.escaped() {
            "text_delta" => {
                // Some servers omit the start of a text block.
                if self.block(index).is_none() {
                    self.open.push((index, self.text_block()));
                }
                self.delta_text(index, delta, "text", whole, events);
            }
            "input_json_delta" => self.delta_input(index, delta, whole, events),
            "thinking_delta" => self.delta_thinking(index, delta, whole, events),
            "signature_delta" => self.delta_signature(index, delta),
            "citations_delta" => {
                if let Some(citation) = delta.get("citation") {
                    self.cite(index, citation);
                }
            }
            _ => {}
        }
    }

    fn delta_text(&mut self, index: u64, from: Raw<'_>, name: &str, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let text = from.get(name).and_then(Raw::as_str).unwrap_or_default();
        if text.is_empty() || !matches!(self.block(index), Some(Block::Text { .. })) {
            return;
        }
        let piece = Literal::within(whole, text);
        match self.answer {
            Answer::Plain | Answer::Native => self.emit_text(piece, characters(text), events),
            // Text besides the answer's tool is not part of the answer.
            Answer::Tool { .. } if self.answered => {}
            Answer::Object | Answer::Tool { .. } => self.held.push(piece),
        }
    }

    fn delta_input(&mut self, index: u64, delta: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let text = delta.get("partial_json").and_then(Raw::as_str).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let piece = Literal::within(whole, text);
        match self.block(index) {
            Some(Block::Call { arguments, .. }) => {
                if let Some(delta) = arguments.take(piece) {
                    events.push(ModelEvent::CallDelta { key: index, delta });
                }
            }
            Some(Block::Answer { arguments }) => {
                if let Some(delta) = arguments.take(piece) {
                    self.emit_text(delta, 0, events);
                }
            }
            Some(Block::Kept { input, .. }) => input.push_str(&piece.decode()),
            _ => {}
        }
    }

    fn delta_thinking(&mut self, index: u64, from: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let thinking = from.get("thinking").and_then(Raw::as_str).unwrap_or_default();
        let wanted = self.sealing.is_wanted();
        if let Some(Block::Thinking { text, shown, .. }) = self.block(index)
            && !thinking.is_empty()
        {
            *shown = true;
            if wanted {
                text.extend_from_slice(thinking.escaped().as_bytes());
            }
            events.push(ModelEvent::ReasoningSummary(Literal::within(whole, thinking)));
        }
    }

    fn delta_signature(&mut self, index: u64, from: Raw<'_>) {
        let piece = from.get("signature").and_then(Raw::as_str).unwrap_or_default();
        if let Some(Block::Thinking { signature, .. }) = self.block(index) {
            signature.extend_from_slice(piece.escaped().as_bytes());
        }
    }

    /// Handles a citation with an address; other citations refer to documents for which the client has no id.
    fn cite(&mut self, index: u64, citation: Raw<'_>) {
        if let Some(Block::Text { citations, .. }) = self.block(index)
            && citation.get("url").and_then(Raw::as_str).is_some()
        {
            citations.push(citation.into());
        }
    }

    fn stop(&mut self, index: u64, events: &mut Vec<ModelEvent>) {
        let Some(place) = self.open.iter().position(|(key, _)| *key == index) else { return };
        let (_, block) = self.open.remove(place);
        match block {
            Block::Text { from, citations } => {
                for citation in citations.iter().filter(|_| self.message_open) {
                    events.push(ModelEvent::Annotation(annotation(citation.raw(), from, self.message_chars)));
                }
            }
            Block::Call { custom, arguments } => {
                if let Some(rest) = arguments.rest() {
                    let rest = if custom { unwrap_custom(&rest) } else { rest };
                    events.push(ModelEvent::CallDelta { key: index, delta: Literal::from_text(&rest) });
                }
                events.push(ModelEvent::CallEnd { key: index });
            }
            Block::Answer { arguments } => {
                let wrapped = matches!(self.answer, Answer::Tool { wrapped: true, .. });
                if let Some(rest) = arguments.rest() {
                    let inner = Raw::parse(rest.as_bytes()).ok().filter(|_| wrapped).and_then(|raw| raw.get(WRAPPER));
                    self.emit_text(Literal::from_text(inner.map_or(&*rest, Raw::text)), 0, events);
                }
                self.end_message(events);
            }
            Block::Thinking { text, signature, shown } => {
                let mut blocks = ThinkingBlocks::default();
                blocks.add(&text, &signature);
                if shown || self.sealing.is_wanted() {
                    events.push(ModelEvent::ReasoningEnd {
                        encrypted_content: self.sealing.close(|writer| blocks.write(writer)),
                    });
                }
            }
            Block::Redacted { data } => {
                let mut blocks = ThinkingBlocks::default();
                blocks.add_redacted(&data);
                if self.sealing.is_wanted() {
                    events.push(ModelEvent::ReasoningEnd {
                        encrypted_content: self.sealing.close(|writer| blocks.write(writer)),
                    });
                }
            }
            Block::Kept { block, input } => {
                events.push(ModelEvent::ItemEnd { key: index, item: kept_item(&block, &input) });
            }
            Block::Ignored => {}
        }
    }

    fn finish(&mut self, events: &mut Vec<ModelEvent>) {
        while let Some((index, _)) = self.open.first() {
            self.stop(*index, events);
        }
        self.release(events);
        if let Some(refusal) = self.refusal.take() {
            self.message_open = true;
            events.push(ModelEvent::Refusal(Literal::from_text(&refusal)));
        }
        if let Some(sequence) = self.stop_sequence.take().filter(|_| self.keeps_blocks) {
            if !std::mem::replace(&mut self.message_open, true) {
                events.push(ModelEvent::MessageStart { phase: None });
            }
            let fields = stop_fields(&sequence);
            events.push(ModelEvent::Extra(ItemExtra::Item { of: PartOwner::Message, fields }));
        }
        self.end_message(events);
        if self.is_counted {
            events.push(ModelEvent::Usage(self.usage));
        }
        events.push(ModelEvent::Finish(match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Finish::Length,
            Some("refusal") => Finish::ContentFilter,
            Some("pause_turn") => Finish::Incomplete("pause_turn".to_owned()),
            // `end_turn`, `stop_sequence`, `tool_use`, and unknown reasons.
            _ => Finish::Stop,
        }));
        self.done = true;
    }

    /// Passes on held text, once it is known to be the answer or to accompany a call.
    fn release(&mut self, events: &mut Vec<ModelEvent>) {
        let held = std::mem::take(&mut self.held);
        match self.answer {
            _ if held.is_empty() => {}
            Answer::Object => {
                let text: String = held.iter().map(Literal::decode).collect();
                self.emit_text(Literal::from_text(bare_object(&text)), 0, events);
            }
            Answer::Plain | Answer::Native | Answer::Tool { .. } => {
                held.into_iter().for_each(|piece| self.emit_text(piece, 0, events))
            }
        }
    }

    fn emit_text(&mut self, delta: Literal, characters: usize, events: &mut Vec<ModelEvent>) {
        self.message_open = true;
        self.message_chars += characters;
        events.push(ModelEvent::Text { delta, logprobs: None });
    }

    fn end_message(&mut self, events: &mut Vec<ModelEvent>) {
        if std::mem::take(&mut self.message_open) {
            events.push(ModelEvent::MessageEnd);
        }
        self.message_chars = 0;
    }

    fn take_stop(&mut self, from: Raw<'_>) {
        if let Some(reason) = from.get_str("stop_reason") {
            self.stop_reason = Some(reason.into_owned());
        }
        if let Some(sequence) = from.get_str("stop_sequence") {
            self.stop_sequence = Some(sequence.into_owned());
        }
        let details = from.get("stop_details").filter(|details| details.get_str("type").as_deref() == Some("refusal"));
        if let Some(explanation) = details.and_then(|details| details.get_str("explanation")) {
            self.refusal = Some(explanation.into_owned());
        }
    }

    /// Reads usage. Counts are running totals, and a missing count keeps its value. The API counts cached input
    /// separately.
    fn count(&mut self, usage: Raw<'_>) {
        let is_counted = &mut self.is_counted;
        let mut read = |name: &str, into: &mut u64| {
            if let Some(count) = usage.get(name).and_then(Raw::as_u64) {
                *into = count;
                *is_counted = true;
            }
        };
        read("input_tokens", &mut self.fresh_input);
        read("cache_read_input_tokens", &mut self.usage.cached_tokens);
        read("cache_creation_input_tokens", &mut self.usage.cache_write_tokens);
        read("output_tokens", &mut self.usage.output_tokens);
        if let Some(tokens) = usage.get("output_tokens_details").and_then(|details| details.get("thinking_tokens")) {
            self.usage.reasoning_tokens = tokens.as_u64().unwrap_or_default();
        }
        let cached = self.usage.cached_tokens.saturating_add(self.usage.cache_write_tokens);
        self.usage.input_tokens = self.fresh_input.saturating_add(cached);
    }

    fn text_block(&self) -> Block {
        Block::Text { from: self.message_chars, citations: Vec::new() }
    }

    fn block(&mut self, index: u64) -> Option<&mut Block> {
        self.open.iter_mut().find(|(key, _)| *key == index).map(|(_, block)| block)
    }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        // Proxies for several APIs end all streams with `[DONE]`.
        if self.done || &*frame.data == b"[DONE]" {
            return Ok(());
        }
        let mut ends = ValueIndex::default();
        let raw = Raw::parse_large(&frame.data, DEFAULT_DEPTH, &mut ends)
            .map_err(|error| ModelError::Unreadable(error.to_string()))?;
        let kind = match raw.get_str("type") {
            Some(kind) => kind,
            None => String::from_utf8_lossy(frame.event.as_deref().unwrap_or_default()),
        };
        self.event(&kind, raw, &frame.data, events)
    }

    fn end(&mut self, _events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        Err(ModelError::CutShort)
    }

    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let mut ends = ValueIndex::default();
        let raw = Raw::parse_large(&body, DEFAULT_DEPTH, &mut ends)
            .map_err(|error| ModelError::Unreadable(error.to_string()))?;
        if raw.get_str("type").as_deref() == Some("error") || raw.get("error").is_some() {
            return Err(refusal(raw));
        }
        let Some(content) = raw.get("content") else {
            return Err(ModelError::Unreadable("a message without content".to_owned()));
        };
        self.begin(raw, events);
        self.take_stop(raw);
        for (index, block) in (0_u64..).zip(content.elements()) {
            self.start(index, block, &body, events);
            self.stop(index, events);
        }
        self.finish(events);
        Ok(())
    }
}

/// An error inside an answer, with the HTTP status of the same error outside of one.
fn refusal(raw: Raw<'_>) -> ModelError {
    let error = raw.get("error").unwrap_or(raw);
    let code = error.get_str("type").map(|kind| kind.into_owned());
    let status = match code.as_deref() {
        Some("invalid_request_error") => 400,
        Some("authentication_error") => 401,
        Some("permission_error") => 403,
        Some("not_found_error") => 404,
        Some("request_too_large") => 413,
        Some("rate_limit_error") => 429,
        Some("timeout_error") => 504,
        Some("overloaded_error") => 529,
        _ => 500,
    };
    let message = error.get_str("message").map(|message| message.into_owned());
    ModelError::Refused { status, retry_after: None, message, code, param: None, body: raw.text().to_owned() }
}

fn annotation(citation: Raw<'_>, from: usize, to: usize) -> Json {
    let mut writer = Writer::with_capacity(128);
    writer.object(|writer| {
        writer.key("type").string("url_citation");
        writer.key("start_index").number(from as u64);
        writer.key("end_index").number(to as u64);
        writer.key("url").raw(citation.get("url").unwrap_or(Raw::NULL));
        let title = citation.get("title").and_then(Raw::as_str).unwrap_or_default();
        writer.key("title").json_str(title);
    });
    Json::from_writer(writer)
}

fn characters(text: JsonStr<'_>) -> usize {
    text.decode().chars().count()
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
