//! A piece of work that a thread of the store does, and the future that waits for it.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use amalgam_core::{StoreError, store::Stored};
use tokio::sync::oneshot;

use super::{
    failure::Failure,
    query::Database,
    queue::{Queue, Refused},
};

/// What a job does to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// Work that is done on a database. It may be done again when the group that it was part of failed.
pub(super) trait Job: Send {
    /// What it does to the database.
    fn access(&self) -> Access;
    /// Does the work and keeps the result.
    fn run(&mut self, transaction: &Transaction<'_>) -> Result<(), Failure>;
    /// Completes the future that waits for the job. The future may have been dropped.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
    /// Whether the future was dropped.
    fn is_abandoned(&self) -> bool;
}

/// The transaction that a job runs in, and the notifications to send once it is committed.
pub(super) struct Transaction<'c> {
    pub(super) database: Database<'c>,
    topics: RefCell<Vec<String>>,
}

impl<'c> Transaction<'c> {
    pub(super) fn new(database: Database<'c>) -> Self {
        Self { database, topics: RefCell::default() }
    }

    /// Notifies the tasks that wait for this response, for queued turns, or for the queue of a session.
    pub(super) fn notify(&self, name: impl Into<String>) {
        self.topics.borrow_mut().push(name.into());
    }

    pub(super) fn into_topics(self) -> Vec<String> {
        self.topics.into_inner()
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
    F: FnMut(&Transaction<'_>) -> Result<T, Failure> + Send,
{
    fn access(&self) -> Access {
        self.access
    }

    fn run(&mut self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        // A fault of ours in one job must not take the thread, and with it the store, away from the others.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(transaction)));
        self.result = Some(done.unwrap_or_else(|_| Err(Failure::Broken("a piece of work panicked".into())))?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, answer, work, .. } = *self;
        // What the work was done with goes first: its last owner frees it, best the thread that made it.
        drop(work);
        drop(answer.send(outcome.and_then(|()| result.ok_or_else(closed))));
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// Hands `work` to the threads behind `queue` and waits for its result.
pub(super) fn submit<'a, T, F>(queue: &Queue<Box<dyn Job>>, access: Access, work: F) -> Stored<'a, T>
where
    T: Send + 'static,
    F: FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let queued = queue.push(Box::new(Task { work, access, result: None, answer }));
    Box::pin(async move {
        match queued {
            Ok(()) => answered.await.unwrap_or_else(|_| Err(closed())),
            Err(Refused::Full) => Err(StoreError::Busy),
            Err(Refused::Closed) => Err(closed()),
        }
    })
}

fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}
