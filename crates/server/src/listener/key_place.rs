//! Whose connection it is: the key of its last request, which may have so many connections and no more.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The hash of a credential.
type Hash = [u8; 32];

/// Keys that are told apart before those without a connection are forgotten.
const SWEEP: usize = 4096;

/// The connections of every key.
#[derive(Debug)]
pub(crate) struct KeyPlaces {
    most: usize,
    taken: Mutex<HashMap<Hash, Arc<AtomicUsize>>>,
}

/// The key that a connection counts for. Cheap to clone; all clones are the same connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionKey(Arc<Mutex<Option<KeyPlace>>>);

/// A place of a key; dropping it gives it back.
#[derive(Debug)]
struct KeyPlace {
    hash: Hash,
    taken: Arc<AtomicUsize>,
}

impl KeyPlaces {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default() }
    }

    /// Counts a connection for a key from now on; whether the key may have one more.
    pub(crate) fn take(&self, connection: &ConnectionKey, hash: &Hash) -> bool {
        let mut place = connection.0.lock().unwrap_or_else(PoisonError::into_inner);
        if place.as_ref().is_some_and(|place| place.hash == *hash) {
            return true;
        }
        let taken = {
            let mut all = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= SWEEP {
                all.retain(|_, taken| taken.load(Ordering::Relaxed) > 0);
            }
            Arc::clone(all.entry(*hash).or_default())
        };
        let more =
            taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < self.most).then_some(taken + 1));
        if more.is_ok() {
            *place = Some(KeyPlace { hash: *hash, taken });
        }
        more.is_ok()
    }
}

impl Drop for KeyPlace {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // right E3
    #[test]
    fn a_key_has_so_many_connections_and_gets_them_back() {
        let places = KeyPlaces::new(2);
        let [first, second, third] = [(); 3].map(|()| ConnectionKey::default());
        assert!(places.take(&first, &[1; 32]) && places.take(&second, &[1; 32]) && places.take(&first, &[1; 32]));
        assert!(!places.take(&third, &[1; 32]));
        assert!(places.take(&third, &[2; 32]), "another key has places of its own");
        // A connection counts for the key that it used last.
        assert!(places.take(&first, &[2; 32]) && places.take(&third, &[1; 32]));
        drop(second);
        assert!(places.take(&ConnectionKey::default(), &[1; 32]));
    }
}
