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

/// When work counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// When the database has it on disk.
    Settled,
    /// When it is on disk, be it in the redo log alone.
    Ahead,
    /// It changes nothing: done when the database has everything that was acknowledged before.
    Caught,
    /// It changes nothing, and looks at what was acknowledged wherever that is.
    Inside,
}

/// Work that is done on a database. It may be done again when the group that it was part of failed.
pub(super) trait Job: Send {
    /// When it counts as done.
    fn done(&self) -> Done;
    /// Does the work and keeps the result.
    fn run(&mut self, transaction: &Transaction<'_>) -> Result<(), Failure>;
    /// Tells whoever waits; nobody may.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
    /// Whether nobody waits any more.
    fn is_abandoned(&self) -> bool;
}

/// The transaction that work is done in, and whom to tell once it is on disk.
pub(super) struct Transaction<'c> {
    pub(super) database: Database<'c>,
    rings: RefCell<Vec<String>>,
}

impl<'c> Transaction<'c> {
    pub(super) fn new(database: Database<'c>) -> Self {
        Self { database, rings: RefCell::default() }
    }

    /// Somebody may wait for news of this response, or of queued turns.
    pub(super) fn ring(&self, name: impl Into<String>) {
        self.rings.borrow_mut().push(name.into());
    }

    pub(super) fn into_rings(self) -> Vec<String> {
        self.rings.into_inner()
    }
}

struct Task<T, F> {
    work: F,
    counts: Done,
    result: Option<T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Task<T, F>
where
    T: Send,
    F: FnMut(&Transaction<'_>) -> Result<T, Failure> + Send,
{
    fn done(&self) -> Done {
        self.counts
    }

    fn run(&mut self, transaction: &Transaction<'_>) -> Result<(), Failure> {
        // A fault of ours in one piece of work must not take the thread, and with it the store, away from the others.
        let done = catch_unwind(AssertUnwindSafe(|| (self.work)(transaction)));
        self.result = Some(done.unwrap_or_else(|_| Err(Failure::Broken("a piece of work panicked".into())))?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { result, answer, work, .. } = *self;
        // What the work was done with goes first: the last one who holds it frees it, best where it was made.
        drop(work);
        // Nobody listens when the future was dropped; the work is done all the same.
        drop(answer.send(outcome.and_then(|()| result.ok_or_else(closed))));
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// Hands `work` to the threads behind `queue` and waits for its result.
pub(super) fn submit<'a, T, F>(queue: &Queue<Box<dyn Job>>, counts: Done, work: F) -> Stored<'a, T>
where
    T: Send + 'static,
    F: FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
{
    let (answer, answered) = oneshot::channel();
    let queued = queue.push(Box::new(Task { work, counts, result: None, answer }));
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
