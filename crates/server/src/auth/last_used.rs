//! Last-used times of keys: collected in memory and written in batches, at most once a minute for each key.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use amalgam_core::{
    Operator,
    store::{KeyRecord, TenancyStore},
};
use tracing::debug;

/// The minimum interval between two stored times of a key.
const MIN_INTERVAL_MS: u64 = 60_000;
/// The interval between batches.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of keys in a batch; the next lookup of a further key records it.
const MAX_KEYS: usize = 10_000;

/// Last-used times that are not written yet.
#[derive(Default)]
pub(super) struct LastUsed {
    pending: Mutex<HashMap<String, u64>>,
}

impl LastUsed {
    /// Records the use of a key that was just looked up.
    pub(super) fn record(&self, key: &KeyRecord, now_ms: u64) {
        if key.last_used_at_ms.is_some_and(|last| now_ms < last.saturating_add(MIN_INTERVAL_MS)) {
            return;
        }
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if pending.len() < MAX_KEYS {
            pending.insert(key.id.clone(), now_ms);
        }
    }

    /// Writes a batch periodically.
    pub(super) async fn run(&self, store: &dyn TenancyStore) {
        loop {
            tokio::time::sleep(FLUSH_INTERVAL).await;
            self.flush(store).await;
        }
    }

    /// Writes the current batch.
    pub(super) async fn flush(&self, store: &dyn TenancyStore) {
        let pending = std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        if pending.is_empty() {
            return;
        }
        // A lost time is recorded again with the next use. The times only help administrators to clean up.
        if let Err(error) = store.touch_keys(Operator::of_this_process(), pending.into_iter().collect()).await {
            debug!(%error, "the last-used times of keys were not written");
        }
    }
}
