//! Items of unknown kinds, which are passed on unchanged except for their position.

use amalgam_protocol::{EventKind, Json};

use super::{Emitter, Open};
use amalgam_core::Delivery;

/// Positions of items in the output, by their keys.
#[derive(Debug, Default)]
pub(super) struct OutputPositions {
    /// Finished calls.
    pub(super) calls: Vec<(u64, usize)>,
    /// Items that had not ended when another one began.
    begun: Vec<(u64, usize)>,
}

impl Emitter {
    pub(super) fn start_passing(&mut self, key: u64, item: Json) {
        self.close();
        self.item_added(|| item.clone());
        self.open = Some(Open::Passing { key, item });
    }

    pub(super) fn progress(&mut self, key: Option<u64>, event: &Json) {
        let own = matches!((&self.open, key), (Some(Open::Passing { key: open, .. }), Some(key)) if *open == key);
        let left = key.and_then(|key| self.positions.begun.iter().find(|(begun, _)| *begun == key));
        let output_index = left.map_or(self.output.len(), |(_, index)| *index) as u64;
        if self.delivery == Delivery::Whole || (key.is_some() && !own && left.is_none()) {
            return;
        }
        let sequence = self.sequence;
        let raw = event.raw();
        let name = raw.get_str("type").unwrap_or_default();
        // The event name is a line of the SSE frame: a name with a line break is invalid.
        if name.is_empty() || name.contains(['\n', '\r', '"', '\\']) {
            return;
        }
        self.frames.frame(&name, |writer| {
            writer.key("sequence_number").number(sequence);
            for (field, value) in raw.fields() {
                match &*field.decode() {
                    "type" | "sequence_number" => {}
                    "output_index" => writer.key("output_index").number(output_index),
                    other => writer.key_text(other).raw(value),
                }
            }
        });
        self.sequence += 1;
    }

    pub(super) fn end_passing(&mut self, key: u64, item: Json) {
        if let Some(left) = self.positions.begun.iter().position(|(begun, _)| *begun == key) {
            let (_, index) = self.positions.begun.remove(left);
            self.end_at(index, &item);
            if let Some(place) = self.output.get_mut(index) {
                *place = item;
            }
            return;
        }
        match &self.open {
            Some(Open::Passing { key: open, .. }) if *open == key => self.open = None,
            _ => {
                self.close();
                self.item_added(|| item.clone());
            }
        }
        self.item_done(item);
    }

    /// Another item begins before this one has ended: it keeps its position, and its end is emitted when it arrives.
    pub(super) fn leave_passing(&mut self, key: u64, item: Json) {
        self.positions.begun.push((key, self.output.len()));
        self.output.push(item);
    }

    /// The answer has ended: items without an end are ended unchanged.
    pub(super) fn end_late(&mut self) {
        for (_, index) in std::mem::take(&mut self.positions).begun {
            if let Some(item) = self.output.get(index).cloned() {
                self.end_at(index, &item);
            }
        }
    }

    fn end_at(&mut self, index: usize, item: &Json) {
        self.event(EventKind::ItemDone, |writer| {
            writer.key("output_index").number(index as u64);
            writer.key("item").valid(item.bytes());
        });
    }
}
