//! Decodes answers of a Responses upstream, including non-conforming ones.
//!
//! Messages, reasoning and calls are decoded, so that they get an order, ids and numbers of this server; every other
//! item is passed on whole. A whole answer is handled like the last event of a stream, so that both yield the same
//! items.

mod deltas;
mod final_object;

use std::{collections::HashSet, sync::Arc};

use amalgam_core::{AnswerContext, CallKind, Finish, ModelError, ModelEvent, Seal};
use amalgam_protocol::{Event, EventKind, Frame, Json, Raw, Shape, Usage, ValueIndex};
use bytes::Bytes;

use crate::{decode::Decode, reasoning_seal::Sealing, template::Template};

use super::{
    failure,
    open::{DeltaKind, Kind, OpenItem, TextMismatch},
};
use final_object::{SeenItem, match_items};

/// An answer repeats the tools of its request a few levels deeper.
const DEPTH: usize = 128;

/// Decodes one answer.
pub(super) struct Decoder {
    sealing: Sealing,
    answer_context: AnswerContext,
    open: Vec<OpenItem>,
    next_key: u64,
    started: bool,
    /// Finished items.
    ended: Vec<SeenItem>,
    /// Whether an item was cut off.
    truncated: bool,
    /// Events that could not be read.
    unreadable: Unreadable,
    /// The last event, if it was a text delta.
    last: Option<LastDelta>,
}

/// A text delta: the item that it belongs to, and the template of its event.
struct LastDelta {
    template: Template,
    key: u64,
    kind: DeltaKind,
    part: Option<u64>,
}

#[derive(Debug, PartialEq, Eq)]
enum Unreadable {
    None,
    Some,
    /// Some, and the last event is one of them.
    Last,
}

impl Decoder {
    pub(super) fn new(upstream: &str, seal: Arc<dyn Seal>, answer_context: AnswerContext) -> Self {
        Self {
            sealing: Sealing::new(&answer_context, upstream, seal),
            answer_context,
            open: Vec::new(),
            next_key: 0,
            started: false,
            ended: Vec::new(),
            truncated: false,
            unreadable: Unreadable::None,
            last: None,
        }
    }

    fn event(&mut self, event: &Event<'_>, frame: &Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let whole = &frame.data;
        let Some(kind) = event.kind else { return self.unknown(event, whole, events) };
        match kind {
            EventKind::Created | EventKind::Queued | EventKind::InProgress => {
                if let Some(response) = event.response {
                    self.begin(response, events);
                }
            }
            EventKind::Keepalive => {}
            EventKind::TextDelta => self.delta(DeltaKind::Text, event, frame, events),
            EventKind::RefusalDelta => self.delta(DeltaKind::Refusal, event, frame, events),
            EventKind::SummaryTextDelta => self.delta(DeltaKind::Summary, event, frame, events),
            EventKind::ReasoningTextDelta | EventKind::ReasoningDelta => {
                self.delta(DeltaKind::Reasoning, event, frame, events)
            }
            EventKind::ArgumentsDelta => self.call_delta(CallKind::Function, event, whole, events),
            EventKind::CustomInputDelta => self.call_delta(CallKind::Custom, event, whole, events),
            EventKind::TextDone => return self.done(DeltaKind::Text, "text", event, whole, events),
            EventKind::RefusalDone => return self.done(DeltaKind::Refusal, "refusal", event, whole, events),
            EventKind::SummaryTextDone => return self.done(DeltaKind::Summary, "text", event, whole, events),
            EventKind::ReasoningTextDone | EventKind::ReasoningDone => {
                return self.done(DeltaKind::Reasoning, "text", event, whole, events);
            }
            EventKind::ArgumentsDone => return self.call_done(CallKind::Function, "arguments", event, whole, events),
            EventKind::CustomInputDone => return self.call_done(CallKind::Custom, "input", event, whole, events),
            EventKind::AnnotationAdded => {
                if let Some(annotation) = event.raw.get("annotation") {
                    let item = self.item(event, Kind::is_message, || Kind::Message(Default::default()));
                    item.annotate(event.part_index, Json::within(whole, annotation), events);
                }
            }
            EventKind::ItemAdded => {
                if let Some(item) = event.item {
                    self.item_added(event, item, whole, events);
                }
            }
            EventKind::ItemDone => {
                if let Some(item) = event.item {
                    return self.item_done(event, item, whole, events);
                }
            }
            EventKind::PartAdded | EventKind::SummaryPartAdded => {}
            EventKind::PartDone => return self.part_done(event, whole, events),
            EventKind::SummaryPartDone => {
                self.part_done(event, whole, events)?;
                if let Some(position) = self.find(event, Kind::is_reasoning) {
                    self.open[position].end_part(DeltaKind::Summary, events);
                }
            }
            // O-21: the response object is inside the event, or is the event itself.
            EventKind::Completed | EventKind::Incomplete | EventKind::Failed | EventKind::Cancelled => {
                return self.terminal(Some(kind), event.response.unwrap_or(event.raw), whole, events);
            }
            EventKind::Error => self.fail(event.raw, events),
            _ => self.progress(event, whole, events),
        }
        Ok(())
    }

    fn unknown(&mut self, event: &Event<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        // Some servers abort with a bare error object.
        if event.name.is_empty() && event.raw.get("error").is_some_and(|error| !error.is_null()) {
            self.fail(event.raw, events);
        } else if !event.name.is_empty() {
            self.progress(event, whole, events);
        }
        Ok(())
    }

    fn begin(&mut self, response: Raw<'_>, events: &mut Vec<ModelEvent>) {
        if !self.started {
            self.started = true;
            let text = |name: &str| response.get_str(name).map(|text| text.into_owned());
            events.push(ModelEvent::Begun { id: text("id"), model: text("model") });
        }
    }

    fn fail(&mut self, object: Raw<'_>, events: &mut Vec<ModelEvent>) {
        let error = object.get("error").filter(|error| !error.is_null()).unwrap_or(object);
        events.push(ModelEvent::Finish(Finish::Failed(failure::fault(error))));
    }

    // The item that an event belongs to: by its index, by its id, or the last one of a matching kind.

    fn find(&self, event: &Event<'_>, fits: fn(&Kind) -> bool) -> Option<usize> {
        let by = |test: &dyn Fn(&OpenItem) -> bool| self.open.iter().rposition(|item| fits(&item.kind) && test(item));
        let by_index = event.output_index.and_then(|index| by(&|item| item.index == Some(index)));
        let by_id = || event.item_id.and_then(|id| by(&|item| item.id.as_deref().is_some_and(|known| id.is(known))));
        // An item with another index is another item; without an index it may be any.
        let by_kind = || by(&|item| event.output_index.is_none() || item.index.is_none());
        by_index.or_else(by_id).or_else(by_kind)
    }

    fn item(&mut self, event: &Event<'_>, fits: fn(&Kind) -> bool, make: fn() -> Kind) -> &mut OpenItem {
        let position = match self.find(event, fits) {
            Some(position) => position,
            None => self.push(event.output_index, event.item_id.map(|id| id.decode().into_owned()), make()),
        };
        &mut self.open[position]
    }

    fn push(&mut self, index: Option<u64>, id: Option<String>, kind: Kind) -> usize {
        let key = self.next_key;
        self.next_key += 1;
        self.open.push(OpenItem { key, index, id, kind, phase_sent: false });
        self.open.len() - 1
    }

    fn item_added(&mut self, event: &Event<'_>, item: Raw<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let id = item.get_str("id").map(|id| id.into_owned());
        let position = self.push(event.output_index, id, Kind::of(item));
        let open = &mut self.open[position];
        match &open.kind {
            Kind::Message(_) => open.begin_message(item, events),
            Kind::Reasoning { .. } => {}
            // The arguments are repeated in deltas or at the end.
            Kind::Call { .. } => open.begin_call(item, events),
            Kind::PassThrough => events.push(ModelEvent::ItemStart { key: open.key, item: Json::within(whole, item) }),
        }
    }

    fn item_done(
        &mut self,
        event: &Event<'_>,
        item: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        let fits: fn(&Kind) -> bool = match Kind::of(item) {
            Kind::Message(_) => Kind::is_message,
            Kind::Reasoning { .. } => Kind::is_reasoning,
            Kind::Call { .. } => Kind::is_call,
            Kind::PassThrough => |kind| matches!(kind, Kind::PassThrough),
        };
        let own_id = item.get("id").and_then(Raw::as_str);
        let event = Event { item_id: event.item_id.or(own_id), ..event.clone() };
        let open = match self.find(&event, fits) {
            Some(position) => self.open.remove(position),
            None => self.begin_item(item, events),
        };
        self.ended.push(SeenItem::ended(&open, event.output_index, item, whole));
        self.end_item(open, item, whole, events)
    }

    /// Begins an item that was not announced.
    fn begin_item(&mut self, item: Raw<'_>, events: &mut Vec<ModelEvent>) -> OpenItem {
        let key = self.next_key;
        self.next_key += 1;
        let mut open = OpenItem { key, index: None, id: None, kind: Kind::of(item), phase_sent: false };
        open.begin_message(item, events);
        open
    }

    /// Handles the complete item: emits what the deltas did not contain.
    fn end_item(
        &mut self,
        mut open: OpenItem,
        item: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        self.truncated |= item.get_str("status").as_deref() == Some("incomplete");
        let logprobs = self.answer_context.wants_logprobs;
        let parts = |open: &mut OpenItem, field: &str, usual: DeltaKind, events: &mut Vec<ModelEvent>| {
            let mut list = item.get(field).map(Raw::elements).into_iter().flatten().zip(0..);
            list.try_for_each(|(part, index)| open.complete_part(usual, Some(index), part, logprobs, whole, events))
        };
        let settled = match &open.kind {
            Kind::Message(_) => {
                let settled = match item.get("content").and_then(Raw::as_str) {
                    Some(text) => open.complete(DeltaKind::Text, None, text, None, whole, events),
                    None => parts(&mut open, "content", DeltaKind::Text, events),
                };
                open.item_fields(item, events);
                events.push(ModelEvent::MessageEnd);
                settled
            }
            Kind::Reasoning { .. } => {
                let mut settled = parts(&mut open, "summary", DeltaKind::Summary, events);
                if settled.is_ok() {
                    open.end_part(DeltaKind::Summary, events);
                    settled = parts(&mut open, "content", DeltaKind::Reasoning, events);
                }
                open.item_fields(item, events);
                events.push(ModelEvent::ReasoningEnd { encrypted_content: self.sealed(&open, item) });
                settled
            }
            Kind::Call { .. } => open.end_call(item, whole, events),
            Kind::PassThrough => {
                events.push(ModelEvent::ItemEnd { key: open.key, item: Json::within(whole, item) });
                Ok(())
            }
        };
        match open.kind.is_reasoning() {
            true => self.settle_reasoning(settled),
            false => self.settle(settled),
        }
    }

    /// What the upstream needs back to recognise its reasoning: its id and encrypted content, or the reasoning itself
    /// if the upstream does not encrypt. Empty reasoning is not sealed.
    fn sealed(&self, open: &OpenItem, item: Raw<'_>) -> Option<String> {
        let encrypted = item.get("encrypted_content").and_then(Raw::as_str).filter(|content| !content.is_empty());
        if encrypted.is_none() && !open.has_reasoning_text() {
            return None;
        }
        self.sealing.close(|writer| {
            if let Some(id) = item.get("id").and_then(Raw::as_str) {
                writer.key("id").json_str(id);
            }
            match encrypted {
                Some(content) => writer.key("encrypted_content").json_str(content),
                None => open.write_reasoning_text(writer),
            }
        })
    }

    /// A text or a call whose end contradicts its deltas is an error: it is not known which of the two is right.
    fn settle(&self, settled: Result<(), TextMismatch>) -> Result<(), ModelError> {
        settled.map_err(|TextMismatch| match self.unreadable {
            Unreadable::None => contradicted(),
            _ => ModelError::Unreadable("an event with a part of the answer is not JSON".to_owned()),
        })
    }

    /// A contradiction in reasoning is ignored, unless an event was skipped: then text is missing.
    fn settle_reasoning(&self, settled: Result<(), TextMismatch>) -> Result<(), ModelError> {
        match self.unreadable {
            Unreadable::None => Ok(()),
            _ => self.settle(settled),
        }
    }

    fn progress(&mut self, event: &Event<'_>, whole: &Bytes, events: &mut Vec<ModelEvent>) {
        let about_an_item = event.output_index.is_some() || event.item_id.is_some();
        let key = match about_an_item {
            true => self.find(event, |_| true).map(|position| self.open[position].key),
            false => None,
        };
        // Events of an unknown item are ignored.
        if key.is_some() || !about_an_item {
            events.push(ModelEvent::ItemProgress { key, event: Json::within(whole, event.raw) });
        }
    }

    /// Handles the final response object: of a stream, or as a whole answer.
    fn terminal(
        &mut self,
        kind: Option<EventKind>,
        response: Raw<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        self.begin(response, events);
        self.end_items(&output_of(response), whole, events)?;
        let usage = response.get("usage").filter(|usage| usage.fields().next().is_some()).map(Usage::read);
        events.extend(usage.map(ModelEvent::Usage));
        let finish = match self.finish(kind, response)? {
            Finish::Stop if self.reached_limit(usage) => Finish::Length,
            finish => finish,
        };
        events.push(ModelEvent::Finish(finish));
        Ok(())
    }

    /// Ends items that have no end: the final object may contain the rest of the last one, and the name of a call.
    /// Items that were never announced follow.
    fn end_items(&mut self, output: &[Raw<'_>], whole: &Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let mut seen = std::mem::take(&mut self.ended);
        let open = std::mem::take(&mut self.open);
        let ended = seen.len();
        seen.extend(open.iter().map(SeenItem::of));
        let found = match_items(&seen, output);
        let told_twice = seen.iter().take(ended).zip(&found);
        let differs = |(seen, place): (&SeenItem, &Option<usize>)| {
            place.and_then(|place| output.get(place)).is_some_and(|item| seen.is_contradicted_by(*item))
        };
        if told_twice.into_iter().any(differs) {
            return Err(contradicted());
        }
        let last = open.len().saturating_sub(1);
        for ((position, mut item), place) in open.into_iter().enumerate().zip(found.iter().skip(ended)) {
            let final_item = place.and_then(|place| output.get(place)).copied();
            match (final_item, &item.kind) {
                (Some(final_item), kind) if position == last || kind.is_call() => {
                    self.end_item(item, final_item, whole, events)?;
                }
                (_, Kind::Message(_)) => events.push(ModelEvent::MessageEnd),
                (final_item, Kind::Reasoning { .. }) => {
                    let encrypted_content = self.sealed(&item, final_item.unwrap_or(Raw::EMPTY_OBJECT));
                    events.push(ModelEvent::ReasoningEnd { encrypted_content });
                }
                (_, Kind::Call { .. }) => {
                    let settled = item.end_call(Raw::NULL, whole, events);
                    self.settle(settled)?;
                }
                // The emitter closes it with what it has.
                (_, Kind::PassThrough) => {}
            }
        }
        let known: HashSet<usize> = found.into_iter().flatten().collect();
        for (_, item) in output.iter().enumerate().filter(|(place, _)| !known.contains(place)) {
            let open = self.begin_item(*item, events);
            self.end_item(open, *item, whole, events)?;
        }
        Ok(())
    }

    /// Whether the answer used all allowed tokens. Some servers (llama.cpp) report an answer that the limit cut off as
    /// completed.
    fn reached_limit(&self, usage: Option<Usage>) -> bool {
        let used = usage.map_or(0, |usage| usage.output_tokens);
        self.answer_context.max_output_tokens.is_some_and(|most| used >= most)
    }

    fn finish(&self, kind: Option<EventKind>, response: Raw<'_>) -> Result<Finish, ModelError> {
        let error = response.get("error").filter(|error| !error.is_null());
        let status = response.get_str("status");
        let status = match kind {
            Some(EventKind::Failed) => "failed",
            Some(EventKind::Cancelled) => "cancelled",
            Some(EventKind::Incomplete) => "incomplete",
            Some(_) if error.is_some() => "failed",
            Some(_) => {
                status.as_deref().filter(|status| *status == "failed" || *status == "incomplete").unwrap_or("completed")
            }
            None if error.is_some() => "failed",
            None => status.as_deref().unwrap_or("completed"),
        };
        let reason = response.get("incomplete_details").and_then(|details| details.get_str("reason"));
        Ok(match status {
            "failed" => Finish::Failed(failure::fault(error.unwrap_or(Raw::EMPTY_OBJECT))),
            "cancelled" => return Err(ModelError::CutShort),
            "queued" | "in_progress" => {
                return Err(ModelError::Unreadable(format!("a response that is still `{status}`")));
            }
            // Some report `completed` although the answer was cut off.
            _ => match reason.as_deref() {
                Some("max_output_tokens" | "max_tokens" | "length") => Finish::Length,
                Some("content_filter") => Finish::ContentFilter,
                Some(reason) => Finish::Incomplete(reason.to_owned()),
                None if status == "incomplete" || self.truncated => Finish::Length,
                None => Finish::Stop,
            },
        })
    }
}

fn contradicted() -> ModelError {
    ModelError::Unreadable("its final text contradicts what it said before".to_owned())
}

fn new_reasoning() -> Kind {
    Kind::Reasoning { summary: Default::default(), content: Default::default() }
}

impl Decode for Decoder {
    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        if frame.data.is_empty() || &*frame.data == b"[DONE]" {
            return Ok(());
        }
        if self.repeat(&frame, events) {
            return Ok(());
        }
        self.last = None;
        let mut ends = ValueIndex::default();
        let raw = match Raw::parse_large(&frame.data, DEPTH, &mut ends) {
            Ok(raw) if raw.shape() == Shape::Object => raw,
            // O-20: one unreadable event does not affect the others.
            _ => {
                self.unreadable = Unreadable::Last;
                return Ok(());
            }
        };
        if self.unreadable == Unreadable::Last {
            self.unreadable = Unreadable::Some;
        }
        let line = frame.event.as_deref().and_then(|line| std::str::from_utf8(line).ok());
        let event = Event::read(raw, line);
        self.event(&event, &frame, events)
    }

    fn end(&mut self, _events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        Err(match self.unreadable {
            Unreadable::Last => ModelError::Unreadable("the last event is not JSON".to_owned()),
            _ => ModelError::CutShort,
        })
    }

    fn whole(&mut self, body: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let unreadable = |what: &str| ModelError::Unreadable(what.to_owned());
        let mut ends = ValueIndex::default();
        let raw =
            Raw::parse_large(&body, DEPTH, &mut ends).map_err(|error| ModelError::Unreadable(error.to_string()))?;
        let is_response =
            raw.get("output").is_some_and(|output| matches!(output.shape(), Shape::Array | Shape::Object));
        let failed = raw.get("error").is_some_and(|error| !error.is_null());
        match is_response || failed {
            true => self.terminal(None, raw, &body, events),
            false => Err(unreadable("not a response object")),
        }
    }
}

/// The items of a response; some servers send a single item without a list. R004-29
fn output_of(response: Raw<'_>) -> Vec<Raw<'_>> {
    match response.get("output") {
        Some(item) if item.shape() == Shape::Object => vec![item],
        output => output.into_iter().flat_map(Raw::elements).collect(),
    }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
