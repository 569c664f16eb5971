//! A cache of compiled schemas, by the hash of their text.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use amalgam_protocol::Json;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::Schema;

/// This much text counts as one schema.
const WEIGHT_BYTES: usize = 4 * 1024;

type Hash = [u8; 32];

/// Compiles schemas on the blocking pool, and caches the most recently used ones.
///
/// Refusals are cached too, so that the same invalid schema in every request is checked once.
#[derive(Debug)]
pub struct Schemas {
    capacity: usize,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    entries: HashMap<Hash, Entry>,
    weight: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    compiled: Result<Arc<Schema>, String>,
    weight: usize,
    used: u64,
}

impl Default for Schemas {
    fn default() -> Self {
        Self::new(512)
    }
}

impl Schemas {
    /// Caches at most `capacity` schemas. To account for memory, each pattern counts as two more schemas, and every 4
    /// KiB of text as one.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), cache: Mutex::default() }
    }

    /// The compiled schema, or the reason why there is none.
    pub async fn get(&self, schema: &Json) -> Result<Arc<Schema>, String> {
        let hash = Sha256::digest(schema.bytes()).into();
        if let Some(known) = self.cache().get(&hash) {
            return known;
        }
        let schema = schema.clone();
        let bytes = schema.bytes().len();
        let compiled = spawn_blocking(move || Schema::compile(schema.raw()).map(Arc::new))
            .await
            .unwrap_or_else(|_| Err("the schema cannot be compiled".to_owned()));
        self.cache().insert(hash, compiled.clone(), bytes, self.capacity);
        compiled
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        // No change can panic half-way, so a poisoned lock is still consistent.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.cache().entries.len()
    }
}

impl Cache {
    fn get(&mut self, hash: &Hash) -> Option<Result<Arc<Schema>, String>> {
        self.uses += 1;
        let entry = self.entries.get_mut(hash)?;
        entry.used = self.uses;
        Some(entry.compiled.clone())
    }

    fn insert(&mut self, hash: Hash, compiled: Result<Arc<Schema>, String>, bytes: usize, capacity: usize) {
        self.uses += 1;
        let cost = compiled.as_ref().map_or(0, |schema| bytes / WEIGHT_BYTES + 2 * schema.cost.patterns);
        let weight = 1 + cost;
        self.weight += weight;
        let replaced = self.entries.insert(hash, Entry { compiled, weight, used: self.uses });
        self.weight -= replaced.map_or(0, |entry| entry.weight);
        while self.weight > capacity {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(hash, _)| *hash);
            let Some(entry) = oldest.and_then(|hash| self.entries.remove(&hash)) else { return };
            self.weight -= entry.weight;
        }
    }
}
