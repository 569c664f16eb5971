//! Follows a stream from another connection: what is kept of it first, then what comes.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Fault, FaultKind, Scope, Store,
    store::{EventChunk, EventTail, ResponseState, StoredResponse},
};
use amalgam_protocol::{DONE, EventBatch, EventKind, Status, Writer};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use tokio::time::Instant;
use tracing::warn;

use crate::run::Engine;

/// The longest wait before the store is asked again, in case a notification was missed.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// About how many bytes of frames are taken from the store at once.
const PIECE_BYTES: usize = 256 * 1024;

/// So many events come before anything that the model says.
const FIRST_WORDS: u64 = 2;

/// How often the store may fail in a row before a follower gives up.
const PATIENCE: u32 = 30;

impl Engine {
    /// The frames of a response after a sequence number, all of them for none, until its end. `tail` is what the store has
    /// said first, so that a response which is not there is told before a stream begins.
    pub fn follow(
        &self,
        scope: Scope,
        tail: EventTail,
        after: Option<u64>,
    ) -> impl Stream<Item = EventBatch> + Send + use<> {
        let follower = Follower {
            store: Arc::clone(&self.running.store),
            scope,
            next: after.map_or(0, |after| after.saturating_add(1)),
            response: tail.response.clone(),
            tail: Some(tail),
            failures: 0,
            keepalive: self.settings.keepalive,
            head_after: self.settings.head_after,
            began_at: Instant::now(),
            said_at: Instant::now(),
            over: false,
        };
        stream::unfold(follower, |mut follower| async move { follower.piece().await.map(|piece| (piece, follower)) })
    }
}

/// What the store has of a stream after a sequence number, to begin with.
pub async fn look(store: &dyn Store, scope: &Scope, id: &str, after: Option<u64>) -> Result<Option<EventTail>, Fault> {
    Ok(store.events(scope, id, after, PIECE_BYTES).await?)
}

struct Follower {
    store: Arc<dyn Store>,
    scope: Scope,
    /// The number of the next event to send.
    next: u64,
    /// The response as it was seen last.
    response: StoredResponse,
    tail: Option<EventTail>,
    /// How often the store has failed in a row.
    failures: u32,
    /// The silence after which there is a sign of life.
    keepalive: Duration,
    /// The time after which a stream whose model is silent begins all the same.
    head_after: Duration,
    began_at: Instant,
    /// When something was sent last.
    said_at: Instant,
    over: bool,
}

impl Follower {
    async fn piece(&mut self) -> Option<EventBatch> {
        if self.over {
            return None;
        }
        let piece = self.next_piece().await;
        self.said_at = Instant::now();
        Some(EventBatch::from_frames(piece))
    }

    async fn next_piece(&mut self) -> Bytes {
        loop {
            // Registered before the store is asked: a change in between would be missed otherwise.
            let changed = self.store.changed(&self.response.id);
            let tail = match self.tail.take() {
                Some(tail) => tail,
                None => match look(&*self.store, &self.scope, &self.response.id, self.next.checked_sub(1)).await {
                    Ok(Some(tail)) => tail,
                    // Deleted while it was followed.
                    Ok(None) => return self.give_up(&Fault::new(FaultKind::NotFound, "The response was deleted.")),
                    Err(fault) => {
                        self.failures += 1;
                        if self.failures > PATIENCE {
                            let id = &self.response.id;
                            warn!(response.id = id, detail = fault.detail, "a stream can not be followed: {fault}");
                            return self.give_up(&fault);
                        }
                        tokio::time::sleep(LOOK_AGAIN).await;
                        if self.is_silent() {
                            return self.sign_of_life();
                        }
                        continue;
                    }
                },
            };
            self.failures = 0;
            let frames = self.take(&tail.chunks);
            if !frames.is_empty() {
                self.response = tail.response;
                return frames.into();
            }
            if tail.response.status.status.is_final() {
                self.over = true;
                return self.end(&tail);
            }
            self.response = tail.response;
            let waits = self.response.status.status == Status::Queued;
            let begins = !waits && self.next < FIRST_WORDS;
            if begins && self.began_at.elapsed() >= self.head_after {
                return self.first_words();
            }
            let patience = if begins { LOOK_AGAIN.min(self.head_after) } else { LOOK_AGAIN.min(self.keepalive) };
            let _ = tokio::time::timeout(patience, changed).await;
            if self.is_silent() {
                return self.sign_of_life();
            }
        }
    }

    /// Whether a sign of life is due. Once its model speaks, a turn gives its own, which come here a little later.
    fn is_silent(&self) -> bool {
        let given_here = match self.response.status.status {
            Status::Queued => self.keepalive,
            _ => self.keepalive + LOOK_AGAIN,
        };
        self.said_at.elapsed() >= given_here
    }

    /// How a stream begins whose model has not said anything. They are the events that the turn itself begins with.
    fn first_words(&mut self) -> Bytes {
        let words = Bytes::copy_from_slice(behind(&self.response.all_frames(), self.next));
        self.next = FIRST_WORDS;
        words
    }

    /// A sign of life that is this stream's own. The numbers are the response's, and those behind the last event are for
    /// what is to come: so it has the number of the last event, behind which the stream is taken up again.
    fn sign_of_life(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.frame(EventKind::Keepalive.name(), |writer| {
            writer.key("sequence_number").number(self.next.saturating_sub(1));
        });
        writer.into_bytes().into()
    }

    /// The last frames of a stream whose end cannot be read from the store.
    fn give_up(&mut self, fault: &Fault) -> Bytes {
        self.over = true;
        let error = Some(fault.response_error());
        let status =
            ResponseState { status: Status::Failed, error, completed_at_ms: None, ..self.response.status.clone() };
        let failed = StoredResponse { status, ..self.response.clone() };
        match self.next < FIRST_WORDS {
            true => Bytes::copy_from_slice(behind(&failed.all_frames(), self.next)),
            false => failed.final_frames(self.next).into(),
        }
    }

    /// Everything from the next number on.
    fn take(&mut self, chunks: &[EventChunk]) -> Vec<u8> {
        let mut taken = Vec::new();
        for chunk in chunks {
            if chunk.last < self.next {
                continue;
            }
            let skipped = self.next.saturating_sub(chunk.first);
            taken.extend_from_slice(behind(&chunk.frames, skipped));
            self.next = chunk.last + 1;
        }
        taken
    }

    /// The last frames. A stream that ended by itself has all of its frames in the store, so a caller that asks for what
    /// is behind them has seen the end. One that was ended from outside may have lost some that its caller has seen.
    fn end(&self, tail: &EventTail) -> Bytes {
        let by_itself = matches!(tail.response.status.status, Status::Completed | Status::Incomplete);
        match by_itself && tail.last.is_none_or(|last| self.next > last + 1) {
            true => Bytes::from_static(DONE),
            // Its process died before anything was written: a caller that asks for all of it gets a stream with a beginning.
            false if tail.last.is_none() && self.next < FIRST_WORDS => {
                Bytes::copy_from_slice(behind(&tail.response.all_frames(), self.next))
            }
            false => tail.response.final_frames(self.next).into(),
        }
    }
}

/// What follows the first `count` frames.
fn behind(frames: &[u8], count: u64) -> &[u8] {
    let mut rest = frames;
    for _ in 0..count {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") else { return &[] };
        rest = rest.get(end + 2..).unwrap_or_default();
    }
    rest
}
