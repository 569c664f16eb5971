//! The one thread that writes. What waits together is committed together, with one flush of the disk.

use std::{path::PathBuf, sync::Arc};

use amalgam_core::StoreError;
use rusqlite::Connection;
use tracing::{info, warn};

use super::{
    checkpoint::{Log, LogState},
    failure::Failure,
    file,
    job::{Job, Transaction},
    query::Database,
    queue::Queue,
};
use crate::bells::Bells;

/// So many pieces of work share a commit at most: what waits behind them must not wait for long.
const GROUP: usize = 256;

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
    pub(super) bells: Arc<Bells>,
    pub(super) log: Arc<Log>,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub(super) fn run(self, connection: Connection) {
        let mut connection = Some(connection);
        let mut group = Vec::with_capacity(GROUP);
        while self.jobs.take(&mut group, GROUP) {
            self.write(&mut connection, &mut group);
            if let Some(connection) = &connection {
                self.log.keep_short(connection);
            }
        }
    }

    fn write(&self, connection: &mut Option<Connection>, group: &mut Vec<Box<dyn Job>>) {
        match self.commit(connection, group) {
            Ok(rings) => {
                // Those who wait are told before those who asked: either way it is on disk.
                self.bells.ring(rings.iter().map(String::as_str));
                group.drain(..).for_each(|job| job.answer(Ok(())));
            }
            Err(failure) if group.len() > 1 && failure.may_be_one_jobs() => {
                // Nothing of the group was written. One of them is at fault, so that each is tried alone.
                for job in group.drain(..) {
                    let mut alone = vec![job];
                    self.write(connection, &mut alone);
                }
            }
            Err(failure) => {
                let error = failure.to_error();
                warn!(jobs = group.len(), "the store did not write: {error}");
                group.drain(..).for_each(|job| job.answer(Err(error.clone())));
            }
        }
    }

    /// All of it or nothing.
    fn commit(&self, slot: &mut Option<Connection>, group: &mut [Box<dyn Job>]) -> Result<Vec<String>, Failure> {
        if self.log.state() == LogState::Endless {
            return Err(Failure::Refused("its log cannot be folded back, because somebody reads the file without end"));
        }
        let connection = self.connection(slot)?;
        let outcome = transact(connection, group);
        if let Err(failure) = &outcome {
            if !connection.is_autocommit() && connection.execute_batch("ROLLBACK").is_err() {
                *slot = None;
            }
            if failure.spoils_the_connection() {
                *slot = None;
            }
        }
        outcome
    }

    /// The connection; a new one when the last one was spoilt, as soon as the file can be opened again.
    fn connection<'a>(&self, slot: &'a mut Option<Connection>) -> Result<&'a Connection, Failure> {
        if slot.is_none() {
            let mut connection = file::open_writer(&self.path, self.max_bytes)?;
            self.log.watch(&mut connection)?;
            info!("the store's database was opened again");
            *slot = Some(connection);
        }
        slot.as_ref().ok_or(Failure::Refused("it is not open"))
    }
}

fn transact(connection: &Connection, group: &mut [Box<dyn Job>]) -> Result<Vec<String>, Failure> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let transaction = Transaction::new(Database::new(connection));
    for job in group {
        job.run(&transaction)?;
    }
    connection.prepare_cached("COMMIT")?.execute([])?;
    Ok(transaction.into_rings())
}

/// Reads, each in a transaction of its own so that all of its statements see one moment.
pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
}

impl Reader {
    /// Works until the queue is closed and empty.
    pub(super) fn run(self, connection: Connection) {
        let mut slot = Some(connection);
        let mut taken = Vec::with_capacity(1);
        while self.jobs.take(&mut taken, 1) {
            for mut job in taken.drain(..) {
                if !job.is_abandoned() {
                    let outcome = self.read(&mut slot, &mut *job);
                    job.answer(outcome);
                }
            }
        }
    }

    fn read(&self, slot: &mut Option<Connection>, job: &mut dyn Job) -> Result<(), StoreError> {
        let outcome = self.attempt(slot, job);
        if outcome.as_ref().is_err_and(Failure::spoils_the_connection) {
            *slot = None;
        }
        outcome.map_err(|failure| failure.to_error())
    }

    fn attempt(&self, slot: &mut Option<Connection>, job: &mut dyn Job) -> Result<(), Failure> {
        if slot.is_none() {
            *slot = Some(file::open_reader(&self.path)?);
        }
        let connection = slot.as_ref().ok_or(Failure::Refused("it is not open"))?;
        connection.prepare_cached("BEGIN")?.execute([])?;
        let outcome = job.run(&Transaction::new(Database::new(connection)));
        let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        outcome.and(ended.map(drop).map_err(Failure::from))
    }
}
