//! Follows a stream from another connection: first the stored frames, then new ones as they are stored.

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

use crate::engine::Engine;

/// The longest wait between reads of the store, in case a notification is missed.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The approximate number of bytes that one read returns.
const READ_BYTES: usize = 256 * 1024;

/// The number of events before a model's first output.
const FIRST_EVENTS: u64 = 2;

/// How often in a row the store may fail before the stream fails.
const MAX_FAILURES: u32 = 30;

impl Engine {
    /// Streams the frames of a response after a sequence number (`None`: from the beginning) until its end. The caller
    /// reads `tail` first, so that a missing response is an error and not a stream.
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
            sent_at: Instant::now(),
            finished: false,
        };
        stream::unfold(
            follower,
            |mut follower| async move { follower.next_batch().await.map(|batch| (batch, follower)) },
        )
    }
}

/// Reads the stored events of a response after a sequence number.
pub async fn read_tail(
    store: &dyn Store,
    scope: &Scope,
    id: &str,
    after: Option<u64>,
) -> Result<Option<EventTail>, Fault> {
    Ok(store.events(scope, id, after, READ_BYTES).await?)
}

struct Follower {
    store: Arc<dyn Store>,
    scope: Scope,
    /// The sequence number of the next event to send.
    next: u64,
    /// The response as last read.
    response: StoredResponse,
    tail: Option<EventTail>,
    /// Failures of the store in a row.
    failures: u32,
    /// The silence after which a keepalive event is sent.
    keepalive: Duration,
    /// The time after which the first events are sent even if the model has produced nothing.
    head_after: Duration,
    began_at: Instant,
    /// When the last batch was sent.
    sent_at: Instant,
    finished: bool,
}

impl Follower {
    async fn next_batch(&mut self) -> Option<EventBatch> {
        if self.finished {
            return None;
        }
        let frames = self.next_frames().await;
        self.sent_at = Instant::now();
        Some(EventBatch::from_frames(frames))
    }

    async fn next_frames(&mut self) -> Bytes {
        loop {
            // Registered before the read, so that no change in between is missed.
            let changed = self.store.changed(&self.response.id);
            let tail = match self.tail.take() {
                Some(tail) => tail,
                None => match read_tail(&*self.store, &self.scope, &self.response.id, self.next.checked_sub(1)).await {
                    Ok(Some(tail)) => tail,
                    // Deleted while it was followed.
                    Ok(None) => return self.give_up(&Fault::new(FaultKind::NotFound, "The response was deleted.")),
                    Err(fault) => {
                        self.failures += 1;
                        if self.failures > MAX_FAILURES {
                            let id = &self.response.id;
                            warn!(response.id = id, detail = fault.detail, "a stream cannot be followed: {fault}");
                            return self.give_up(&fault);
                        }
                        tokio::time::sleep(POLL_INTERVAL).await;
                        if self.is_keepalive_due() {
                            return self.keepalive_frame();
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
                self.finished = true;
                return self.end(&tail);
            }
            self.response = tail.response;
            let waits = self.response.status.status == Status::Queued;
            let begins = !waits && self.next < FIRST_EVENTS;
            if begins && self.began_at.elapsed() >= self.head_after {
                return self.first_events();
            }
            let patience = if begins { POLL_INTERVAL.min(self.head_after) } else { POLL_INTERVAL.min(self.keepalive) };
            let _ = tokio::time::timeout(patience, changed).await;
            if self.is_keepalive_due() {
                return self.keepalive_frame();
            }
        }
    }

    /// Whether a keepalive event is due. A running turn stores its own, which arrive here up to one poll later.
    fn is_keepalive_due(&self) -> bool {
        let given_here = match self.response.status.status {
            Status::Queued => self.keepalive,
            _ => self.keepalive + POLL_INTERVAL,
        };
        self.sent_at.elapsed() >= given_here
    }

    /// The first events of a turn that has produced no output. The turn itself begins with the same events.
    fn first_events(&mut self) -> Bytes {
        let frames = Bytes::copy_from_slice(skip_frames(&self.response.all_frames(), self.next));
        self.next = FIRST_EVENTS;
        frames
    }

    /// A keepalive event of this stream. It repeats the number of the last event, because the next number belongs to
    /// the turn's next event and callers resume after the number that they saw last.
    fn keepalive_frame(&self) -> Bytes {
        let mut writer = Writer::default();
        writer.frame(EventKind::Keepalive.name(), |writer| {
            writer.key("sequence_number").number(self.next.saturating_sub(1));
        });
        writer.into_bytes().into()
    }

    /// The last frames of a stream whose end cannot be read from the store.
    fn give_up(&mut self, fault: &Fault) -> Bytes {
        self.finished = true;
        let error = Some(fault.response_error());
        let status =
            ResponseState { status: Status::Failed, error, completed_at_ms: None, ..self.response.status.clone() };
        let failed = StoredResponse { status, ..self.response.clone() };
        match self.next < FIRST_EVENTS {
            true => Bytes::copy_from_slice(skip_frames(&failed.all_frames(), self.next)),
            false => failed.final_frames(self.next).into(),
        }
    }

    /// The frames from the next sequence number on.
    fn take(&mut self, chunks: &[EventChunk]) -> Vec<u8> {
        let mut taken = Vec::new();
        for chunk in chunks {
            if chunk.last < self.next {
                continue;
            }
            let skipped = self.next.saturating_sub(chunk.first);
            taken.extend_from_slice(skip_frames(&chunk.frames, skipped));
            self.next = chunk.last + 1;
        }
        taken
    }

    /// The last frames. A completed stream has all of its frames in the store, so a caller that resumes after them has
    /// seen the end. A stream that was ended from outside may lack frames that its caller has seen.
    fn end(&self, tail: &EventTail) -> Bytes {
        let by_itself = matches!(tail.response.status.status, Status::Completed | Status::Incomplete);
        match by_itself && tail.last.is_none_or(|last| self.next > last + 1) {
            true => Bytes::from_static(DONE),
            // The process died before any frame was written; a caller that reads from the beginning receives the first
            // events too.
            false if tail.last.is_none() && self.next < FIRST_EVENTS => {
                Bytes::copy_from_slice(skip_frames(&tail.response.all_frames(), self.next))
            }
            false => tail.response.final_frames(self.next).into(),
        }
    }
}

/// The frames after the first `count`.
fn skip_frames(frames: &[u8], count: u64) -> &[u8] {
    let mut rest = frames;
    for _ in 0..count {
        let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") else { return &[] };
        rest = rest.get(end + 2..).unwrap_or_default();
    }
    rest
}
