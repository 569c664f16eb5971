//! Keeps a turn as it goes: its beginning, its frames, its end. Each is in the store before the caller hears of it.

use std::{
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{
    BoxFuture, Emitter, Scope, StoreError, array_of, no_items,
    store::{Answer, Approval, Begin, Ending, EventChunk, Keyed, ResponseState, ToolRun, TurnWrite, Written},
};
use amalgam_protocol::{ErrorObject, Provenance, Status};
use bytes::Bytes;
use tokio::sync::watch;
use tracing::warn;

use crate::{
    call_record::CallRecord,
    partial_usage::UncountedCall,
    run::lost,
    running_turns::RunningTurns,
    thread::{Aside, RanCall, Thread},
};

/// Frames are written to the store at this size even if they are young.
const CHUNK_BYTES: usize = 32 * 1024;

/// Pauses between tries to write something that a turn cannot go on without, while the store cannot be used.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_millis(700), Duration::from_secs(2)];

/// How a turn is kept.
#[derive(Debug, Clone)]
pub struct TurnStorage {
    /// Whose it is.
    pub scope: Scope,
    /// What comes into being; nothing when the response is in the store already and only runs now.
    pub begin: Option<Box<Begin>>,
    /// The response that it continues.
    pub previous: Option<String>,
    /// The claim that its end settles.
    pub keyed: Option<Keyed>,
    /// Whether its frames are kept, so that another connection can follow.
    pub streamed: bool,
    /// How old frames may become before they are written.
    pub flush_after: Duration,
    /// The thread that it speaks in.
    pub thread: Option<Box<Thread>>,
    /// Whether what the model's server sent last is kept with the response.
    pub raw_answer: bool,
}

/// Keeps one turn.
pub(crate) struct Recorder {
    running: Arc<RunningTurns>,
    scope: Scope,
    response_id: String,
    /// What was not written yet.
    begin: Option<Box<Begin>>,
    previous: Option<String>,
    keyed: Option<Keyed>,
    pub(crate) streamed: bool,
    pub(crate) flush_after: Duration,
    /// Its calls of models.
    calling: CallRecord,
    /// Tool calls that wait for an approval: requested with the end.
    pub(crate) approvals: Vec<Approval>,
    /// The thread that it speaks in.
    thread: Option<Box<Thread>>,
    /// What its thread is told beside the response.
    aside: Aside,
    /// Frames that were sent and not written, and the number of the first.
    frames: Vec<u8>,
    frames_from: u64,
    /// The number behind the last frame that was heard.
    heard_to: u64,
    /// Frames on their way to the store.
    flushing: Option<BoxFuture<'static, Result<Written, StoreError>>>,
    /// What to call when the turn is asked to end.
    pub(crate) stopped: watch::Receiver<bool>,
    /// Nothing is left to be written.
    over: bool,
}

impl Recorder {
    pub(crate) fn new(running: Arc<RunningTurns>, response_id: String, keep: TurnStorage, calling: CallRecord) -> Self {
        let stopped = running.enter(&response_id);
        Self {
            running,
            scope: keep.scope,
            response_id,
            begin: keep.begin,
            previous: keep.previous,
            keyed: keep.keyed,
            streamed: keep.streamed,
            flush_after: keep.flush_after,
            calling,
            approvals: Vec::new(),
            thread: keep.thread,
            aside: Aside::default(),
            frames: Vec::new(),
            frames_from: 0,
            heard_to: 0,
            flushing: None,
            stopped,
            over: false,
        }
    }

    /// Writes the beginning, or that a turn that waited runs now.
    pub(crate) fn begin(&mut self) -> BoxFuture<'static, Result<Written, StoreError>> {
        let begin = self.begin.take();
        let started = begin.is_none();
        let writing = self.send(TurnWrite { begin, started, ..self.nothing() });
        self.begun_with(writing)
    }

    fn begun_with(
        &self,
        writing: BoxFuture<'static, Result<Written, StoreError>>,
    ) -> BoxFuture<'static, Result<Written, StoreError>> {
        let (running, id) = (Arc::clone(&self.running), self.response_id.clone());
        Box::pin(async move {
            let written = writing.await?;
            running.begun(&id);
            Ok(written)
        })
    }

    /// Writes that calls of tools are about to run, behind the beginning if that was not written yet.
    pub(crate) fn intend(&mut self, tools: Vec<ToolRun>) -> BoxFuture<'static, Result<Written, StoreError>> {
        let begin = self.begin.take();
        let writing = self.send(TurnWrite { begin, tools, ..self.nothing() });
        self.begun_with(writing)
    }

    /// Whether the turn speaks in a thread.
    pub(crate) fn speaks(&self) -> bool {
        self.thread.is_some()
    }

    /// The upstream's own id of its answer, which only a thread wants to know.
    pub(crate) fn answered_as(&mut self, id: Option<&str>) {
        if self.speaks() {
            self.aside.provider_id = id.map(ToOwned::to_owned);
        }
    }

    /// Calls that the server has dealt with, which only a thread wants to know.
    pub(crate) fn ran(&mut self, calls: impl Iterator<Item = RanCall>) {
        if self.speaks() {
            self.aside.calls.extend(calls);
        }
    }

    /// Writes how the calls of tools went.
    pub(crate) fn journal(&self) -> Journal {
        Journal { running: Arc::clone(&self.running), scope: self.scope.clone(), nothing: self.nothing() }
    }

    /// Frames before these were written by another process.
    pub(crate) fn starts_at(&mut self, sequence: u64) {
        self.frames_from = sequence;
        self.heard_to = sequence;
    }

    /// Frames that are about to be sent; `next` is the number behind the last.
    pub(crate) fn hear(&mut self, frames: &[u8], next: u64) {
        if self.streamed {
            self.frames.extend_from_slice(frames);
            self.heard_to = next;
        }
    }

    /// The claim is settled by the request that made it: no model has accepted the turn.
    pub(crate) fn leave_claim(&mut self) {
        self.keyed = None;
    }

    /// Whether nothing is left to be written.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Writes the end of a turn that is not waited for.
    pub(crate) fn leave(&mut self, ending: Ending, uncounted: Option<UncountedCall>) {
        let end = self.end_counted(ending, uncounted);
        self.running.tasks.spawn(async move {
            if let Err(error) = end.await {
                warn!("a turn that was left could not be written: {error}");
            }
        });
    }

    /// Writes nothing more: another process continues the turn, or it was never ours.
    pub(crate) fn forget(&mut self) {
        self.over = true;
        self.running.leave(&self.response_id);
    }

    /// Writes the frames that wait if they are old enough (`due`) or many, one write at a time. Ready when a write is over.
    pub(crate) fn poll_flush(&mut self, due: bool, context: &mut Context<'_>) -> Poll<Result<Written, StoreError>> {
        if self.flushing.is_none() && self.has_frames() && (due || self.frames.len() >= CHUNK_BYTES) {
            let write = TurnWrite { events: self.chunk(), ..self.nothing() };
            let (running, scope) = (Arc::clone(&self.running), self.scope.clone());
            self.flushing = Some(Box::pin(async move { insist(&running, &scope, &write.into()).await.0 }));
        }
        let Some(flushing) = &mut self.flushing else { return Poll::Pending };
        let written = std::task::ready!(flushing.as_mut().poll(context));
        self.flushing = None;
        if written.is_err() {
            self.listen_no_more();
        }
        Poll::Ready(written)
    }

    /// Waits for frames that are on their way.
    pub(crate) async fn flushed(&mut self) {
        if let Some(flushing) = self.flushing.take()
            && flushing.await.is_err()
        {
            self.listen_no_more();
        }
    }

    /// Frames are missing in the store: those that follow would leave a gap.
    fn listen_no_more(&mut self) {
        self.streamed = false;
        self.frames.clear();
        self.heard_to = self.frames_from;
    }

    fn has_frames(&self) -> bool {
        self.heard_to > self.frames_from
    }

    /// Writes the end, behind frames that are on their way; tries again for a while if the store cannot be used. A caller that
    /// waits for it may leave: it is written all the same.
    pub(crate) fn end(&mut self, ending: Ending) -> BoxFuture<'static, Result<Ended, StoreError>> {
        self.end_counted(ending, None)
    }

    /// The same; a call that was given up is counted before.
    pub(crate) fn end_counted(
        &mut self,
        mut ending: Ending,
        uncounted: Option<UncountedCall>,
    ) -> BoxFuture<'static, Result<Ended, StoreError>> {
        let answered = match ending.told.status {
            Status::Completed | Status::Incomplete => Some(Answer::Stored),
            _ => None,
        };
        let flushing = self.flushing.take();
        let now_ms = self.running.clock.now_ms();
        // The turn that started this call has left it.
        let mut calls = self.calling.take(&lost(), now_ms);
        let sent = self.running.bodies.share(self.previous.as_deref(), &self.response_id, &mut calls, now_ms);
        let (thread, aside) = (self.thread.take(), std::mem::take(&mut self.aside));
        let write = TurnWrite {
            begin: self.begin.take(),
            events: self.chunk(),
            transcripts: calls,
            raw_answer: self.calling.take_raw(),
            approvals: match answered {
                Some(_) => std::mem::take(&mut self.approvals),
                None => Vec::new(),
            },
            answer: self.keyed.take().map(|keyed| (keyed, answered.clone())),
            ..self.nothing()
        };
        self.over = true;
        let (running, scope) = (Arc::clone(&self.running), self.scope.clone());
        self.running.tasks.see_through(async move {
            if let Some(uncounted) = uncounted {
                ending.told.usage = uncounted.add_to(ending.told.usage).await;
            }
            let session = thread.map(|thread| Box::new(thread.end(&write.response_id, &ending, &aside, now_ms)));
            let mut write = Arc::new(TurnWrite { session, end: Some(Box::new(ending)), ..write });
            let flushed = match flushing {
                Some(flushing) => flushing.await,
                None => Ok(Written::Kept),
            };
            let ended = match flushed {
                // Without all of its frames it has not ended well.
                Err(error) if answered.is_some() => Err(error),
                flushed => {
                    if flushed.is_err() {
                        Arc::make_mut(&mut write).events = None;
                    }
                    persist(&running, &scope, &write).await
                }
            };
            match (&ended, sent) {
                (Ok(Ended::Kept), Some(sent)) => running.bodies.remember(&write.response_id, sent),
                (Ok(Ended::Lost(Some(_))), _) => add_unfinished(&running, &scope, &write).await,
                _ => {}
            }
            // A turn whose end could not be written runs no more: housekeeping ends it when the store
            // is back.
            running.leave(&write.response_id);
            ended
        })
    }

    fn nothing(&self) -> TurnWrite {
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
            answer: None,
        }
    }

    fn chunk(&mut self) -> Option<EventChunk> {
        if !self.has_frames() {
            return None;
        }
        let (first, last) = (self.frames_from, self.heard_to - 1);
        self.frames_from = self.heard_to;
        Some(EventChunk { first, last, frames: Bytes::from(std::mem::take(&mut self.frames)) })
    }

    fn send(&self, write: TurnWrite) -> BoxFuture<'static, Result<Written, StoreError>> {
        let (running, scope) = (Arc::clone(&self.running), self.scope.clone());
        Box::pin(async move { running.store.write(&scope, write.into()).await })
    }
}

/// Writes how the calls of one turn's tools went.
#[derive(Clone)]
pub(crate) struct Journal {
    running: Arc<RunningTurns>,
    scope: Scope,
    nothing: TurnWrite,
}

impl Journal {
    /// Writes down how one call went; tries again for a while, since what has happened has happened.
    pub(crate) async fn result(&self, run: ToolRun) -> Result<Written, StoreError> {
        let write = TurnWrite { tools: vec![run], ..self.nothing.clone() };
        insist(&self.running, &self.scope, &write.into()).await.0
    }
}

/// What became of an end.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It is on disk.
    Kept,
    /// The response had ended in another way before, in this one if that is known; or is not ours any more.
    Lost(Option<Box<ResponseState>>),
}

/// Writes, again while the store cannot be used; and whether a try that failed may have come through all the same.
async fn insist(running: &RunningTurns, scope: &Scope, write: &Arc<TurnWrite>) -> (Result<Written, StoreError>, bool) {
    let mut pauses = PAUSES.iter();
    let mut doubtful = false;
    loop {
        match running.store.write(scope, Arc::clone(write)).await {
            Err(error @ (StoreError::Unavailable(_) | StoreError::Busy)) => {
                doubtful = true;
                let Some(pause) = pauses.next() else { return (Err(error), doubtful) };
                warn!(response.id = write.response_id, "a step of a turn is written again: {error}");
                tokio::time::sleep(*pause).await;
            }
            done => return (done, doubtful),
        }
    }
}

/// Keeps what a turn had asked and said that was ended from outside meanwhile, such as by its owner.
async fn add_unfinished(running: &RunningTurns, scope: &Scope, write: &Arc<TurnWrite>) {
    if let Err(error) = running.store.add_unfinished(scope, Arc::clone(write)).await {
        warn!(response.id = write.response_id, "what a turn had said when it was ended could not be written: {error}");
    }
}

/// Writes an end. Where it is lost, the response itself tells why.
async fn persist(running: &RunningTurns, scope: &Scope, write: &Arc<TurnWrite>) -> Result<Ended, StoreError> {
    let (written, doubtful) = insist(running, scope, write).await;
    if written? == Written::Kept {
        return Ok(Ended::Kept);
    }
    let known = running.store.response(scope, &write.response_id).await;
    let told = match known {
        Ok(response) => response.map(|response| Box::new(response.status)).filter(|told| told.status.is_final()),
        Err(error) if doubtful => return Err(error),
        Err(_) => None,
    };
    // Two failures may have two reasons: whose it is says the error.
    let ours = write.end.as_ref().map(|end| (end.told.status, &end.told.error));
    Ok(match doubtful && told.is_some() && told.as_ref().map(|told| (told.status, &told.error)) == ours {
        true => Ended::Kept,
        false => Ended::Lost(told),
    })
}

impl Drop for Recorder {
    /// A caller that leaves takes its turn with it; the store is told.
    fn drop(&mut self) {
        if !self.over {
            self.leave(cancelled(), None);
        }
    }
}

/// How a turn ended, as the emitter has it.
pub(crate) fn ending(emitter: &Emitter, now_ms: u64) -> Ending {
    let status = emitter.status();
    Ending {
        told: ResponseState {
            status,
            completed_at_ms: (status == Status::Completed).then_some(now_ms),
            error: None,
            incomplete_reason: emitter.incomplete_reason().map(ToOwned::to_owned),
            usage: emitter.usage(),
            provenance: emitter.provenance().clone(),
        },
        output: array_of(&emitter.kept_output()),
        upstream: None,
    }
}

/// A turn that failed.
pub(crate) fn failed(error: ErrorObject, provenance: Provenance) -> Ending {
    ended(Status::Failed, Some(error), provenance)
}

/// A turn that was cancelled before its model said anything.
pub(crate) fn cancelled() -> Ending {
    ended(Status::Cancelled, None, Provenance::default())
}

/// A turn that was cancelled, with what was said until then. The emitter was interrupted before.
pub(crate) fn interrupted(emitter: &Emitter) -> Ending {
    let Ending { told, output, upstream } = ending(emitter, 0);
    Ending { told: ResponseState { status: Status::Cancelled, completed_at_ms: None, ..told }, output, upstream }
}

fn ended(status: Status, error: Option<ErrorObject>, provenance: Provenance) -> Ending {
    let told = ResponseState { status, completed_at_ms: None, error, incomplete_reason: None, usage: None, provenance };
    Ending { told, output: no_items(), upstream: None }
}
