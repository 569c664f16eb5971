//! The one thread that writes. Jobs that wait at the same time are committed together, in one transaction with one
//! flush.
//!
//! Jobs that arrive while a group runs join it, so a busy store forms large groups by itself: while one group is
//! flushed, the next one collects in the queue. A job is acknowledged after the commit, which SQLite flushes, unless
//! all jobs of the group are reservations, whose callers get no answer before a later commit.
use std::{
    cell::Cell,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use amalgam_core::store::StoreMeter;
use amalgam_store::notifications::Notifications;
use rusqlite::Connection;
use tracing::{info, warn};

use super::{
    checkpoint::{Checkpointer, WalState},
    failure::SqliteFailure,
    file,
    job::{Access, Job, JobConnection, lock},
    queue::Queue,
    turn_list,
};

/// The number of jobs that share a commit, at most: the first of them waits until the last has run.
const GROUP: usize = 256;

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
    pub(super) notifications: Arc<Notifications>,
    pub(super) checkpointer: Arc<Checkpointer>,
    /// Whether the store was opened on a full disk, and nothing was committed since.
    pub(super) read_only: Arc<AtomicBool>,
    /// Counts commits.
    pub(super) flushes: StoreMeter,
}

/// The connection of the writer, and its permitted access.
pub(super) struct WriterConnection {
    connection: Mutex<Connection>,
    access: Access,
    commits: Cell<Commits>,
}

/// Whether SQLite flushes its log at the end of a transaction. The next flush includes the transactions before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Commits {
    Flushed,
    Unflushed,
}

impl WriterConnection {
    fn new(connection: Connection, access: Access) -> Self {
        Self { connection: Mutex::new(connection), access, commits: Cell::new(Commits::Flushed) }
    }

    /// Sets this for the next transactions.
    fn set_commits(&self, commits: Commits) -> Result<(), SqliteFailure> {
        if self.commits.get() != commits {
            self.lock().execute_batch(match commits {
                Commits::Flushed => "PRAGMA synchronous = FULL",
                Commits::Unflushed => "PRAGMA synchronous = NORMAL",
            })?;
            self.commits.set(commits);
        }
        Ok(())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }
}

/// Whether jobs that arrive while a group runs join it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// All of them join.
    Open,
    /// Only reservations join: the group is not flushed.
    Reservations,
    /// No job joins.
    Closed,
}

impl Writer {
    /// A connection that writes.
    pub(super) fn open(&self) -> Result<WriterConnection, SqliteFailure> {
        let mut connection = file::open_writer(&self.path, self.max_bytes)?;
        self.checkpointer.watch(&mut connection)?;
        Ok(WriterConnection::new(connection, Access::Write))
    }

    /// A connection for a full disk.
    pub(super) fn open_to_read(&self) -> Result<WriterConnection, SqliteFailure> {
        Ok(WriterConnection::new(file::open_to_read(&self.path)?, Access::Read))
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(self, connection: WriterConnection) {
        let mut slot = Some(connection);
        let mut group = Vec::with_capacity(GROUP);
        while self.jobs.take(&mut group, GROUP) {
            for job in group.extract_if(.., |job| job.access() == Access::Read) {
                self.read(&mut slot, job);
            }
            if !group.is_empty() {
                self.write(&mut slot, &mut group);
            }
            if let Some(WriterConnection { connection, access: Access::Write, .. }) = &mut slot {
                self.checkpointer.after_commit(connection.get_mut().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn write(&self, slot: &mut Option<WriterConnection>, group: &mut Vec<Box<dyn Job>>) {
        let reserves = group.iter().all(|job| job.access() == Access::Reserve);
        let joining = if reserves { Group::Reservations } else { Group::Open };
        let Err(failure) = self.attempt(slot, group, joining) else { return };
        // Nothing of the group was committed.
        if group.len() == 1 || !failure.may_be_one_jobs() {
            return refuse(group, &failure);
        }
        // A single job may be the cause, so each is tried alone.
        for job in group.drain(..) {
            let mut alone = vec![job];
            if let Err(failure) = self.attempt(slot, &mut alone, Group::Closed) {
                refuse(&mut alone, &failure);
            }
        }
    }

    /// Runs and commits all jobs of a group, or none, and answers those that were committed.
    fn attempt(
        &self,
        slot: &mut Option<WriterConnection>,
        group: &mut Vec<Box<dyn Job>>,
        joining: Group,
    ) -> Result<(), SqliteFailure> {
        if self.checkpointer.state() == WalState::TooLong {
            return Err(SqliteFailure::QueueError(
                "its write-ahead log is full, because another process reads without end",
            ));
        }
        let topics = roll_back_on_failure(slot, |slot| {
            let connected = self.connect_to_write(slot)?;
            connected.set_commits(match joining {
                Group::Reservations => Commits::Unflushed,
                Group::Open | Group::Closed => Commits::Flushed,
            })?;
            let connection = JobConnection::new(&connected.connection);
            connection.with(|transaction| transaction.database.begin())?;
            self.run_jobs(&connection, group, joining)?;
            let ended = connection.take_ended_turns();
            connection.with(|transaction| turn_list::add_usage(transaction.database, &ended))?;
            let started = Instant::now();
            connection.with(|transaction| transaction.database.commit())?;
            self.flushes.add(group.len(), started.elapsed());
            Ok(connection.into_topics())
        })?;
        if self.read_only.swap(false, Ordering::AcqRel) {
            info!("the disk has room: the store takes writes again");
        }
        self.notifications.notify(topics.iter().map(String::as_str));
        group.drain(..).for_each(|job| job.answer(Ok(())));
        Ok(())
    }

    fn run_jobs(
        &self,
        connection: &JobConnection<'_>,
        group: &mut Vec<Box<dyn Job>>,
        joining: Group,
    ) -> Result<(), SqliteFailure> {
        let mut done = 0;
        while let Some(job) = group.get_mut(done) {
            job.run(connection)?;
            done += 1;
            if joining != Group::Closed && done == group.len() && done < GROUP {
                let takes_all = joining == Group::Open;
                self.jobs.take_waiting(group, GROUP - done, |job| takes_all || job.access() == Access::Reserve);
            }
        }
        Ok(())
    }

    /// Runs a job that reads, while the writer has the only connection.
    fn read(&self, slot: &mut Option<WriterConnection>, mut job: Box<dyn Job>) {
        let outcome = roll_back_on_failure(slot, |slot| {
            let connection = JobConnection::new(&self.connect(slot)?.connection);
            connection.with(|transaction| transaction.database.begin_to_read())?;
            job.run(&connection)?;
            connection.with(|transaction| transaction.database.commit())
        });
        job.answer(outcome.map_err(|failure| failure.to_error()));
    }

    /// The connection, opened again if it was closed.
    fn connect<'s>(&self, slot: &'s mut Option<WriterConnection>) -> Result<&'s WriterConnection, SqliteFailure> {
        if slot.is_none() {
            *slot = Some(self.reopen()?);
        }
        slot.as_ref().ok_or(SqliteFailure::QueueError("it is not open"))
    }

    /// A connection that can write.
    fn connect_to_write<'s>(
        &self,
        slot: &'s mut Option<WriterConnection>,
    ) -> Result<&'s WriterConnection, SqliteFailure> {
        // The disk may have space by now.
        if slot.as_ref().is_some_and(|open| open.access == Access::Read) {
            *slot = None;
        }
        let connected = self.connect(slot)?;
        match connected.access {
            Access::Write | Access::Reserve => Ok(connected),
            Access::Read => Err(SqliteFailure::QueueError("the disk has no room")),
        }
    }

    fn reopen(&self) -> Result<WriterConnection, SqliteFailure> {
        match self.open() {
            Ok(connection) => {
                info!("the store's database was opened again");
                Ok(connection)
            }
            // Other connections would conflict with it, and none exist while the store is read-only.
            Err(failure) if self.read_only.load(Ordering::Relaxed) => self.open_to_read().map_err(|_| failure),
            Err(failure) => Err(failure),
        }
    }
}

/// After a failure, rolls back the open transaction, and closes a connection that must not be used again.
fn roll_back_on_failure<T>(
    slot: &mut Option<WriterConnection>,
    act: impl FnOnce(&mut Option<WriterConnection>) -> Result<T, SqliteFailure>,
) -> Result<T, SqliteFailure> {
    let outcome = act(slot);
    if let (Err(failure), Some(open)) = (&outcome, &*slot) {
        let connection = open.lock();
        let rolled_back = connection.is_autocommit() || connection.execute_batch("ROLLBACK").is_ok();
        drop(connection);
        if !rolled_back || failure.spoils_the_connection() {
            *slot = None;
        }
    }
    outcome
}

fn refuse(group: &mut Vec<Box<dyn Job>>, failure: &SqliteFailure) {
    let error = failure.to_error();
    warn!(jobs = group.len(), "the store did not write: {error}");
    group.drain(..).for_each(|job| job.answer(Err(error.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_reservations_are_committed_without_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amalgam.db");
        file::create(&path).unwrap();
        let writer = WriterConnection::new(file::open_writer(&path, None).unwrap(), Access::Write);
        let synchronous = |commits| {
            writer.set_commits(commits).unwrap();
            writer.lock().pragma_query_value(None, "synchronous", |row| row.get::<_, i64>(0)).unwrap()
        };

        let settings = [Commits::Flushed, Commits::Unflushed, Commits::Unflushed, Commits::Flushed].map(synchronous);

        // 2 is FULL and 1 is NORMAL.
        assert_eq!(settings, [2, 1, 1, 2]);
    }
}
