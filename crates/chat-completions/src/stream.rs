//! The events of a response as chunks of a completion.
//!
//! Text, reasoning and arguments are passed on as they arrive. Items that a stored stream has only as a whole are sent
//! when they end.

use amalgam_protocol::{Event, EventKind, JsonStr, Raw, Usage, Writer};

use crate::{
    answer::write_rest,
    ids::completion_id,
    output::{PARAGRAPH, ShownCall, ShownOutput, finish_reason, incomplete_reason, write_annotation},
    request::{AnswerOptions, CallStyle},
    usage::write_usage,
};

const DONE: &[u8] = b"data: [DONE]\n\n";

/// Writes the chunks of one completion.
#[derive(Debug)]
pub struct ChunkStream {
    options: AnswerOptions,
    /// Every chunk up to its choices; empty before the first one.
    head: Vec<u8>,
    /// The calls so far, by the position of their items in the output.
    calls: Vec<StreamedCall>,
    text: Channel,
    refusal: Channel,
    reasoning: Channel,
    /// The part of the reasoning that the last piece belonged to.
    reasoning_part: Option<(EventKind, Option<u64>)>,
    ended: bool,
}

#[derive(Debug)]
struct StreamedCall {
    output_index: Option<u64>,
    item_id: String,
    payload: &'static str,
    kind: &'static str,
    has_arguments: bool,
}

/// A text that consists of several items.
#[derive(Debug, Default)]
struct Channel {
    /// Whether anything was sent.
    sent: bool,
    /// Whether the current item has sent anything.
    sent_by_item: bool,
    /// Whether the next piece begins something new.
    begins: bool,
}

impl Channel {
    fn begin_item(&mut self) {
        self.sent_by_item = false;
        self.begins = true;
    }

    /// Whether an empty line precedes the next piece.
    fn needs_paragraph(&mut self) -> bool {
        let needed = self.begins && self.sent;
        (self.begins, self.sent, self.sent_by_item) = (false, true, true);
        needed
    }
}

impl ChunkStream {
    /// The chunks of a completion that has not begun.
    pub fn new(options: AnswerOptions) -> Self {
        Self {
            options,
            head: Vec::new(),
            calls: Vec::new(),
            text: Channel::default(),
            refusal: Channel::default(),
            reasoning: Channel::default(),
            reasoning_part: None,
            ended: false,
        }
    }

    /// Appends the chunks for an event, if it has any.
    pub fn on(&mut self, event: &Event<'_>, frames: &mut Vec<u8>) {
        let Some(kind) = event.kind.filter(|_| !self.ended) else { return };
        if let Some(response) = event.response.filter(|_| self.head.is_empty()) {
            self.begin(response, frames);
        }
        match kind {
            EventKind::Keepalive => frames.extend_from_slice(b": keepalive\n\n"),
            EventKind::ItemAdded => self.item_added(event, frames),
            EventKind::TextDelta => self.text_delta(event, frames),
            EventKind::RefusalDelta => {
                if let Some(delta) = event.delta.filter(|delta| !delta.is_empty()) {
                    self.refusal.needs_paragraph();
                    self.delta(frames, "refusal", &[delta.escaped().as_bytes()]);
                }
            }
            EventKind::ReasoningTextDelta | EventKind::SummaryTextDelta => {
                if let Some(delta) = event.delta.filter(|delta| !delta.is_empty()) {
                    let part = Some((kind, event.part_index));
                    self.reasoning.begins |= self.reasoning_part != part;
                    self.reasoning_part = part;
                    self.reasoning_piece(delta, frames);
                }
            }
            EventKind::AnnotationAdded => self.annotation(event, frames),
            EventKind::ArgumentsDelta | EventKind::CustomInputDelta => {
                if let Some(delta) = event.delta.filter(|delta| !delta.is_empty()) {
                    self.arguments(event, delta, frames);
                }
            }
            EventKind::ItemDone => self.item_done(event, frames),
            EventKind::Completed | EventKind::Incomplete | EventKind::Cancelled => {
                self.finish(event.response.unwrap_or(Raw::NULL), frames);
            }
            EventKind::Failed => {
                let error = event.response.and_then(|response| response.get("error"));
                self.fail(error.unwrap_or(Raw::NULL), frames);
            }
            EventKind::Error => self.fail(event.raw.get("error").unwrap_or(event.raw), frames),
            _ => {}
        }
    }

    /// The first chunk, which names the role.
    fn begin(&mut self, response: Raw<'_>, frames: &mut Vec<u8>) {
        let mut writer = Writer::with_capacity(256);
        writer.outside(b"data: {");
        writer.key("id").string(&completion_id(&response.get_str("id").unwrap_or_default()));
        writer.key("object").string("chat.completion.chunk");
        writer.key("created").raw(response.get("created_at").unwrap_or(Raw::NULL));
        writer.key("model").raw(response.get("model").unwrap_or(Raw::NULL));
        self.head = writer.into_bytes();
        self.chunk(frames, |writer| {
            writer.key("role").string("assistant");
            writer.key("content").string("");
            writer.key("refusal").null();
        });
    }

    fn chunk(&self, frames: &mut Vec<u8>, delta: impl FnOnce(&mut Writer)) {
        self.choice(frames, delta, None, None, |_| {});
    }

    /// One chunk with one choice.
    fn choice(
        &self,
        frames: &mut Vec<u8>,
        delta: impl FnOnce(&mut Writer),
        logprobs: Option<Raw<'_>>,
        finish: Option<&str>,
        rest: impl FnOnce(&mut Writer),
    ) {
        self.frame(frames, |writer| {
            writer.key("choices").array(|writer| {
                writer.object(|writer| {
                    writer.key("index").number(0);
                    writer.key("delta").object(delta);
                    match logprobs {
                        Some(logprobs) => writer.key("logprobs").object(|writer| {
                            writer.key("content").raw(logprobs);
                            writer.key("refusal").null();
                        }),
                        None => writer.key("logprobs").null(),
                    }
                    match finish {
                        Some(finish) => writer.key("finish_reason").string(finish),
                        None => writer.key("finish_reason").null(),
                    }
                });
            });
            if self.options.include_usage {
                writer.key("usage").null();
            }
            rest(writer);
        });
    }

    fn frame(&self, frames: &mut Vec<u8>, fill: impl FnOnce(&mut Writer)) {
        let mut writer = Writer::with_capacity(self.head.len() + 192);
        writer.outside(&self.head);
        fill(&mut writer);
        writer.outside(b"}\n\n");
        frames.extend_from_slice(writer.bytes());
    }

    fn delta(&self, frames: &mut Vec<u8>, field: &'static str, pieces: &[&[u8]]) {
        self.chunk(frames, |writer| writer.key(field).escaped(pieces));
    }

    fn item_added(&mut self, event: &Event<'_>, frames: &mut Vec<u8>) {
        let Some(item) = event.item else { return };
        match item.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("message") => {
                self.text.begin_item();
                self.refusal.sent_by_item = false;
            }
            Some("reasoning") => self.reasoning.begin_item(),
            _ => {
                if let Some(call) = ShownCall::of(item) {
                    self.begin_call(event, item, call, frames);
                }
            }
        }
    }

    fn text_delta(&mut self, event: &Event<'_>, frames: &mut Vec<u8>) {
        let logprobs = event.raw.get("logprobs").filter(|logprobs| logprobs.elements().next().is_some());
        let Some(delta) = event.delta.filter(|delta| !delta.is_empty() || logprobs.is_some()) else { return };
        self.text_piece(delta, logprobs, frames);
    }

    fn text_piece(&mut self, piece: JsonStr<'_>, logprobs: Option<Raw<'_>>, frames: &mut Vec<u8>) {
        let paragraph = !piece.is_empty() && self.text.needs_paragraph();
        let pieces = [if paragraph { PARAGRAPH.as_bytes() } else { b"" }, piece.escaped().as_bytes()];
        self.choice(frames, |writer| writer.key("content").escaped(&pieces), logprobs, None, |_| {});
    }

    fn reasoning_piece(&mut self, piece: JsonStr<'_>, frames: &mut Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        let paragraph = self.reasoning.needs_paragraph();
        let pieces = [if paragraph { PARAGRAPH.as_bytes() } else { b"" }, piece.escaped().as_bytes()];
        self.delta(frames, "reasoning_content", &pieces);
    }

    fn annotation(&self, event: &Event<'_>, frames: &mut Vec<u8>) {
        let annotation = event.raw.get("annotation");
        let shown = annotation.filter(|one| one.get_str("type").as_deref() == Some("url_citation"));
        if let Some(annotation) = shown {
            self.chunk(frames, |writer| {
                writer.key("annotations").array(|writer| write_annotation(writer, annotation));
            });
        }
    }

    fn begin_call(&mut self, event: &Event<'_>, item: Raw<'_>, call: ShownCall<'_>, frames: &mut Vec<u8>) {
        let index = self.calls.len() as u64;
        let empty = ShownCall { payload: JsonStr::default(), ..call };
        match self.options.calls {
            CallStyle::Tools => self.chunk(frames, |writer| {
                writer.key("tool_calls").array(|writer| empty.write(writer, Some(index)));
            }),
            // There is room for one call.
            CallStyle::Function if index == 0 => self.chunk(frames, |writer| {
                writer.key("function_call").object(|writer| {
                    writer.key("name").json_str(call.name);
                    writer.key("arguments").string("");
                });
            }),
            CallStyle::Function => {}
        }
        self.calls.push(StreamedCall {
            output_index: event.output_index,
            item_id: item.get_str("id").unwrap_or_default().into_owned(),
            payload: call.kind.payload(),
            kind: call.kind.name(),
            has_arguments: false,
        });
    }

    fn place_of(&self, event: &Event<'_>) -> Option<usize> {
        let id = event.item_id.map(JsonStr::decode).or_else(|| event.item.and_then(|item| item.get_str("id")));
        let by_id =
            id.filter(|id| !id.is_empty()).and_then(|id| self.calls.iter().rposition(|call| call.item_id == *id));
        let by_place = || {
            let wanted = event.output_index?;
            self.calls.iter().rposition(|call| call.output_index == Some(wanted))
        };
        by_id.or_else(by_place)
    }

    fn arguments(&mut self, event: &Event<'_>, piece: JsonStr<'_>, frames: &mut Vec<u8>) {
        let Some(place) = self.place_of(event) else { return };
        let Some(call) = self.calls.get_mut(place) else { return };
        call.has_arguments = true;
        let (kind, payload) = (call.kind, call.payload);
        match self.options.calls {
            CallStyle::Tools => self.chunk(frames, |writer| {
                writer.key("tool_calls").array(|writer| {
                    writer.object(|writer| {
                        writer.key("index").number(place as u64);
                        writer.key(kind).object(|writer| writer.key(payload).json_str(piece));
                    });
                });
            }),
            CallStyle::Function if place == 0 => self.chunk(frames, |writer| {
                writer.key("function_call").object(|writer| writer.key("arguments").json_str(piece));
            }),
            CallStyle::Function => {}
        }
    }

    /// Sends what an item has and no delta has sent.
    fn item_done(&mut self, event: &Event<'_>, frames: &mut Vec<u8>) {
        let Some(item) = event.item else { return };
        if let Some(call) = ShownCall::of(item) {
            if self.place_of(event).is_none() {
                self.begin_call(event, item, call, frames);
            }
            let sent =
                self.place_of(event).and_then(|place| self.calls.get(place)).is_some_and(|call| call.has_arguments);
            if !sent && !call.payload.is_empty() {
                self.arguments(event, call.payload, frames);
            }
            return;
        }
        let strings = |list: &'static str, field: &'static str| {
            let parts = item.get(list).map(Raw::elements).into_iter().flatten();
            parts.filter_map(move |part| part.get(field)?.as_str()).filter(|text| !text.is_empty())
        };
        match item.get("type").and_then(Raw::as_str).map(JsonStr::escaped) {
            Some("message") => {
                if !self.text.sent_by_item {
                    strings("content", "text").for_each(|text| self.text_piece(text, None, frames));
                }
                if !self.refusal.sent_by_item {
                    for refusal in strings("content", "refusal") {
                        self.refusal.needs_paragraph();
                        self.delta(frames, "refusal", &[refusal.escaped().as_bytes()]);
                    }
                }
            }
            Some("reasoning") if !self.reasoning.sent_by_item => {
                for text in strings("summary", "text").chain(strings("content", "text")) {
                    self.reasoning.begins = true;
                    self.reasoning_piece(text, frames);
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, response: Raw<'_>, frames: &mut Vec<u8>) {
        let incomplete = incomplete_reason(response);
        let has_calls = match self.calls.is_empty() {
            false => true,
            true => !ShownOutput::of(response.get("output").map(Raw::elements).into_iter().flatten()).calls.is_empty(),
        };
        let reason = finish_reason(has_calls, incomplete.as_deref(), self.options.calls);
        self.choice(frames, |_| {}, None, Some(reason), |writer| write_rest(writer, response));
        if self.options.include_usage {
            self.frame(frames, |writer| {
                writer.key("choices").array(|_| {});
                match response.get("usage").filter(|usage| !usage.is_null()) {
                    Some(usage) => write_usage(&Usage::read_stored(usage), writer.key("usage")),
                    None => writer.key("usage").null(),
                }
            });
        }
        self.end(frames);
    }

    /// The error in the form of an error response; clients raise it.
    fn fail(&mut self, error: Raw<'_>, frames: &mut Vec<u8>) {
        let mut writer = Writer::with_capacity(error.text().len() + 128);
        writer.outside(b"data: {");
        writer.key("error").object(|writer| {
            let text = |name: &str| error.get(name).filter(|value| !value.is_null());
            writer.key("message").raw(text("message").unwrap_or(Raw::NULL));
            match text("type").filter(|kind| kind.as_str().is_some_and(|kind| !kind.is("error"))) {
                Some(kind) => writer.key("type").raw(kind),
                None => writer.key("type").string("server_error"),
            }
            writer.key("param").raw(text("param").unwrap_or(Raw::NULL));
            writer.key("code").raw(text("code").unwrap_or(Raw::NULL));
        });
        writer.outside(b"}\n\n");
        frames.extend_from_slice(writer.bytes());
        self.end(frames);
    }

    fn end(&mut self, frames: &mut Vec<u8>) {
        frames.extend_from_slice(DONE);
        self.ended = true;
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
