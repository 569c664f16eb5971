//! The port through which a turn of a session adds to the session when it ends.
//!
//! The engine calls it once, for the turn's last write; what is added is a rule of the wire that has sessions.

use std::fmt;

use amalgam_protocol::{HostedItem, Item, ItemKind, Json};

use crate::{
    store::{Ending, SessionEnd},
    turn::ToolFailure,
};

/// A call that the server handled, by running a tool or by refusing to.
#[derive(Debug, Clone)]
pub struct ServerCall {
    /// The model's id for it.
    pub call_id: String,
    /// The tool's own name.
    pub name: String,
    /// The exact text that the model sent.
    pub arguments: String,
    /// The output for the model.
    pub output: Json,
    /// The error message.
    pub failure: Option<ToolFailure>,
}

/// A turn at its end.
#[derive(Debug, Clone, Copy)]
pub struct TurnEnd<'a> {
    /// `resp_…`
    pub response_id: &'a str,
    /// The response's end, as it is stored.
    pub ending: &'a Ending,
    /// The calls that the server handled, in order.
    pub calls: &'a [ServerCall],
    /// The upstream's own id of its last answer.
    pub provider_id: Option<&'a str>,
    /// The time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// A turn of a session.
pub trait SessionTurn: fmt::Debug + Send + Sync {
    /// What the turn adds to its session when it ends.
    fn end(&self, turn: TurnEnd<'_>) -> SessionEnd;
}

/// The text that the model generated after its last server-run call, without the text before it. C-21
pub fn answer_text(output: &Json) -> String {
    let mut texts: Vec<String> = Vec::new();
    for item in output.raw().elements() {
        let Ok(item) = Item::read(item) else { continue };
        match &item.kind {
            ItemKind::Hosted(HostedItem::McpCall | HostedItem::FileSearchCall) => texts.clear(),
            ItemKind::Message(message) => texts.push(message.content.text().trim().to_owned()),
            _ => {}
        }
    }
    texts.retain(|text| !text.is_empty());
    texts.join("\n\n")
}
