//! A cache for what turns read of their tenant: its settings, profiles, modes and collections.
//!
//! A value is used for [`FRESH`] after it was read, so that a busy server reads it a few times a second and not for
//! every turn. The next read sees a change through this store; a change by another process is seen once the value is no
//! longer fresh.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use amalgam_core::{
    StoreError,
    store::{AgentConfig, AgentProfile, Collection, Mode, Stored, TenantRecord},
};

/// How long a value is used. A command needs longer to start, change something and end.
const FRESH: Duration = Duration::from_millis(20);

/// The limit of values of each kind: callers choose the names of profiles, so the cache must be bounded.
const MAX_VALUES: usize = 4096;

/// The recently read values, by their tenant.
#[derive(Debug, Default)]
pub(crate) struct TenantCache {
    /// Counts the changes through this store.
    changes: AtomicU64,
    pub(crate) tenants: CachedValues<i64, Option<TenantRecord>>,
    pub(crate) configs: CachedValues<i64, Option<AgentConfig>>,
    pub(crate) profiles: CachedValues<(i64, String), Option<AgentProfile>>,
    pub(crate) modes: CachedValues<i64, Vec<Mode>>,
    pub(crate) collections: CachedValues<i64, Vec<Collection>>,
}

/// Values of one kind.
#[derive(Debug)]
pub(crate) struct CachedValues<K, V>(Mutex<HashMap<K, CachedValue<V>>>);

#[derive(Debug)]
struct CachedValue<V> {
    value: V,
    read_at: Instant,
    /// The number of changes before the value was read.
    changes: u64,
}

impl<K, V> Default for CachedValues<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl TenantCache {
    /// The cached value if it is fresh, otherwise the result of `read`.
    pub(crate) async fn get<'r, K, V>(
        &self,
        values: &CachedValues<K, V>,
        key: K,
        read: impl FnOnce() -> Stored<'r, V>,
    ) -> Result<V, StoreError>
    where
        K: Hash + Eq,
        V: Clone,
    {
        let changes = self.changes.load(Ordering::Acquire);
        let read_at = Instant::now();
        if let Some(known) = values.lock().get(&key)
            && known.changes == changes
            && read_at.saturating_duration_since(known.read_at) < FRESH
        {
            return Ok(known.value.clone());
        }
        let value = read().await?;
        let mut known = values.lock();
        if known.len() >= MAX_VALUES {
            known.clear();
        }
        known.insert(key, CachedValue { value: value.clone(), read_at, changes });
        Ok(value)
    }

    /// Makes a change that affects cached values.
    pub(crate) fn changing<'a, T: 'a>(&'a self, change: Stored<'a, T>) -> Stored<'a, T> {
        Box::pin(async move {
            let changed = change.await;
            // Also after an error: the change may have been made.
            self.changes.fetch_add(1, Ordering::AcqRel);
            changed
        })
    }
}

impl<K, V> CachedValues<K, V> {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<K, CachedValue<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn outcome<T>(work: impl Future<Output = Result<T, StoreError>>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(work).poll(&mut context) {
            std::task::Poll::Ready(outcome) => outcome.unwrap(),
            std::task::Poll::Pending => panic!("nothing here waits"),
        }
    }

    #[test]
    fn a_fresh_value_is_not_read_again_until_something_changes() {
        let cache = TenantCache::default();
        let reads = AtomicUsize::new(0);
        let read = |tenant_id| {
            outcome(cache.get(&cache.modes, tenant_id, || {
                reads.fetch_add(1, Ordering::Relaxed);
                Box::pin(async { Ok(Vec::new()) })
            }))
        };

        assert_eq!((read(1), read(1), read(2)), (Vec::new(), Vec::new(), Vec::new()));
        let before = reads.load(Ordering::Relaxed);
        outcome(cache.changing(Box::pin(async { Ok(()) })));
        read(1);

        // If the machine was suspended, the second read may be late.
        assert!((2..=3).contains(&before), "{before}");
        assert_eq!(reads.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn a_value_that_was_read_before_a_change_is_not_used_after_it() {
        let cache = TenantCache::default();
        let changing = cache.changing(Box::pin(async { Ok(()) }));
        let stale = cache.get(&cache.tenants, 1, || Box::pin(async { outcome_of(changing).await.map(|()| None) }));
        outcome(stale);

        let reads = AtomicUsize::new(0);
        outcome(cache.get(&cache.tenants, 1, || {
            reads.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Ok(None) })
        }));

        assert_eq!(reads.load(Ordering::Relaxed), 1);
    }

    async fn outcome_of<T>(change: Stored<'_, T>) -> Result<T, StoreError> {
        change.await
    }
}
