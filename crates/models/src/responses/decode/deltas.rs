//! Handles text, reasoning and arguments, from deltas or from the events that end them.

use amalgam_core::{CallKind, ModelError, ModelEvent};
use amalgam_protocol::{Event, EventKind, Frame, Json, Literal, Raw};
use bytes::Bytes;

use crate::template::Template;

use super::{
    super::open::{DeltaKind, Kind, OpenItem},
    Decoder, LastDelta, new_reasoning,
};

impl Decoder {
    pub(super) fn delta(&mut self, kind: DeltaKind, event: &Event<'_>, frame: &Frame, events: &mut Vec<ModelEvent>) {
        let whole = &frame.data;
        let Some(delta) = event.delta.filter(|delta| !delta.is_empty()) else { return };
        let logprobs = self.logprobs(event.raw, whole);
        let item = self.text_item(kind, event);
        item.push_text(kind, event.part_index, Literal::within(whole, delta), logprobs, events);
        let key = item.key;
        self.last = match self.answer_context.wants_logprobs {
            true => None,
            false => {
                Template::of(frame, delta).map(|template| LastDelta { template, key, kind, part: event.part_index })
            }
        };
    }

    /// The message or reasoning item that an event belongs to.
    pub(super) fn text_item(&mut self, kind: DeltaKind, event: &Event<'_>) -> &mut OpenItem {
        match kind {
            DeltaKind::Text | DeltaKind::Refusal => {
                self.item(event, Kind::is_message, || Kind::Message(Default::default()))
            }
            DeltaKind::Summary | DeltaKind::Reasoning => self.item(event, Kind::is_reasoning, new_reasoning),
        }
    }

    /// Handles a delta with the same template as the last one; `false` if it is anything else.
    pub(super) fn repeat(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) -> bool {
        let Some(last) = &self.last else { return false };
        let Some(item) = self.open.iter_mut().find(|item| item.key == last.key) else { return false };
        let Some(delta) = last.template.fill(frame) else { return false };
        if !delta.is_empty() {
            item.push_text(last.kind, last.part, delta, None, events);
        }
        true
    }

    /// Only if the client asked for them: reading them costs more than the rest of a delta.
    pub(super) fn logprobs(&self, raw: Raw<'_>, whole: &Bytes) -> Option<Json> {
        if !self.answer_context.wants_logprobs {
            return None;
        }
        let list = raw.get("logprobs").filter(|list| list.elements().next().is_some())?;
        Some(Json::within(whole, list))
    }

    pub(super) fn done(
        &mut self,
        kind: DeltaKind,
        field: &str,
        event: &Event<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        let Some(full) = event.raw.get(field).and_then(Raw::as_str) else { return Ok(()) };
        let logprobs = self.logprobs(event.raw, whole);
        let item = self.text_item(kind, event);
        let settled = item.complete(kind, event.part_index, full, logprobs, whole, events);
        self.settle(settled)
    }

    pub(super) fn part_done(
        &mut self,
        event: &Event<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        let Some(part) = event.part else { return Ok(()) };
        let Some(position) = self.find(event, |kind| kind.is_message() || kind.is_reasoning()) else { return Ok(()) };
        let logprobs = self.answer_context.wants_logprobs;
        let open = &mut self.open[position];
        let usual = match event.kind {
            Some(EventKind::SummaryPartDone) => DeltaKind::Summary,
            _ if open.kind.is_reasoning() => DeltaKind::Reasoning,
            _ => DeltaKind::Text,
        };
        let settled = open.complete_part(usual, event.part_index, part, logprobs, whole, events);
        self.settle(settled)
    }

    pub(super) fn call_delta(
        &mut self,
        kind: CallKind,
        event: &Event<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) {
        let Some(delta) = event.delta.filter(|delta| !delta.is_empty()) else { return };
        self.call(kind, event).call_delta(Literal::within(whole, delta), events);
    }

    pub(super) fn call_done(
        &mut self,
        kind: CallKind,
        field: &str,
        event: &Event<'_>,
        whole: &Bytes,
        events: &mut Vec<ModelEvent>,
    ) -> Result<(), ModelError> {
        let Some(full) = event.raw.get(field).and_then(Raw::as_str) else { return Ok(()) };
        let settled = self.call(kind, event).complete_call(full, whole, events);
        self.settle(settled)
    }

    pub(super) fn call(&mut self, kind: CallKind, event: &Event<'_>) -> &mut OpenItem {
        self.item(
            event,
            Kind::is_call,
            match kind {
                CallKind::Custom => || Kind::call(CallKind::Custom),
                _ => || Kind::call(CallKind::Function),
            },
        )
    }
}
