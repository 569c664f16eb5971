//! Checks an answer against the format that its request asks for. Not every upstream enforces it.

use std::{fmt, sync::Arc};

use amalgam_core::{AnswerCheck, Fault, Loss};
use amalgam_protocol::{Content, Item, ItemKind, Json, Raw, Shape, Status};

use crate::run::Run;

/// The format of the final text.
#[derive(Clone)]
pub enum AnswerFormat {
    /// Any JSON object.
    Object,
    /// JSON that matches a schema; the reason if the schema cannot be checked.
    Schema(Result<Arc<dyn AnswerCheck>, String>),
}

impl fmt::Debug for AnswerFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AnswerFormat")
    }
}

impl AnswerFormat {
    /// Why the text does not have the format.
    fn violation(&self, text: &str) -> Option<String> {
        match self {
            Self::Object => match Raw::parse(text.as_bytes()) {
                Ok(raw) if raw.shape() == Shape::Object => None,
                _ => Some("the answer is not a JSON object".to_owned()),
            },
            Self::Schema(Ok(schema)) => {
                schema.check_text(text).err().map(|reason| format!("the answer does not follow the schema: {reason}"))
            }
            Self::Schema(Err(reason)) => Some(format!("the answer was not checked against the schema: {reason}")),
        }
    }
}

impl Run {
    /// Reports a completed answer that violates its format as a loss; in strict mode as a fault.
    pub(crate) fn check_format(&mut self) -> Result<(), Fault> {
        let Some(format) = &self.format else { return Ok(()) };
        if self.emitter.status() != Status::Completed {
            return Ok(());
        }
        let violation = final_text(self.emitter.output()).and_then(|text| format.violation(&text));
        match violation {
            Some(violation) => self.add_loss(Loss::new("text.format", violation)),
            None => Ok(()),
        }
    }
}

/// The text of the last message; `None` if the response ends in calls or a refusal.
fn final_text(output: &[Json]) -> Option<String> {
    for item in output.iter().rev() {
        let Ok(item) = Item::read(item.raw()) else { return None };
        let content = match &item.kind {
            ItemKind::Reasoning(_) => continue,
            ItemKind::Message(message) => &message.content,
            _ => return None,
        };
        let refused = |parts: &[amalgam_protocol::Part<'_>]| {
            parts.iter().any(|part| part.raw.get_str("type").as_deref() == Some("refusal"))
        };
        return match content {
            Content::Parts(parts) if refused(parts) => None,
            content => Some(content.text().into_owned()),
        };
    }
    Some(String::new())
}
