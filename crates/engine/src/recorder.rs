//! Writes a turn to the store: its beginning, its frames, its end. Each is stored before the caller receives it.

mod endings;

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{
    BoxFuture, Scope, ServerCall, SessionTurn, StoreError, StoredPart, TurnEnd,
    store::{
        Answer, Approval, Begin, Ending, EventChunk, IdempotencyKey, ResponseState, ToolRun, TurnWrite, WriteOutcome,
    },
};
use amalgam_protocol::Status;
use bytes::Bytes;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    call_record::CallRecord,
    limiter::SettledByWrite,
    partial_usage::UncountedCall,
    run::cancellation,
    running_turns::RunningTurns,
    turn_meter::{MeteredEnd, TurnMeter},
};

pub(crate) use endings::{cancelled, ending, failed, failed_by, interrupted};

/// Frames are written to the store when they have this size, even before `flush_after`.
const CHUNK_BYTES: usize = 32 * 1024;

/// Pauses between attempts of a write that the turn depends on, while the store is unavailable.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_millis(700), Duration::from_secs(2)];

/// How a turn is stored.
#[derive(Debug, Clone)]
pub struct TurnStorage {
    /// The turn's owner.
    pub scope: Scope,
    /// The new response; `None` if it is stored already because the turn was queued.
    pub begin: Option<Box<Begin>>,
    /// The response that this one continues.
    pub previous: Option<String>,
    /// The idempotency claim that the turn's end settles.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Whether frames are stored, so that another connection can follow the stream.
    pub streamed: bool,
    /// The longest time before frames are written.
    pub flush_after: Duration,
    /// The assistant session that the turn belongs to.
    pub session: Option<Arc<dyn SessionTurn>>,
    /// Whether the last answer of the upstream is stored as it was received.
    pub raw_answer: bool,
}

/// Writes one turn to the store.
pub(crate) struct Recorder {
    running: Arc<RunningTurns>,
    scope: Scope,
    response_id: String,
    /// The beginning, until it is written.
    begin: Option<Box<Begin>>,
    previous: Option<String>,
    idempotency_key: Option<IdempotencyKey>,
    pub(crate) streamed: bool,
    pub(crate) flush_after: Duration,
    call_record: CallRecord,
    meter: TurnMeter,
    /// Tool calls that need an approval: requested with the turn's end.
    pub(crate) approvals: Vec<Approval>,
    session: Option<Arc<dyn SessionTurn>>,
    /// The calls that the server handled, for the session.
    server_calls: Vec<ServerCall>,
    /// The upstream's id of its last answer, for the session.
    provider_id: Option<String>,
    /// Frames that were sent but not written, and the sequence number of the first.
    frames: Vec<u8>,
    frames_from: u64,
    /// The sequence number after the last recorded frame.
    recorded_to: u64,
    /// The write of frames in progress.
    flushing: Option<BoxFuture<'static, Result<WriteOutcome, StoreError>>>,
    /// Becomes `true` when cancellation is requested.
    pub(crate) cancelled: watch::Receiver<bool>,
    /// Whether the end was written or handed to a task, or recording was released.
    finished: bool,
}

impl Recorder {
    pub(crate) fn new(
        running: Arc<RunningTurns>,
        response_id: String,
        storage: TurnStorage,
        call_record: CallRecord,
        meter: TurnMeter,
    ) -> Self {
        let cancelled = running.register(&response_id);
        Self {
            running,
            scope: storage.scope,
            response_id,
            begin: storage.begin,
            previous: storage.previous,
            idempotency_key: storage.idempotency_key,
            streamed: storage.streamed,
            flush_after: storage.flush_after,
            call_record,
            meter,
            approvals: Vec::new(),
            session: storage.session,
            server_calls: Vec::new(),
            provider_id: None,
            frames: Vec::new(),
            frames_from: 0,
            recorded_to: 0,
            flushing: None,
            cancelled,
            finished: false,
        }
    }

    /// Writes the beginning, or marks a queued turn as running.
    pub(crate) fn begin(&mut self) -> BoxFuture<'static, Result<WriteOutcome, StoreError>> {
        let begin = self.begin.take();
        let started = begin.is_none();
        let summary = begin.is_some().then(|| self.meter.begun());
        let writing = self.write(TurnWrite { begin, started, summary, ..self.empty_write() }, StoredPart::Begin);
        self.then_mark_begun(writing)
    }

    fn then_mark_begun(
        &self,
        writing: BoxFuture<'static, Result<WriteOutcome, StoreError>>,
    ) -> BoxFuture<'static, Result<WriteOutcome, StoreError>> {
        let (running, id) = (Arc::clone(&self.running), self.response_id.clone());
        Box::pin(async move {
            let written = writing.await?;
            running.mark_begun(&id);
            Ok(written)
        })
    }

    /// Journals tool calls that are about to run, together with the beginning if that is not written yet. What the model calls
    /// before them used is written with the settlement of their limits: a process that dies later has lost neither.
    pub(crate) fn record_intents(
        &mut self,
        tools: Vec<ToolRun>,
    ) -> BoxFuture<'static, Result<WriteOutcome, StoreError>> {
        let begin = self.begin.take();
        let summary = Some(self.meter.so_far());
        let settlements = self.call_record.take_settlements(self.running.clock.now_ms());
        let settled = settlements.clone();
        let writing =
            self.write(TurnWrite { begin, tools, summary, settlements, ..self.empty_write() }, StoredPart::Tools);
        let writing = self.then_mark_begun(writing);
        if settled.is_empty() {
            return writing;
        }
        Box::pin(SettledByWrite::new(&self.running.limiter, settled).after(writing))
    }

    /// Whether the turn belongs to an assistant session.
    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// Sets the upstream's id of its answer, which only a session stores.
    pub(crate) fn set_provider_id(&mut self, id: Option<&str>) {
        if self.has_session() {
            self.provider_id = id.map(ToOwned::to_owned);
        }
    }

    /// Adds server-run calls, which only a session stores here.
    pub(crate) fn add_calls(&mut self, calls: impl Iterator<Item = ServerCall>) {
        if self.has_session() {
            self.server_calls.extend(calls);
        }
    }

    /// A journal for the results of tool calls.
    pub(crate) fn journal(&self) -> Journal {
        Journal {
            running: Arc::clone(&self.running),
            scope: self.scope.clone(),
            template: self.empty_write(),
            call_record: self.call_record.clone(),
        }
    }

    /// Starts after frames that another process has written.
    pub(crate) fn start_at(&mut self, sequence: u64) {
        self.frames_from = sequence;
        self.recorded_to = sequence;
    }

    /// Records frames that are about to be sent; `next` is the sequence number after the last of them.
    pub(crate) fn record_frames(&mut self, frames: &[u8], next: u64) {
        if self.streamed {
            self.frames.extend_from_slice(frames);
            self.recorded_to = next;
        }
    }

    /// Leaves the claim to the request that made it: no model has accepted the turn.
    pub(crate) fn exclude_claim(&mut self) {
        self.idempotency_key = None;
    }

    /// Whether nothing is left to write.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Writes the end in a task of its own.
    pub(crate) fn end_detached(&mut self, ending: Ending, uncounted: Option<UncountedCall>) {
        let end = self.end_counted(ending, uncounted);
        self.running.tasks.spawn(async move {
            if let Err(error) = end.await {
                warn!("the end of a disconnected turn could not be written: {error}");
            }
        });
    }

    /// Writes nothing more: another process continues the turn, or it never belonged to this process.
    pub(crate) fn release(&mut self) {
        self.finished = true;
        self.running.unregister(&self.response_id);
        // The process that runs the turn instead reserves again.
        let now_ms = self.running.clock.now_ms();
        self.call_record.take(&cancellation(), now_ms);
        self.running.limiter.settle_later(self.call_record.take_metered().settlements(now_ms));
    }

    /// Writes pending frames if they are `due` or reach `CHUNK_BYTES`, one write at a time. Ready when a write has
    /// ended.
    pub(crate) fn poll_flush(
        &mut self,
        due: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<WriteOutcome, StoreError>> {
        if self.flushing.is_none() && self.has_frames() && (due || self.frames.len() >= CHUNK_BYTES) {
            let write = TurnWrite { events: self.take_chunk(), ..self.empty_write() };
            let target = self.target(StoredPart::Events);
            self.flushing = Some(Box::pin(async move { target.write_with_retries(&write.into()).await.0 }));
        }
        let Some(flushing) = &mut self.flushing else { return Poll::Pending };
        let written = std::task::ready!(flushing.as_mut().poll(context));
        self.flushing = None;
        if written.is_err() {
            self.stop_recording_frames();
        }
        Poll::Ready(written)
    }

    /// Waits for the write of frames in progress.
    pub(crate) async fn wait_for_flush(&mut self) {
        if let Some(flushing) = self.flushing.take()
            && flushing.await.is_err()
        {
            self.stop_recording_frames();
        }
    }

    /// Called when a write of frames has failed: later frames would leave a gap in the store.
    fn stop_recording_frames(&mut self) {
        self.streamed = false;
        self.frames.clear();
        self.recorded_to = self.frames_from;
    }

    fn has_frames(&self) -> bool {
        self.recorded_to > self.frames_from
    }

    /// Writes the end after the frames in progress, with retries while the store is unavailable. Dropping the future
    /// does not stop the write.
    pub(crate) fn end(&mut self, ending: Ending) -> BoxFuture<'static, Result<EndResult, StoreError>> {
        self.end_counted(ending, None)
    }

    /// Like [`Self::end`], but first estimates the usage of an interrupted call.
    pub(crate) fn end_counted(
        &mut self,
        mut ending: Ending,
        uncounted: Option<UncountedCall>,
    ) -> BoxFuture<'static, Result<EndResult, StoreError>> {
        let answered = match ending.state.status {
            Status::Completed | Status::Incomplete => Some(Answer::Stored),
            _ => None,
        };
        let flushing = self.flushing.take();
        let now_ms = self.running.clock.now_ms();
        // A call without a recorded end was interrupted.
        let mut calls = self.call_record.take(&cancellation(), now_ms);
        let (meter, mut metered) = (self.meter.clone(), self.meter.take_calls());
        let sent = self.running.bodies.share(self.previous.as_deref(), &self.response_id, &mut calls, now_ms);
        let (session, provider_id) = (self.session.take(), self.provider_id.take());
        let server_calls = std::mem::take(&mut self.server_calls);
        let write = TurnWrite {
            begin: self.begin.take(),
            events: self.take_chunk(),
            transcripts: calls,
            raw_answer: self.call_record.take_raw(),
            approvals: match answered {
                Some(_) => std::mem::take(&mut self.approvals),
                None => Vec::new(),
            },
            answer: self.idempotency_key.take().map(|idempotency_key| (idempotency_key, answered.clone())),
            ..self.empty_write()
        };
        self.finished = true;
        let target = self.target(StoredPart::End);
        self.running.tasks.run_to_completion(async move {
            if let Some(uncounted) = uncounted {
                let counted = uncounted.count().await;
                metered.add_usage(counted);
                ending.state.usage = match (ending.state.usage, counted) {
                    (Some(earlier), Some(counted)) => Some(earlier.plus(counted)),
                    (earlier, counted) => earlier.or(counted),
                };
            }
            let end = MeteredEnd {
                status: ending.state.status,
                error: ending.state.error.as_ref(),
                losses: ending.state.provenance.losses.len(),
                ended_at_ms: now_ms,
            };
            let settlements = metered.settlements(now_ms);
            let summary = Some(meter.ended(&end, metered));
            let session = session.map(|session| {
                Box::new(session.end(TurnEnd {
                    response_id: &write.response_id,
                    ending: &ending,
                    calls: &server_calls,
                    provider_id: provider_id.as_deref(),
                    now_ms,
                }))
            });
            let mut write = Arc::new(TurnWrite { session, summary, settlements, end: Some(Box::new(ending)), ..write });
            let flushed = match flushing {
                Some(flushing) => flushing.await,
                None => Ok(WriteOutcome::Kept),
            };
            let ended = match flushed {
                // A successful end needs all of its frames in the store.
                Err(error) if answered.is_some() => Err(error),
                flushed => {
                    if flushed.is_err() {
                        Arc::make_mut(&mut write).events = None;
                    }
                    target.write_end(&write).await
                }
            };
            let WriteTarget { running, scope, call_record, .. } = &target;
            match &ended {
                Ok(EndResult::Stored(_)) => running.limiter.forget_settled(&write.settlements),
                // A hold that is settled already is not counted again.
                _ => running.limiter.settle_later(write.settlements.clone()),
            }
            if let Some(summary) = write.summary.as_deref() {
                running.observer.turn_ended(summary, call_record.take_metered().spans);
            }
            match (&ended, sent) {
                (Ok(EndResult::Stored(_)), Some(sent)) => running.bodies.remember(&write.response_id, sent),
                (Ok(EndResult::Superseded(Some(_))), _) => add_unfinished(running, scope, &write).await,
                _ => {}
            }
            // If the end could not be written, housekeeping ends the turn once the store is available again.
            running.unregister(&write.response_id);
            ended
        })
    }

    fn empty_write(&self) -> TurnWrite {
        TurnWrite {
            response_id: self.response_id.clone(),
            process: self.running.process,
            begin: None,
            started: false,
            events: None,
            end: None,
            transcripts: Vec::new(),
            raw_answer: None,
            tools: Vec::new(),
            approvals: Vec::new(),
            session: None,
            summary: None,
            answer: None,
            settlements: Vec::new(),
        }
    }

    fn take_chunk(&mut self) -> Option<EventChunk> {
        if !self.has_frames() {
            return None;
        }
        let (first, last) = (self.frames_from, self.recorded_to - 1);
        self.frames_from = self.recorded_to;
        Some(EventChunk { first, last, frames: Bytes::from(std::mem::take(&mut self.frames)) })
    }

    fn write(&self, write: TurnWrite, part: StoredPart) -> BoxFuture<'static, Result<WriteOutcome, StoreError>> {
        let target = self.target(part);
        Box::pin(async move { target.write(&write.into()).await })
    }

    fn target(&self, part: StoredPart) -> WriteTarget {
        let (running, scope) = (Arc::clone(&self.running), self.scope.clone());
        WriteTarget { running, scope, call_record: self.call_record.clone(), part }
    }
}

/// Where a part of a turn is written, and where the write is recorded.
struct WriteTarget {
    running: Arc<RunningTurns>,
    scope: Scope,
    call_record: CallRecord,
    part: StoredPart,
}

/// Journals the results of one turn's tool calls.
#[derive(Clone)]
pub(crate) struct Journal {
    running: Arc<RunningTurns>,
    scope: Scope,
    template: TurnWrite,
    call_record: CallRecord,
}

impl Journal {
    /// Journals the result of one call, with retries: the call has already run.
    pub(crate) async fn result(&self, run: ToolRun) -> Result<WriteOutcome, StoreError> {
        let write = TurnWrite { tools: vec![run], ..self.template.clone() };
        let (running, scope, call_record) = (Arc::clone(&self.running), self.scope.clone(), self.call_record.clone());
        let target = WriteTarget { running, scope, call_record, part: StoredPart::Tools };
        target.write_with_retries(&write.into()).await.0
    }
}

/// The result of writing an end.
#[derive(Debug)]
pub(crate) enum EndResult {
    /// The end is stored, as this write.
    Stored(Arc<TurnWrite>),
    /// The response has ended before, in this state if it could be read; or it no longer belongs to this process.
    Superseded(Option<Box<ResponseState>>),
}

impl WriteTarget {
    async fn write(&self, write: &Arc<TurnWrite>) -> Result<WriteOutcome, StoreError> {
        self.running.write(&self.scope, Arc::clone(write), self.part, &self.call_record).await
    }

    /// Writes with retries while the store is unavailable. The flag says whether a failed attempt may have been committed.
    async fn write_with_retries(&self, write: &Arc<TurnWrite>) -> (Result<WriteOutcome, StoreError>, bool) {
        let mut pauses = PAUSES.iter();
        let mut uncertain = false;
        loop {
            match self.write(write).await {
                Err(error @ (StoreError::Unavailable(_) | StoreError::Busy)) => {
                    uncertain = true;
                    let Some(pause) = pauses.next() else { return (Err(error), uncertain) };
                    warn!(response.id = write.response_id, "a write of a turn is retried: {error}");
                    tokio::time::sleep(*pause).await;
                }
                done => return (done, uncertain),
            }
        }
    }

    /// Writes an end. If it is superseded, reads the state in which the response ended.
    async fn write_end(&self, write: &Arc<TurnWrite>) -> Result<EndResult, StoreError> {
        let (written, uncertain) = self.write_with_retries(write).await;
        if written? == WriteOutcome::Kept {
            return Ok(EndResult::Stored(Arc::clone(write)));
        }
        let known = self.running.store.response(&self.scope, &write.response_id).await;
        let stored = match known {
            Ok(response) => response.map(|response| Box::new(response.status)).filter(|state| state.status.is_final()),
            Err(error) if uncertain => return Err(error),
            Err(_) => None,
        };
        // Compared with its error, because the other end may also be a failure.
        let ours = write.end.as_ref().map(|end| (end.state.status, &end.state.error));
        Ok(match uncertain && stored.is_some() && stored.as_ref().map(|state| (state.status, &state.error)) == ours {
            true => EndResult::Stored(Arc::clone(write)),
            false => EndResult::Superseded(stored),
        })
    }
}

/// Stores the output of a turn that was ended from outside, such as by its owner.
async fn add_unfinished(running: &RunningTurns, scope: &Scope, write: &Arc<TurnWrite>) {
    if let Err(error) = running.store.add_unfinished(scope, Arc::clone(write)).await {
        warn!(response.id = write.response_id, "the output of an ended turn could not be written: {error}");
    }
}

impl Drop for Recorder {
    /// A caller that disconnects cancels its turn.
    fn drop(&mut self) {
        if !self.finished {
            self.end_detached(cancelled(), None);
        }
    }
}
