//! Schemas that were compiled before, by the hash of their text.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use amalgam_protocol::Json;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;

use super::Schema;

/// So much text counts as one schema.
const WEIGHT_BYTES: usize = 4 * 1024;

type Hash = [u8; 32];

/// Compiles schemas away from the threads that serve, and keeps those that were used last.
///
/// Refusals are kept too: a caller that sends the same bad schema with every request pays for it once.
#[derive(Debug)]
pub struct Schemas {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
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
    /// Keeps at most `capacity` schemas; each pattern in one counts as two more, and every 4 KiB of text as one,
    /// for the memory that they take.
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), kept: Mutex::default() }
    }

    /// The compiled schema, or the reason why there is none.
    pub async fn get(&self, schema: &Json) -> Result<Arc<Schema>, String> {
        let hash = Sha256::digest(schema.bytes()).into();
        if let Some(known) = self.kept().take_up(&hash) {
            return known;
        }
        let schema = schema.clone();
        let bytes = schema.bytes().len();
        let compiled = spawn_blocking(move || Schema::compile(schema.raw()).map(Arc::new))
            .await
            .unwrap_or_else(|_| Err("the schema cannot be compiled".to_owned()));
        self.kept().keep(hash, compiled.clone(), bytes, self.capacity);
        compiled
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Every change is whole before anything could panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept().entries.len()
    }
}

impl Kept {
    fn take_up(&mut self, hash: &Hash) -> Option<Result<Arc<Schema>, String>> {
        self.uses += 1;
        let entry = self.entries.get_mut(hash)?;
        entry.used = self.uses;
        Some(entry.compiled.clone())
    }

    fn keep(&mut self, hash: Hash, compiled: Result<Arc<Schema>, String>, bytes: usize, capacity: usize) {
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
