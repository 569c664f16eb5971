//! Caches the identities of credentials, by the hash of the whole credential.
//!
//! An entry is used for [`LIFE`] and no longer, so that a revocation, an expiry or a change in another process takes
//! effect within seconds. From [`RENEWAL`] on, one request looks the credential up again while others use the cached
//! entry: the lookup does not delay other requests. An expired entry is not used any more, but shows that the
//! credential was valid once. Both kinds of entries are bounded, and refusals never evict identities.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::identity::Identity;

/// How long an entry is used. Below the promised five seconds, with a margin for a slow write.
pub(super) const LIFE: Duration = Duration::from_secs(4);
/// The age at which an entry is looked up again, if the credential is in use.
pub(super) const RENEWAL: Duration = Duration::from_secs(2);

/// The number of shards, each with its own lock.
const SHARDS: usize = 16;
/// The maximum number of entries of each kind per shard: some 16,000 in all.
const MAX_ENTRIES: usize = 1024;

/// The keyed hash of a whole credential.
pub(super) type Hash = [u8; 32];

pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
}

/// The cached state of a credential.
#[derive(Debug, Clone)]
pub(super) enum CacheEntry {
    /// Valid.
    Valid(Arc<Identity>),
    /// Valid until then; this caller should look it up again.
    DueForRenewal(Arc<Identity>, Instant),
    /// Was valid, too long ago.
    Expired(Arc<Identity>),
    /// Not valid.
    Bad,
    /// Not cached.
    Missing,
}

#[derive(Default)]
struct Shard {
    good: HashMap<Hash, CachedIdentity, BuildHasherDefault<Prefix>>,
    bad: HashMap<Hash, Instant, BuildHasherDefault<Prefix>>,
}

struct CachedIdentity {
    identity: Arc<Identity>,
    looked_up_at: Instant,
    renewing: bool,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    pub(super) fn get(&self, hash: &Hash, now: Instant) -> CacheEntry {
        let mut shard = self.shard(hash);
        if let Some(good) = shard.good.get_mut(hash) {
            let age = now.saturating_duration_since(good.looked_up_at);
            let identity = Arc::clone(&good.identity);
            return match age {
                age if age >= LIFE => CacheEntry::Expired(identity),
                age if age >= RENEWAL && !good.renewing => {
                    good.renewing = true;
                    CacheEntry::DueForRenewal(identity, good.looked_up_at + LIFE)
                }
                _ => CacheEntry::Valid(identity),
            };
        }
        match shard.bad.get(hash) {
            Some(looked_up_at) if now.saturating_duration_since(*looked_up_at) < LIFE => CacheEntry::Bad,
            _ => CacheEntry::Missing,
        }
    }

    /// Stores the result of a lookup that began at `now`.
    pub(super) fn put(&self, hash: Hash, found: Option<Arc<Identity>>, now: Instant) {
        let mut shard = self.shard(&hash);
        match found {
            Some(identity) => {
                shard.bad.remove(&hash);
                if shard.good.len() >= MAX_ENTRIES && !shard.good.contains_key(&hash) {
                    make_room(&mut shard.good, |good| now.saturating_duration_since(good.looked_up_at) >= LIFE);
                }
                shard.good.insert(hash, CachedIdentity { identity, looked_up_at: now, renewing: false });
            }
            None => {
                shard.good.remove(&hash);
                if shard.bad.len() >= MAX_ENTRIES {
                    make_room(&mut shard.bad, |looked_up_at| now.saturating_duration_since(*looked_up_at) >= LIFE);
                }
                shard.bad.insert(hash, now);
            }
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&self, hash: &Hash) {
        let mut shard = self.shard(hash);
        shard.good.remove(hash);
        shard.bad.remove(hash);
    }

    /// Removes every identity for which the predicate holds.
    pub(super) fn forget(&self, mut predicate: impl FnMut(&Identity) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.good.retain(|_, good| !predicate(&good.identity));
        }
    }

    fn shard(&self, hash: &Hash) -> MutexGuard<'_, Shard> {
        let index = usize::from(hash[31]) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes expired entries; if there are none, any entry.
fn make_room<V>(map: &mut HashMap<Hash, V, BuildHasherDefault<Prefix>>, is_over: impl Fn(&V) -> bool) {
    map.retain(|_, value| !is_over(value));
    if map.len() >= MAX_ENTRIES
        && let Some(one) = map.keys().next().copied()
    {
        map.remove(&one);
    }
}

/// Hashes are random already, and no caller can choose one: the first bytes are the table's hash.
#[derive(Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length prefix of the array, which is constant.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use amalgam_core::{Rights, TenantState};

    use super::*;

    fn identity(tenant_id: i64) -> Arc<Identity> {
        Arc::new(Identity::for_tests(tenant_id, TenantState::Stored, Rights::USE))
    }

    fn hash(number: u32) -> Hash {
        let mut hash = [7; 32];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn an_answer_is_used_for_a_while_then_renewed_by_one_and_then_only_remembered() {
        let (cache, start) = (Cache::new(), Instant::now());
        assert!(matches!(cache.get(&hash(1), start), CacheEntry::Missing));
        cache.put(hash(1), Some(identity(1)), start);
        let at = |age: Duration| cache.get(&hash(1), start + age);
        assert!(matches!(at(Duration::ZERO), CacheEntry::Valid(_)));
        assert!(matches!(at(RENEWAL), CacheEntry::DueForRenewal(_, until) if until == start + LIFE));
        assert!(matches!(at(RENEWAL), CacheEntry::Valid(_)), "one asks, the others go on");
        assert!(matches!(at(LIFE), CacheEntry::Expired(_)));
        assert!(LIFE < Duration::from_secs(5));
    }

    #[test]
    fn a_refusal_is_remembered_as_long_and_replaces_what_was_known() {
        let (cache, start) = (Cache::new(), Instant::now());
        cache.put(hash(1), Some(identity(1)), start);
        cache.put(hash(1), None, start);
        assert!(matches!(cache.get(&hash(1), start), CacheEntry::Bad));
        assert!(matches!(cache.get(&hash(1), start + LIFE), CacheEntry::Missing));
    }

    // S12
    #[test]
    fn hashes_that_differ_in_one_byte_anywhere_are_two() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put([7; 32], Some(identity(1)), now);
        for index in 0..32 {
            let mut other = [7; 32];
            other[index] ^= 1;
            assert!(matches!(cache.get(&other, now), CacheEntry::Missing), "{index}");
        }
    }

    #[test]
    fn neither_kind_grows_without_bound_and_refusals_evict_no_callers() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put(hash(0), Some(identity(1)), now);
        for number in 1..5_000 {
            cache.put(hash(number), None, now);
        }
        assert!(matches!(cache.get(&hash(0), now), CacheEntry::Valid(_)));
        for number in 5_000..10_000 {
            cache.put(hash(number), Some(identity(1)), now);
        }
        let shard = cache.shard(&hash(0));
        assert!(
            shard.good.len() <= MAX_ENTRIES && shard.bad.len() <= MAX_ENTRIES,
            "{} {}",
            shard.good.len(),
            shard.bad.len()
        );
    }

    #[test]
    fn an_evicted_caller_is_looked_up_again() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put(hash(1), Some(identity(1)), now);
        cache.put(hash(2), Some(identity(2)), now);
        cache.forget(|identity| identity.tenant_id() == 1);
        assert!(matches!(cache.get(&hash(1), now), CacheEntry::Missing));
        assert!(matches!(cache.get(&hash(2), now), CacheEntry::Valid(_)));
    }
}
