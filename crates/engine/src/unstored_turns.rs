//! Summaries of turns that are not stored, on their way to the list of turns and the usage.
//!
//! Such a turn has no write of its own, so its summary is written with others, a moment after its answer. A process that is killed
//! loses the summaries of that moment; a process that shuts down writes them first.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Fault, Store, StoreError, TurnSummary};
use tokio::{sync::Notify, time::sleep};
use tracing::warn;

/// The longest time until a summary is written.
const WRITE_AFTER: Duration = Duration::from_millis(200);

/// Summaries are written in one transaction up to this number.
const BATCH: usize = 256;

/// More summaries than this wait only if the store is unavailable; then turns are refused, so that no usage is lost.
const MAX_WAITING: usize = 10_000;

/// The summaries that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct UnstoredTurns {
    waiting: Mutex<Vec<TurnSummary>>,
    added: Notify,
}

impl UnstoredTurns {
    /// Refuses a turn whose usage could not be written.
    pub(crate) fn check_room(&self) -> Result<(), Fault> {
        match self.waiting().len() < MAX_WAITING {
            true => Ok(()),
            false => Err(StoreError::Unavailable("the usage of earlier turns is not written yet".to_owned()).into()),
        }
    }

    pub(crate) fn push(&self, summary: TurnSummary) {
        let mut waiting = self.waiting();
        waiting.push(summary);
        if waiting.len() == 1 {
            self.added.notify_one();
        }
    }

    /// Writes summaries as long as it is polled.
    pub(crate) async fn write_periodically(&self, store: &dyn Store) {
        loop {
            self.added.notified().await;
            sleep(WRITE_AFTER).await;
            while !self.waiting().is_empty() {
                if !self.write(store).await {
                    sleep(WRITE_AFTER * 5).await;
                }
            }
        }
    }

    /// Writes everything that waits. Returns whether the store accepted it.
    pub(crate) async fn write(&self, store: &dyn Store) -> bool {
        loop {
            let batch = {
                let mut waiting = self.waiting();
                let batch_len = waiting.len().min(BATCH);
                waiting.drain(..batch_len).collect::<Vec<_>>()
            };
            if batch.is_empty() {
                return true;
            }
            if let Err(error) = store.add_summaries(batch.clone()).await {
                warn!(turns = batch.len(), "the usage of turns could not be written yet: {error}");
                self.waiting().splice(0..0, batch);
                return false;
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<TurnSummary>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
