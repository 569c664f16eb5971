//! Tells a door that the caller of a stream may be shown its head, before any model has accepted.
//!
//! Until then every failure is a plain error. Two things have to be known first: the beginning of the turn is in the store,
//! if the turn is kept, and in strict mode the translation loses nothing.

use std::sync::{Mutex, PoisonError};

use amalgam_protocol::ResponseSettings;
use tokio::sync::oneshot;

use crate::run::Identity;

/// What the head of a stream and its first events need.
#[derive(Debug, Clone)]
pub struct Announced {
    /// Who the response is.
    pub identity: Identity,
    /// What the response repeats of its request.
    pub settings: ResponseSettings,
    /// Whether its beginning is in the store, so that it can be followed there.
    pub kept: bool,
}

/// The engine's end: it tells once.
#[derive(Debug)]
pub struct Announcement(Mutex<State>);

#[derive(Debug)]
struct State {
    stored: Option<Announced>,
    translated: bool,
    door: Option<oneshot::Sender<Announced>>,
}

impl Announcement {
    /// An announcement and the door's end of it. A `strict` turn is translated before it is announced.
    pub fn new(strict: bool) -> (Self, oneshot::Receiver<Announced>) {
        let (door, announced) = oneshot::channel();
        (Self(Mutex::new(State { stored: None, translated: !strict, door: Some(door) })), announced)
    }

    /// The beginning is in the store, or the turn is not kept.
    pub(crate) fn stored(&self, announced: Announced) {
        self.change(|state| state.stored = Some(announced));
    }

    /// The request was translated, and what strict mode refuses is not in it.
    pub(crate) fn translated(&self) {
        self.change(|state| state.translated = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if state.translated
            && let Some(announced) = state.stored.take()
            && let Some(door) = state.door.take()
        {
            // A door that does not listen has its answer already.
            let _ = door.send(announced);
        }
    }
}
