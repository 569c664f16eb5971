//! When keys were last used: noted in memory, written down in batches, at most once a minute for each key.

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

/// A use is written down when the one before is this long ago.
const GRAIN_MS: u64 = 60_000;
/// How often what was noted is written down.
const EVERY: Duration = Duration::from_secs(5);
/// The most keys that are noted meanwhile; further ones are noted the next time that they are looked up.
const MOST: usize = 10_000;

/// Uses that are not written down yet.
#[derive(Default)]
pub(super) struct Uses {
    noted: Mutex<HashMap<String, u64>>,
}

impl Uses {
    /// Notes a use of a key that was just looked up.
    pub(super) fn note(&self, key: &KeyRecord, now_ms: u64) {
        if key.last_used_at_ms.is_some_and(|last| now_ms < last.saturating_add(GRAIN_MS)) {
            return;
        }
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() < MOST {
            noted.insert(key.id.clone(), now_ms);
        }
    }

    /// Writes down, again and again.
    pub(super) async fn write_down(&self, store: &dyn TenancyStore) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.flush(store).await;
        }
    }

    /// Writes down what there is.
    pub(super) async fn flush(&self, store: &dyn TenancyStore) {
        let noted = std::mem::take(&mut *self.noted.lock().unwrap_or_else(PoisonError::into_inner));
        if noted.is_empty() {
            return;
        }
        // A time that is lost is noted again with the next use: this is for people who clean up.
        if let Err(error) = store.touch_keys(Operator::of_this_process(), noted.into_iter().collect()).await {
            debug!(%error, "the last uses of keys were not written down");
        }
    }
}
