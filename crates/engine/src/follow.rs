//! Follows a stream from another connection: what is kept of it first, then what comes.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Fault, Scope, Store,
    store::{EventChunk, EventTail},
};
use amalgam_protocol::{DONE, Status};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use tracing::warn;

/// The longest wait before the store is asked again, in case nobody rang.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// About how many bytes of frames are taken from the store at once.
const PIECE_BYTES: usize = 256 * 1024;

/// So many events come before anything that the model says.
const FIRST_WORDS: u64 = 2;

/// How often the store may fail in a row before a follower gives up.
const PATIENCE: u32 = 30;

/// The frames of a response after a sequence number, all of them for none, until its end. `tail` is what the store has
/// said first, so that a response which is not there is told before a stream begins.
pub fn follow(
    store: Arc<dyn Store>,
    scope: Scope,
    tail: EventTail,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send {
    let next = after.map_or(0, |after| after.saturating_add(1));
    let follower = Follower { id: tail.response.id.clone(), store, scope, next, tail: Some(tail), over: false };
    stream::unfold(follower, |mut follower| async move { follower.piece().await.map(|piece| (piece, follower)) })
}

/// What the store has of a stream after a sequence number, to begin with.
pub async fn look(store: &dyn Store, scope: &Scope, id: &str, after: Option<u64>) -> Result<Option<EventTail>, Fault> {
    Ok(store.events(scope, id, after, PIECE_BYTES).await?)
}

struct Follower {
    id: String,
    store: Arc<dyn Store>,
    scope: Scope,
    /// The number of the next event to send.
    next: u64,
    tail: Option<EventTail>,
    over: bool,
}

impl Follower {
    async fn piece(&mut self) -> Option<Bytes> {
        let mut failures = 0;
        loop {
            if self.over {
                return None;
            }
            // Whoever registers after looking could miss what happens in between.
            let changed = self.store.changed(&self.id);
            let tail = match self.tail.take() {
                Some(tail) => tail,
                None => match look(&*self.store, &self.scope, &self.id, self.next.checked_sub(1)).await {
                    Ok(Some(tail)) => tail,
                    // Deleted while it was followed.
                    Ok(None) => return None,
                    Err(fault) => {
                        failures += 1;
                        if failures > PATIENCE {
                            warn!(
                                response.id = self.id,
                                detail = fault.detail,
                                "a stream can not be followed: {fault}"
                            );
                            return None;
                        }
                        tokio::time::sleep(LOOK_AGAIN).await;
                        continue;
                    }
                },
            };
            failures = 0;
            let frames = self.take(&tail.chunks);
            if !frames.is_empty() {
                return Some(frames.into());
            }
            if tail.response.status.status.is_final() {
                self.over = true;
                return Some(self.end(&tail));
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, changed).await;
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
            // Its process died before anything was written: whoever comes for all of it gets a stream with a beginning.
            false if tail.last.is_none() && self.next < FIRST_WORDS => {
                Bytes::copy_from_slice(behind(&tail.response.all_words(), self.next))
            }
            false => tail.response.last_words(self.next).into(),
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
