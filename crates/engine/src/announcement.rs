//! Signals to a wire that the caller of a stream may receive the response head, before any model has accepted.
//!
//! Until then a failure is an HTTP error. Two conditions come first: the beginning of a stored turn is in the store,
//! and in strict mode the translation has no losses.

use std::sync::{Mutex, PoisonError};

use amalgam_protocol::ResponseSettings;
use tokio::sync::oneshot;

use crate::engine::Identity;

/// The facts for the head of a stream and its first events.
#[derive(Debug, Clone)]
pub struct StreamHead {
    /// The response's id and creation time.
    pub identity: Identity,
    /// The parameters of the request that the response object repeats.
    pub settings: ResponseSettings,
    /// Whether the response is stored, so that another connection can follow it.
    pub stored: bool,
}

/// The engine's side of the announcement. It sends at most once.
#[derive(Debug)]
pub struct Announcement(Mutex<State>);

#[derive(Debug)]
struct State {
    head: Option<StreamHead>,
    translated: bool,
    sender: Option<oneshot::Sender<StreamHead>>,
}

impl Announcement {
    /// An announcement and the wire's receiver. With `strict`, it waits for the translation.
    pub fn new(strict: bool) -> (Self, oneshot::Receiver<StreamHead>) {
        let (sender, head) = oneshot::channel();
        (Self(Mutex::new(State { head: None, translated: !strict, sender: Some(sender) })), head)
    }

    /// The beginning is in the store, or the turn is not stored.
    pub(crate) fn stored(&self, head: StreamHead) {
        self.change(|state| state.head = Some(head));
    }

    /// The request was translated without a loss that strict mode refuses.
    pub(crate) fn translated(&self) {
        self.change(|state| state.translated = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if state.translated
            && let Some(head) = state.head.take()
            && let Some(sender) = state.sender.take()
        {
            // The send fails only if the wire has its answer already.
            let _ = sender.send(head);
        }
    }
}
