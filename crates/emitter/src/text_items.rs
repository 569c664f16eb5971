//! Open messages and reasoning items: their parts and deltas.

use amalgam_protocol::{EventKind, Json, Literal};

use super::{
    Emitter, Open,
    extra::with_fields,
    items::{OpenMessage, OpenPart, OpenReasoning, summary_part},
};
use amalgam_core::{Delivery, IdKind};

impl Emitter {
    pub(super) fn open_message(&mut self, phase: Option<String>) {
        let message = OpenMessage::new(self.ids.make(IdKind::Message), phase);
        self.item_added(|| message.item("in_progress"));
        self.open = Some(Open::Message(message));
    }

    /// Emits text unchanged.
    pub(super) fn say(&mut self, delta: &Literal, logprobs: Option<&Json>) {
        if delta.is_empty() {
            return;
        }
        if !matches!(&self.open, Some(Open::Message(message)) if message.takes_text()) {
            self.ensure_part(OpenPart::text);
        }
        let place = self.place();
        let Some(Open::Message(message)) = &mut self.open else { return };
        message.append(delta, logprobs);
        if self.delivery == Delivery::Stream {
            let located = message.located(place);
            self.frames.text_delta(self.sequence, located, delta, logprobs.map(|list| &list.bytes()[..]));
            self.sequence += 1;
        }
    }

    pub(super) fn refusal(&mut self, delta: &Literal) {
        if delta.is_empty() {
            return;
        }
        self.ensure_part(OpenPart::refusal);
        let place = self.place();
        let Some(Open::Message(mut message)) = self.open.take() else { return };
        message.append(delta, None);
        self.event(EventKind::RefusalDelta, |writer| {
            message.locate(place, writer);
            writer.key("delta").literal(delta);
        });
        self.open = Some(Open::Message(message));
    }

    pub(super) fn annotation(&mut self, annotation: Json) {
        self.ensure_part(OpenPart::text);
        let place = self.place();
        let Some(Open::Message(mut message)) = self.open.take() else { return };
        let index = message.annotate(annotation.clone());
        self.event(EventKind::AnnotationAdded, |writer| {
            message.locate(place, writer);
            writer.key("annotation_index").number(index);
            writer.key("annotation").valid(annotation.bytes());
        });
        self.open = Some(Open::Message(message));
    }

    /// Opens a message if none is open.
    pub(super) fn ensure_message(&mut self) {
        if !matches!(&self.open, Some(Open::Message(message)) if !message.ended) {
            self.close();
            self.open_message(None);
        }
    }

    /// Opens a message and a part of this kind if none is open.
    pub(super) fn ensure_part(&mut self, part: fn() -> OpenPart) {
        self.ensure_message();
        let other = |message: &OpenMessage| message.part.as_ref().is_some_and(|open| !open.is_like(&part()));
        if matches!(&self.open, Some(Open::Message(message)) if other(message)) {
            self.close_part();
        }
        let place = self.place();
        let Some(Open::Message(mut message)) = self.open.take() else { return };
        if message.part.is_none() {
            message.part = Some(part());
            self.event(EventKind::PartAdded, |writer| {
                message.locate(place, writer);
                writer.key("part").valid(part().json().bytes());
            });
        }
        self.open = Some(Open::Message(message));
    }

    pub(super) fn close_part(&mut self) {
        self.release();
        let place = self.place();
        let Some(open) = self.open.take() else { return };
        let Open::Message(mut message) = open else { return self.open = Some(open) };
        if let Some(part) = message.part.take() {
            let kind = if part.is_refusal() { EventKind::RefusalDone } else { EventKind::TextDone };
            self.event(kind, |writer| {
                message.locate(place, writer);
                part.write_done(writer);
            });
            let json = part.json();
            self.event(EventKind::PartDone, |writer| {
                message.locate(place, writer);
                writer.key("part").valid(json.bytes());
            });
            message.end_part(json);
        }
        self.open = Some(Open::Message(message));
    }

    pub(super) fn summary(&mut self, delta: &Literal) {
        if delta.is_empty() {
            return;
        }
        self.ensure_reasoning();
        let place = self.place();
        let Some(Open::Reasoning(mut reasoning)) = self.open.take() else { return };
        if reasoning.current.is_none() {
            reasoning.current = Some(Vec::new());
            self.event(EventKind::SummaryPartAdded, |writer| {
                reasoning.locate(place, writer);
                writer.key("part").valid(br#"{"type":"summary_text","text":""}"#);
            });
        }
        if let Some(current) = &mut reasoning.current {
            current.extend_from_slice(delta.escaped());
        }
        self.event(EventKind::SummaryTextDelta, |writer| {
            reasoning.locate(place, writer);
            writer.key("delta").literal(delta);
        });
        self.open = Some(Open::Reasoning(reasoning));
    }

    pub(super) fn ensure_reasoning(&mut self) {
        if !matches!(self.open, Some(Open::Reasoning(_))) {
            self.close();
            let reasoning = OpenReasoning::new(self.ids.make(IdKind::Reasoning));
            self.item_added(|| reasoning.item());
            self.open = Some(Open::Reasoning(reasoning));
        }
    }

    pub(super) fn close_summary(&mut self) {
        let place = self.place();
        let Some(open) = self.open.take() else { return };
        let Open::Reasoning(mut reasoning) = open else { return self.open = Some(open) };
        if let Some(text) = reasoning.current.take() {
            self.event(EventKind::SummaryTextDone, |writer| {
                reasoning.locate(place, writer);
                writer.key("text").escaped(&[&text]);
            });
            let part = with_fields(summary_part(&text), reasoning.part_fields.take().as_ref());
            self.event(EventKind::SummaryPartDone, |writer| {
                reasoning.locate(place, writer);
                writer.key("part").valid(part.bytes());
            });
            reasoning.summaries.push(part);
        }
        self.open = Some(Open::Reasoning(reasoning));
    }

    pub(super) fn end_reasoning(&mut self, encrypted_content: Option<String>) {
        if encrypted_content.is_some() {
            self.ensure_reasoning();
        }
        if let Some(Open::Reasoning(reasoning)) = &mut self.open {
            reasoning.encrypted_content = encrypted_content;
            self.close();
        }
    }
}
