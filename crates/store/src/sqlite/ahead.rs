//! What was acknowledged and is not in the database yet, for those who read.
//!
//! Only steps of turns are acknowledged ahead. Whoever reads a response waits for those steps that concern it; whoever reads
//! anything else that steps may change waits for all of them.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use amalgam_core::Stem;

/// The responses that steps were acknowledged of.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    any: AtomicBool,
    stems: Mutex<HashSet<Stem>>,
}

impl Ahead {
    /// Steps of these are about to be acknowledged.
    pub(super) fn note<'a>(&self, ids: impl IntoIterator<Item = &'a str>) {
        self.lock().extend(ids.into_iter().filter_map(Stem::of));
        self.any.store(true, Ordering::Release);
    }

    /// The database has everything.
    pub(super) fn clear(&self) {
        if self.holds_any() {
            self.any.store(false, Ordering::Release);
            self.lock().clear();
        }
    }

    /// Whether anything was acknowledged that is not in the database.
    pub(super) fn holds_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether something of one of these responses was.
    pub(super) fn holds(&self, stems: impl IntoIterator<Item = Stem>) -> bool {
        self.holds_any() && {
            let held = self.lock();
            stems.into_iter().any(|stem| held.contains(&stem))
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<Stem>> {
        self.stems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
