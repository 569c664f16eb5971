//! Who was behind a credential a moment ago, by the hash of all of it.
//!
//! An answer is used for [`LIFE`] and no longer, so that whatever is revoked, expired or changed anywhere takes effect
//! within seconds. From [`RENEWAL`] on, one caller asks the store anew while the others go on with what is known: the
//! lookup does not delay other requests. What is too old is not used any more, but stays as a sign that the credential was good
//! once. Both kinds of answers are bounded, and refusals never push out the known.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::identity::Identity;

/// How long an answer of the store is used. Under the five seconds that are promised, with room for a slow write.
pub(super) const LIFE: Duration = Duration::from_secs(4);
/// When it is asked again, if the credential is in use.
pub(super) const RENEWAL: Duration = Duration::from_secs(2);

/// Parts with a lock of their own.
const SHARDS: usize = 16;
/// The most entries of each kind in a part: some 16,000 in all.
const MOST: usize = 1024;

/// The keyed hash of a whole credential.
pub(super) type Hash = [u8; 32];

pub(super) struct Cache {
    shards: [Mutex<Shard>; SHARDS],
}

/// What is known of a credential.
#[derive(Debug, Clone)]
pub(super) enum Known {
    /// It is good.
    Good(Arc<Identity>),
    /// It is good until then, and the caller is the one who should ask anew.
    Renew(Arc<Identity>, Instant),
    /// It was good, too long ago.
    Once(Arc<Identity>),
    /// It is not.
    Bad,
    /// Not looked up yet.
    Nothing,
}

#[derive(Default)]
struct Shard {
    good: HashMap<Hash, Good, BuildHasherDefault<Prefix>>,
    bad: HashMap<Hash, Instant, BuildHasherDefault<Prefix>>,
}

struct Good {
    identity: Arc<Identity>,
    asked_at: Instant,
    renewing: bool,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()) }
    }

    pub(super) fn get(&self, hash: &Hash, now: Instant) -> Known {
        let mut shard = self.shard(hash);
        if let Some(good) = shard.good.get_mut(hash) {
            let age = now.saturating_duration_since(good.asked_at);
            let identity = Arc::clone(&good.identity);
            return match age {
                age if age >= LIFE => Known::Once(identity),
                age if age >= RENEWAL && !good.renewing => {
                    good.renewing = true;
                    Known::Renew(identity, good.asked_at + LIFE)
                }
                _ => Known::Good(identity),
            };
        }
        match shard.bad.get(hash) {
            Some(asked_at) if now.saturating_duration_since(*asked_at) < LIFE => Known::Bad,
            _ => Known::Nothing,
        }
    }

    /// Notes what the store said at `now`, the moment of asking.
    pub(super) fn put(&self, hash: Hash, found: Option<Arc<Identity>>, now: Instant) {
        let mut shard = self.shard(&hash);
        match found {
            Some(identity) => {
                shard.bad.remove(&hash);
                if shard.good.len() >= MOST && !shard.good.contains_key(&hash) {
                    make_room(&mut shard.good, |good| now.saturating_duration_since(good.asked_at) >= LIFE);
                }
                shard.good.insert(hash, Good { identity, asked_at: now, renewing: false });
            }
            None => {
                shard.good.remove(&hash);
                if shard.bad.len() >= MOST {
                    make_room(&mut shard.bad, |asked_at| now.saturating_duration_since(*asked_at) >= LIFE);
                }
                shard.bad.insert(hash, now);
            }
        }
    }

    /// Forgets every identity for which this holds.
    pub(super) fn forget(&self, mut of: impl FnMut(&Identity) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.good.retain(|_, good| !of(&good.identity));
        }
    }

    fn shard(&self, hash: &Hash) -> MutexGuard<'_, Shard> {
        let index = usize::from(hash[31]) % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what is over; when nothing is, one of the others.
fn make_room<V>(map: &mut HashMap<Hash, V, BuildHasherDefault<Prefix>>, is_over: impl Fn(&V) -> bool) {
    map.retain(|_, value| !is_over(value));
    if map.len() >= MOST
        && let Some(one) = map.keys().next().copied()
    {
        map.remove(&one);
    }
}

/// Hashes are random already, and no caller can choose one: their first bytes place them.
#[derive(Default)]
struct Prefix(u64);

impl Hasher for Prefix {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk::<8>() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    // The length of the array, which is always the same.
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
        assert!(matches!(cache.get(&hash(1), start), Known::Nothing));
        cache.put(hash(1), Some(identity(1)), start);
        let at = |age: Duration| cache.get(&hash(1), start + age);
        assert!(matches!(at(Duration::ZERO), Known::Good(_)));
        assert!(matches!(at(RENEWAL), Known::Renew(_, until) if until == start + LIFE));
        assert!(matches!(at(RENEWAL), Known::Good(_)), "one asks, the others go on");
        assert!(matches!(at(LIFE), Known::Once(_)));
        assert!(LIFE < Duration::from_secs(5));
    }

    #[test]
    fn a_refusal_is_remembered_as_long_and_replaces_what_was_known() {
        let (cache, start) = (Cache::new(), Instant::now());
        cache.put(hash(1), Some(identity(1)), start);
        cache.put(hash(1), None, start);
        assert!(matches!(cache.get(&hash(1), start), Known::Bad));
        assert!(matches!(cache.get(&hash(1), start + LIFE), Known::Nothing));
    }

    // S12
    #[test]
    fn hashes_that_differ_in_one_byte_anywhere_are_two() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put([7; 32], Some(identity(1)), now);
        for place in 0..32 {
            let mut other = [7; 32];
            other[place] ^= 1;
            assert!(matches!(cache.get(&other, now), Known::Nothing), "{place}");
        }
    }

    #[test]
    fn neither_kind_grows_without_bound_and_refusals_push_out_nobody() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put(hash(0), Some(identity(1)), now);
        for number in 1..5_000 {
            cache.put(hash(number), None, now);
        }
        assert!(matches!(cache.get(&hash(0), now), Known::Good(_)));
        for number in 5_000..10_000 {
            cache.put(hash(number), Some(identity(1)), now);
        }
        let shard = cache.shard(&hash(0));
        assert!(shard.good.len() <= MOST && shard.bad.len() <= MOST, "{} {}", shard.good.len(), shard.bad.len());
    }

    #[test]
    fn whoever_is_to_be_forgotten_is_asked_for_again() {
        let (cache, now) = (Cache::new(), Instant::now());
        cache.put(hash(1), Some(identity(1)), now);
        cache.put(hash(2), Some(identity(2)), now);
        cache.forget(|identity| identity.tenant_id() == 1);
        assert!(matches!(cache.get(&hash(1), now), Known::Nothing));
        assert!(matches!(cache.get(&hash(2), now), Known::Good(_)));
    }
}
