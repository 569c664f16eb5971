//! What a model says in one answer, as far as the server has to deal with it before it is shown.

use std::collections::VecDeque;

use amalgam_core::{CallHead, ItemExtra, ModelEvent};
use amalgam_protocol::Literal;

/// What one answer of the model asks of the server.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) calls: Vec<Called>,
    pub(super) held: VecDeque<Held>,
    /// What had begun to be shown when the first of these calls began, and may go on: its pieces come mixed.
    begun: Vec<Piece>,
    /// Whether it calls tools of the client too.
    pub(super) for_client: bool,
}

/// What has a key of its own in an answer.
#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Call(u64),
    Item(u64),
}

impl Piece {
    /// The piece that an event is about, and whether it begins there.
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

/// A call of the server's.
pub(super) struct Called {
    key: u64,
    /// Empty where the upstream has none.
    pub(super) call_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// What is shown when its turn comes.
pub(super) enum Held {
    Event(ModelEvent),
    Call(usize),
}

impl Answer {
    /// Takes what the model said; what it asks of the server, and what follows on it, is kept back. `is_ours` tells a call that
    /// is the server's to deal with.
    pub(super) fn take(&mut self, event: ModelEvent, is_ours: impl FnOnce(&CallHead) -> bool) -> Option<ModelEvent> {
        match event {
            ModelEvent::CallStart { key, call } if is_ours(&call) => {
                self.held.push_back(Held::Call(self.calls.len()));
                let CallHead { call_id, name, .. } = call;
                self.calls.push(Called { key, call_id: call_id.unwrap_or_default(), name, arguments: String::new() });
                None
            }
            ModelEvent::CallDelta { key, ref delta } if self.is_called(key) => {
                self.append(key, delta);
                None
            }
            ModelEvent::CallEnd { key } | ModelEvent::Extra(ItemExtra::Call { key, .. }) if self.is_called(key) => None,
            event => {
                self.for_client |= matches!(event, ModelEvent::CallStart { .. });
                let at_once = self.held.is_empty() || matches!(event, ModelEvent::Usage(_) | ModelEvent::Finish(_));
                if at_once || self.goes_on(&event) {
                    self.begin(&event);
                    return Some(event);
                }
                self.hold(event);
                None
            }
        }
    }

    /// Takes down what begins to be shown.
    fn begin(&mut self, event: &ModelEvent) {
        if let Some((piece, true)) = Piece::of(event) {
            self.begun.push(piece);
        }
    }

    /// Whether an event goes on with something that is being shown.
    fn goes_on(&self, event: &ModelEvent) -> bool {
        matches!(Piece::of(event), Some((piece, false)) if self.begun.contains(&piece))
    }

    /// Keeps an event back: behind what it goes on with, or at the end.
    fn hold(&mut self, event: ModelEvent) {
        let same = |held: &Held, piece| matches!(held, Held::Event(event) if Piece::of(event).is_some_and(|(other, _)| other == piece));
        let before = match Piece::of(&event) {
            Some((piece, false)) => self.held.iter().rposition(|held| same(held, piece)),
            _ => None,
        };
        self.held.insert(before.map_or(self.held.len(), |before| before + 1), Held::Event(event));
    }

    fn is_called(&self, key: u64) -> bool {
        self.calls.iter().any(|call| call.key == key)
    }

    /// Keys tell the calls of one answer apart; an upstream that uses one twice means the later call.
    fn append(&mut self, key: u64, delta: &Literal) {
        if let Some(call) = self.calls.iter_mut().rev().find(|call| call.key == key) {
            call.arguments.push_str(&delta.decode());
        }
    }
}
