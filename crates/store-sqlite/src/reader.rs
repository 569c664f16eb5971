//! The threads that read.
use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use rusqlite::Connection;

use super::{
    failure::SqliteFailure,
    file,
    job::{Job, JobConnection},
    queue::Queue,
};

/// Runs reads, each in a transaction of its own, so that all its statements see the same moment.
pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
}

impl Reader {
    /// Works until the queue is closed and empty.
    pub(super) fn run(self, connection: Option<Connection>) {
        let mut slot = connection.map(Mutex::new);
        let mut taken = Vec::with_capacity(1);
        while self.jobs.take(&mut taken, 1) {
            for mut job in taken.drain(..) {
                if !job.is_abandoned() {
                    let outcome = self.attempt(&mut slot, &mut *job);
                    if outcome.as_ref().is_err_and(SqliteFailure::spoils_the_connection) {
                        slot = None;
                    }
                    job.answer(outcome.map_err(|failure| failure.to_error()));
                }
            }
        }
    }

    fn attempt(&self, slot: &mut Option<Mutex<Connection>>, job: &mut dyn Job) -> Result<(), SqliteFailure> {
        if slot.is_none() {
            *slot = Some(Mutex::new(file::open_reader(&self.path)?));
        }
        let connection = JobConnection::new(slot.as_ref().ok_or(SqliteFailure::QueueError("it is not open"))?);
        connection.with(|transaction| transaction.database.begin_to_read())?;
        let outcome = job.run(&connection);
        outcome.and(connection.with(|transaction| transaction.database.commit()))
    }
}
