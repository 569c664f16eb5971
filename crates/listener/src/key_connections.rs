//! Limits the connections per key. A connection counts for the key of its last request.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The hash of a credential.
pub(crate) type Hash = [u8; 32];

/// The number of keys at which those without a connection are removed.
const SWEEP: usize = 4096;

/// The connection counts of all keys.
#[derive(Debug)]
pub struct KeyConnections {
    max: usize,
    counts: Mutex<HashMap<Hash, Arc<AtomicUsize>>>,
}

/// The key that a connection counts for. Cheap to clone; all clones are the same connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionKey(Arc<Mutex<Option<CountedConnection>>>);

/// A counted connection of a key; dropping it decrements the count.
#[derive(Debug)]
struct CountedConnection {
    hash: Hash,
    count: Arc<AtomicUsize>,
}

impl KeyConnections {
    /// No connection is counted yet; `max` is the limit of each key.
    pub fn new(max: usize) -> Self {
        Self { max, counts: Mutex::default() }
    }

    /// Counts a connection for a key from now on; false if the key has reached its limit.
    pub fn try_count(&self, connection: &ConnectionKey, hash: &Hash) -> bool {
        let mut counted = connection.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.as_ref().is_some_and(|counted| counted.hash == *hash) {
            return true;
        }
        let count = {
            let mut all = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= SWEEP {
                all.retain(|_, count| count.load(Ordering::Relaxed) > 0);
            }
            Arc::clone(all.entry(*hash).or_default())
        };
        let more =
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count < self.max).then_some(count + 1));
        if more.is_ok() {
            *counted = Some(CountedConnection { hash: *hash, count });
        }
        more.is_ok()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // right E3
    #[test]
    fn a_key_has_so_many_connections_and_gets_them_back() {
        let connections = KeyConnections::new(2);
        let [first, second, third] = [(); 3].map(|()| ConnectionKey::default());
        assert!(
            connections.try_count(&first, &[1; 32])
                && connections.try_count(&second, &[1; 32])
                && connections.try_count(&first, &[1; 32])
        );
        assert!(!connections.try_count(&third, &[1; 32]));
        assert!(connections.try_count(&third, &[2; 32]), "another key has places of its own");
        // A connection counts for the key that it used last.
        assert!(connections.try_count(&first, &[2; 32]) && connections.try_count(&third, &[1; 32]));
        drop(second);
        assert!(connections.try_count(&ConnectionKey::default(), &[1; 32]));
    }
}
