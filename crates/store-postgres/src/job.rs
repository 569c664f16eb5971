//! One write of a turn that waits to be written.
use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use amalgam_core::{
    Scope, Stem, StoreError,
    store::{Answer, Begin, ToolRun, TurnWrite, WriteOutcome, session_topic},
};
use amalgam_protocol::Status;
use tokio::sync::oneshot;

/// A write, and the task that waits for it.
pub(super) struct Job {
    pub(super) scope: Scope,
    pub(super) stem: Stem,
    pub(super) write: Arc<TurnWrite>,
    /// Written to the row that the write changes: a row that has it shows that the write was committed.
    pub(super) mark: i64,
    pub(super) bytes: usize,
    answer: Option<oneshot::Sender<Result<WriteOutcome, StoreError>>>,
}

impl Job {
    pub(super) fn new(
        scope: &Scope,
        stem: Stem,
        write: Arc<TurnWrite>,
        answer: oneshot::Sender<Result<WriteOutcome, StoreError>>,
    ) -> Self {
        let (mark, bytes) = (mark_of(&write), bytes_of(&write));
        Self { scope: scope.clone(), stem, write, mark, bytes, answer: Some(answer) }
    }

    /// Completes the future that waits for the job. The future may have been dropped.
    pub(super) fn answer(&mut self, outcome: Result<WriteOutcome, StoreError>) {
        if let Some(answer) = self.answer.take() {
            let _ = answer.send(outcome);
        }
    }

    /// The row that two writes could both lock. A batch locks rows in the order of these keys, so that two batches
    /// cannot deadlock.
    pub(super) fn contested(&self) -> (&str, u64) {
        match self.write.begin.as_ref().and_then(|begin| begin.parent.as_ref()) {
            Some(parent) => (&parent.chain, parent.position + 1),
            None => (&self.write.response_id, 0),
        }
    }

    /// Whether the write only adds events.
    pub(super) fn is_events_only(&self) -> bool {
        let write = &self.write;
        write.begin.is_none()
            && write.end.is_none()
            && !write.started
            && write.transcripts.is_empty()
            && write.tools.is_empty()
            && write.approvals.is_empty()
            && write.session.is_none()
            && write.answer.is_none()
            && write.events.is_some()
    }

    /// Whether a task of another process may wait for the write. Other processes cannot have the id of a response
    /// before its first write, but they may have its idempotency key.
    pub(super) fn is_awaited(&self) -> bool {
        let write = &self.write;
        write.begin.is_none() && (write.end.is_some() || write.started)
            || write.events.is_some()
            || write.answer.is_some()
            || self.is_queued()
    }

    /// The topic of the session of a turn that ends, for the requests that wait in its queue.
    pub(super) fn session_topic(&self) -> Option<String> {
        self.write.session.as_ref().map(|session| session_topic(session.ticket.session_id))
    }

    /// Whether the write adds a turn to the background queue.
    pub(super) fn is_queued(&self) -> bool {
        let waits = |begin: &Begin| begin.status == Status::Queued && begin.request.is_some();
        self.write.end.is_none() && !self.write.started && self.write.begin.as_deref().is_some_and(waits)
    }
}

/// Equal for the same write of the same process, and practically never for another one.
fn mark_of(write: &TurnWrite) -> i64 {
    let mut hasher = DefaultHasher::new();
    (&write.response_id, write.process, write.begin.is_some(), write.started).hash(&mut hasher);
    if let Some(events) = &write.events {
        (events.first, events.last, events.frames.len()).hash(&mut hasher);
    }
    if let Some(end) = &write.end {
        (end.state.status, end.state.completed_at_ms, end.output.bytes()).hash(&mut hasher);
    }
    for transcript in &write.transcripts {
        (transcript.number, transcript.asked_at_ms, transcript.response.len()).hash(&mut hasher);
    }
    for run in &write.tools {
        let output = run.outcome.as_ref().map(|outcome| outcome.output.bytes());
        (run.number, run.started_at_ms, output).hash(&mut hasher);
    }
    for approval in &write.approvals {
        approval.id.hash(&mut hasher);
    }
    if let Some(session) = &write.session {
        (session.ticket.session_id, session.ticket.number, &session.answer).hash(&mut hasher);
    }
    if let Some((idempotency_key, answer)) = &write.answer {
        (idempotency_key, answer.is_some()).hash(&mut hasher);
    }
    hasher.finish().cast_signed()
}

fn bytes_of(write: &TurnWrite) -> usize {
    let begin = write.begin.as_ref().map_or(0, |begin| {
        begin.settings.len() + begin.input.bytes().len() + begin.request.as_ref().map_or(0, bytes::Bytes::len)
    });
    let end = write.end.as_ref().map_or(0, |end| end.output.bytes().len());
    let events = write.events.as_ref().map_or(0, |events| events.frames.len());
    let transcripts: usize = write.transcripts.iter().map(|call| call.request.len() + call.response.len()).sum();
    let output = |run: &ToolRun| run.outcome.as_ref().map_or(0, |outcome| outcome.output.bytes().len());
    let tools: usize = write.tools.iter().map(|run| 256 + run.arguments.len() + output(run)).sum();
    let approvals: usize = write.approvals.iter().map(|approval| 256 + approval.arguments.len()).sum();
    let session = write.session.as_ref().map_or(0, |session| {
        let known: usize = session.metadata.iter().map(|(_, record)| 64 + record.value.bytes().len()).sum();
        known + session.answer.as_ref().map_or(0, |(_, content)| content.len())
    });
    let answer = match &write.answer {
        Some((_, Some(Answer::Body { body, .. }))) => body.len(),
        _ => 0,
    };
    512 + begin + end + events + transcripts + tools + approvals + session + answer
}

/// A count or a time in the form of a column. A larger number becomes the largest possible one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The maximum number of rows in the form of a parameter.
pub(super) fn most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// A count or a time from its column.
pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
