//! Unknown fields and parts of an upstream's item: fields follow our own, parts keep their position.

use amalgam_protocol::{EventKind, Json, Writer};

use super::{Emitter, Open};
use amalgam_core::{ItemExtra, PartOwner};

impl Emitter {
    pub(super) fn extra(&mut self, extra: ItemExtra) {
        match extra {
            ItemExtra::Item { of: PartOwner::Message, fields } => {
                if let Some(Open::Message(message)) = &mut self.open {
                    message.fields = Some(fields);
                }
            }
            // A reasoning item without visible text can still have fields.
            ItemExtra::Item { of: PartOwner::Reasoning, fields } => {
                self.ensure_reasoning();
                if let Some(Open::Reasoning(reasoning)) = &mut self.open {
                    reasoning.fields = Some(fields);
                }
            }
            ItemExtra::Call { key, fields } => {
                let waiting = self.waiting.iter_mut().find(|call| call.key == key);
                let over = self.positions.calls.iter().rfind(|(called, _)| *called == key);
                match (&mut self.open, waiting, over.and_then(|(_, index)| self.output.get_mut(*index))) {
                    (Some(Open::Call(call)), ..) if call.key == key => call.fields = Some(fields),
                    (_, Some(call), _) => call.fields = Some(fields),
                    // The arguments were complete and another call has begun since: the response still includes the
                    // fields.
                    (_, None, Some(item)) => *item = with_fields(item.clone(), Some(&fields)),
                    (_, None, None) => {}
                }
            }
            ItemExtra::Part { of, index, fields } => self.part_fields(of, index, fields),
            ItemExtra::Whole { of: PartOwner::Message, part } => self.whole_part(part),
            ItemExtra::Whole { of: PartOwner::Reasoning, part } => self.whole_reasoning_part(part),
        }
    }

    /// Fields of the open part, or of a finished one, which the item still includes.
    fn part_fields(&mut self, of: PartOwner, index: usize, fields: Json) {
        let (parts, open) = match (&mut self.open, of) {
            (Some(Open::Message(message)), PartOwner::Message) => {
                (&mut message.parts, message.part.as_mut().map(|part| &mut part.fields))
            }
            (Some(Open::Reasoning(reasoning)), PartOwner::Reasoning) => {
                (&mut reasoning.summaries, reasoning.current.as_ref().map(|_| &mut reasoning.part_fields))
            }
            _ => return,
        };
        let is_next = index == parts.len();
        match (parts.get_mut(index), open) {
            (Some(part), _) => *part = with_fields(part.clone(), Some(&fields)),
            (None, Some(open)) if is_next => *open = Some(fields),
            (None, _) => {}
        }
    }

    fn whole_part(&mut self, part: Json) {
        self.ensure_message();
        self.close_part();
        let place = self.place();
        let Some(Open::Message(mut message)) = self.open.take() else { return };
        for kind in [EventKind::PartAdded, EventKind::PartDone] {
            self.event(kind, |writer| {
                message.locate(place, writer);
                writer.key("part").valid(part.bytes());
            });
        }
        message.end_part(part);
        self.open = Some(Open::Message(message));
    }

    fn whole_reasoning_part(&mut self, part: Json) {
        self.ensure_reasoning();
        self.close_summary();
        let place = self.place();
        let Some(Open::Reasoning(mut reasoning)) = self.open.take() else { return };
        for kind in [EventKind::SummaryPartAdded, EventKind::SummaryPartDone] {
            self.event(kind, |writer| {
                reasoning.locate(place, writer);
                writer.key("part").valid(part.bytes());
            });
        }
        reasoning.summaries.push(part);
        self.open = Some(Open::Reasoning(reasoning));
    }
}

/// The object, followed by the fields that it lacks.
pub(super) fn with_fields(object: Json, fields: Option<&Json>) -> Json {
    let Some(fields) = fields else { return object };
    let (own, more) = (object.raw(), fields.raw());
    let mut writer = Writer::with_capacity(own.text().len() + more.text().len());
    writer.object(|writer| {
        let more = more.fields().filter(|(key, _)| own.get(&key.decode()).is_none());
        for (key, value) in own.fields().chain(more) {
            writer.key_text(&key.decode()).raw(value);
        }
    });
    Json::from_writer(writer)
}
