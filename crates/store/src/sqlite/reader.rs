//! The threads that read.

use std::{path::PathBuf, sync::Arc};

use rusqlite::Connection;

use super::{
    failure::Failure,
    file,
    job::{Job, Transaction},
    query::Database,
    queue::Queue,
};

/// Reads, each in a transaction of its own so that all of its statements see one moment.
pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
}

impl Reader {
    /// Works until the queue is closed and empty.
    pub(super) fn run(self, mut slot: Option<Connection>) {
        let mut taken = Vec::with_capacity(1);
        while self.jobs.take(&mut taken, 1) {
            for mut job in taken.drain(..) {
                if !job.is_abandoned() {
                    let outcome = self.attempt(&mut slot, &mut *job);
                    if outcome.as_ref().is_err_and(Failure::spoils_the_connection) {
                        slot = None;
                    }
                    job.answer(outcome.map_err(|failure| failure.to_error()));
                }
            }
        }
    }

    fn attempt(&self, slot: &mut Option<Connection>, job: &mut dyn Job) -> Result<(), Failure> {
        if slot.is_none() {
            *slot = Some(file::open_reader(&self.path)?);
        }
        let database = Database::new(slot.as_ref().ok_or(Failure::Refused("it is not open"))?);
        database.begin_to_read()?;
        let outcome = job.run(&Transaction::new(database));
        outcome.and(database.commit())
    }
}
