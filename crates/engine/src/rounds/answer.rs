//! Separates one answer of the model into events that are emitted at once and server-run calls that are held.

use std::collections::VecDeque;

use amalgam_core::{CallHead, ItemExtra, ModelEvent};
use amalgam_protocol::Literal;

/// The server-run calls of one answer, and the output that waits for them.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) calls: Vec<PendingCall>,
    pub(super) held: VecDeque<HeldOutput>,
    /// Items that were being emitted when the first server-run call began. Their later events are emitted at once,
    /// because an upstream may interleave items.
    shown: Vec<Piece>,
    /// Whether the answer also calls client-run tools.
    pub(super) calls_client_tools: bool,
}

/// The key of a call or an item in an answer.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Call(u64),
    Item(u64),
}

impl Piece {
    /// The key that an event belongs to, and whether the event begins it.
    fn of(event: &ModelEvent) -> Option<(Self, bool)> {
        match event {
            ModelEvent::CallStart { key, .. } => Some((Self::Call(*key), true)),
            ModelEvent::CallDelta { key, .. }
            | ModelEvent::CallEnd { key }
            | ModelEvent::Extra(ItemExtra::Call { key, .. }) => Some((Self::Call(*key), false)),
            ModelEvent::ItemStart { key, .. } => Some((Self::Item(*key), true)),
            ModelEvent::ItemProgress { key: Some(key), .. } | ModelEvent::ItemEnd { key, .. } => {
                Some((Self::Item(*key), false))
            }
            _ => None,
        }
    }
}

/// A server-run call that the model asks for.
pub(super) struct PendingCall {
    key: u64,
    /// Empty if the upstream sends no id.
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// Output that is emitted when all output before it is.
pub(super) enum HeldOutput {
    Event(ModelEvent),
    Call(usize),
}

impl Answer {
    /// Returns an event that is emitted at once. Holds server-run calls, as recognised by `is_server_call`, and the
    /// events after them.
    pub(super) fn take(
        &mut self,
        event: ModelEvent,
        is_server_call: impl FnOnce(&CallHead) -> bool,
    ) -> Option<ModelEvent> {
        match event {
            ModelEvent::CallStart { key, call } if is_server_call(&call) => {
                self.held.push_back(HeldOutput::Call(self.calls.len()));
                let CallHead { call_id, name, .. } = call;
                self.calls.push(PendingCall {
                    key,
                    call_id: call_id.unwrap_or_default(),
                    name,
                    arguments: String::new(),
                });
                None
            }
            ModelEvent::CallDelta { key, ref delta } if self.is_called(key) => {
                self.append(key, delta);
                None
            }
            ModelEvent::CallEnd { key } | ModelEvent::Extra(ItemExtra::Call { key, .. }) if self.is_called(key) => None,
            event => {
                self.calls_client_tools |= matches!(event, ModelEvent::CallStart { .. });
                let at_once = self.held.is_empty() || matches!(event, ModelEvent::Usage(_) | ModelEvent::Finish(_));
                if at_once || self.continues_shown(&event) {
                    self.mark_shown(&event);
                    return Some(event);
                }
                self.hold(event);
                None
            }
        }
    }

    /// Remembers that an event begins an emitted item.
    fn mark_shown(&mut self, event: &ModelEvent) {
        if let Some((piece, true)) = Piece::of(event) {
            self.shown.push(piece);
        }
    }

    /// Whether an event continues an item that is being emitted.
    fn continues_shown(&self, event: &ModelEvent) -> bool {
        matches!(Piece::of(event), Some((piece, false)) if self.shown.contains(&piece))
    }

    /// Holds an event: after the last held event of the same item, or at the end.
    fn hold(&mut self, event: ModelEvent) {
        let same = |held: &HeldOutput, piece| matches!(held, HeldOutput::Event(event) if Piece::of(event).is_some_and(|(other, _)| other == piece));
        let before = match Piece::of(&event) {
            Some((piece, false)) => self.held.iter().rposition(|held| same(held, piece)),
            _ => None,
        };
        self.held.insert(before.map_or(self.held.len(), |before| before + 1), HeldOutput::Event(event));
    }

    fn is_called(&self, key: u64) -> bool {
        self.calls.iter().any(|call| call.key == key)
    }

    /// Appends arguments. An upstream that uses a key twice means the later call.
    fn append(&mut self, key: u64, delta: &Literal) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.key == key) {
            call.arguments.push_str(&delta.decode());
        }
    }
}
