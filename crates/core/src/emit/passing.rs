//! Items that pass along as they are: only their place is ours.

use amalgam_protocol::Json;

use super::{Emitter, Open};
use crate::model::Delivery;

impl Emitter {
    pub(super) fn start_passing(&mut self, key: u64, item: Json) {
        self.close();
        self.item_added(|| item.clone());
        self.open = Some(Open::Passing { key, item });
    }

    pub(super) fn progress(&mut self, key: Option<u64>, event: &Json) {
        let own = matches!((&self.open, key), (Some(Open::Passing { key: open, .. }), Some(key)) if *open == key);
        if self.delivery == Delivery::Whole || (key.is_some() && !own) {
            return;
        }
        let sequence = self.sequence;
        let output_index = self.output.len() as u64;
        let raw = event.raw();
        let name = raw.get_str("type").unwrap_or_default();
        // The name goes into a line of its own: one that holds a line end is no name.
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
        match &self.open {
            Some(Open::Passing { key: open, .. }) if *open == key => self.open = None,
            _ => {
                self.close();
                self.item_added(|| item.clone());
            }
        }
        self.item_done(item);
    }
}
