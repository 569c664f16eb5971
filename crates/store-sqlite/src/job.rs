//! A piece of work that a thread of the store does, and the future that waits for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use amalgam_core::{StoreError, TurnSummary, store::Stored};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{
    failure::SqliteFailure,
    query::Database,
    queue::{Queue, QueueError},
};

/// What a job does to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Changes something that need not be flushed.
    Reserve,
    Write,
}

/// Work that is done on a database. It may be done again when the group that it was part of failed.
pub(super) trait Job: Send {
    /// What it does to the database.
    fn access(&self) -> Access;
    /// Does the work and stores the result.
    fn run(&mut self, connection: &JobConnection<'_>) -> Result<(), SqliteFailure>;
    /// Completes the future that waits for the job. The future may have been dropped.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
    /// Whether the future was dropped.
    fn is_abandoned(&self) -> bool;
}

/// The connection that jobs run on, in the transaction of their group, and the notifications to send once it is committed.
///
/// Only the thread that owns the connection locks it. The lock makes it a type that the store's shared code, which does not
/// know about threads, can pass through its futures.
pub struct JobConnection<'c> {
    connection: &'c Mutex<Connection>,
    topics: Mutex<Vec<String>>,
    /// Turns of the group that have ended and are not counted in the usage yet.
    ended_turns: Mutex<Vec<TurnSummary>>,
}

impl<'c> JobConnection<'c> {
    pub(super) fn new(connection: &'c Mutex<Connection>) -> Self {
        Self { connection, topics: Mutex::default(), ended_turns: Mutex::default() }
    }

    /// Does something in the transaction.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Transaction<'_>) -> T) -> T {
        let connection = lock(self.connection);
        let Self { topics, ended_turns, .. } = self;
        work(&Transaction { database: Database::new(&connection), topics, ended_turns })
    }

    /// The turns that have ended and are not counted in the usage yet.
    pub(super) fn take_ended_turns(&self) -> Vec<TurnSummary> {
        std::mem::take(&mut *self.ended_turns.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn into_topics(self) -> Vec<String> {
        self.topics.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of the thread that calls this. It stays usable after a job that panicked.
pub(super) fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The transaction that a job runs in.
pub(super) struct Transaction<'c> {
    pub(super) database: Database<'c>,
    topics: &'c Mutex<Vec<String>>,
    ended_turns: &'c Mutex<Vec<TurnSummary>>,
}

impl Transaction<'_> {
    /// Counts an ended turn in the usage, together with the others of the group.
    pub(super) fn count_turn(&self, turn: TurnSummary) {
        self.ended_turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
    }

    /// Notifies the tasks that wait for this response, for queued turns, or for the queue of a session.
    pub(super) fn notify(&self, name: impl Into<String>) {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner).push(name.into());
    }
}

struct Task<T, F> {
    work: F,
    access: Access,
    result: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnMut(&JobConnection<'_>) -> Result<T, SqliteFailure> + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn run(&mut self, connection: &JobConnection<'_>) -> Result<(), SqliteFailure> {
        // A defect in one job must not take the thread, and with it the store, away from the others.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)));
        self.result = Some(done.unwrap_or_else(|_| Err(SqliteFailure::Broken("a piece of work panicked".into())))?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, answer, work, .. } = *self;
        // The arguments of the work go first: their last owner frees them, best the thread that made them.
        drop(work);
        drop(answer.send(outcome.and_then(|()| result.ok_or_else(closed))));
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// Passes `work` to the threads of `queue` and waits for its result.
pub(super) fn submit<'a, T, F>(queue: &Queue<Box<dyn Job>>, access: Access, work: F) -> Stored<'a, T>
where
    T: Send + 'static,
    F: FnMut(&JobConnection<'_>) -> Result<T, SqliteFailure> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let queued = queue.push(Box::new(Task { work, access, result: None, answer }));
    Box::pin(async move {
        match queued {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(closed())),
            Err(QueueError::Full) => Err(StoreError::Busy),
            Err(QueueError::Closed) => Err(closed()),
        }
    })
}

/// The outcome of work of the shared code. It never waits: the statements of this engine run at once.
pub(super) fn outcome<T>(work: impl Future<Output = Result<T, SqliteFailure>>) -> Result<T, SqliteFailure> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Err(SqliteFailure::Broken("a piece of work waits for something".into())),
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
