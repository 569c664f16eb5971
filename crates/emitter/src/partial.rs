//! The partial answer of a cancelled model call, for counting its tokens.

use amalgam_protocol::{Item, ItemKind, Literal, Raw};

use super::{Emitter, Open, items::OpenCall};

/// An incomplete answer of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartialAnswer {
    /// Messages, refusals, and calls with their arguments.
    pub words: String,
    /// Reasoning, as far as it was shown.
    pub reasoning: String,
}

impl Emitter {
    /// The current answer so far.
    pub fn partial_answer(&self) -> PartialAnswer {
        let mut partial = PartialAnswer::default();
        self.output.iter().skip(self.round_from).for_each(|item| partial.add_item(item.raw()));
        match &self.open {
            Some(Open::Message(message)) => {
                message.parts.iter().for_each(|part| add_part(&mut partial.words, part.raw()));
                if let Some(part) = &message.part {
                    add_part(&mut partial.words, part.json().raw());
                }
            }
            Some(Open::Reasoning(reasoning)) => {
                reasoning.summaries.iter().for_each(|part| add_part(&mut partial.reasoning, part.raw()));
                add_escaped(&mut partial.reasoning, reasoning.current.as_deref().unwrap_or_default());
            }
            Some(Open::Call(call)) => partial.add_call(call),
            Some(Open::Passing { .. }) | None => {}
        }
        self.waiting.iter().for_each(|call| partial.add_call(call));
        partial
    }
}

impl PartialAnswer {
    fn add_call(&mut self, call: &OpenCall) {
        self.words.push_str(&call.name);
        add_escaped(&mut self.words, &call.text);
    }

    fn add_item(&mut self, item: Raw<'_>) {
        let Ok(item) = Item::read(item) else { return };
        match &item.kind {
            ItemKind::Message(message) => self.words.push_str(&message.content.text()),
            ItemKind::FunctionCall(call) => {
                self.words.push_str(&call.name);
                self.words.push_str(&call.arguments.decode());
            }
            ItemKind::CustomToolCall(call) => {
                self.words.push_str(&call.name);
                self.words.push_str(&call.input.decode());
            }
            ItemKind::Reasoning(reasoning) => {
                for part in reasoning.summary.0.iter().chain(&reasoning.content.0) {
                    add_part(&mut self.reasoning, part.raw);
                }
            }
            _ => {}
        }
    }
}

fn add_part(text: &mut String, part: Raw<'_>) {
    if let Some(piece) = part.get_str("text").or_else(|| part.get_str("refusal")) {
        text.push_str(&piece);
    }
}

fn add_escaped(text: &mut String, escaped: &[u8]) {
    text.push_str(&Literal::from_escaped(escaped).decode());
}
