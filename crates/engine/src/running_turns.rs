//! What a process knows about the turns that it runs: where they are kept, and how each is asked to end.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use amalgam_core::{Clock, Fault, Store, StoreError, store::ProcessId};
use tokio::sync::{Notify, watch};

use crate::{call_record::Bodies, tasks::Tasks};

/// Where turns are kept, and by whom.
pub(crate) struct RunningTurns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) process: ProcessId,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bodies: Bodies,
    /// Turns of this process that have not ended, and how to end them.
    running: Mutex<HashMap<String, Running>>,
    /// Tells that one of them has ended.
    leaving: Notify,
    /// Turns that were taken from the queue and are not given back, whether they run yet or not.
    taken: Arc<Mutex<HashSet<String>>>,
    /// Counted by its clones: turns that are being put into the queue.
    pub(crate) queueing: Arc<()>,
    /// Responses whose requests this process claims or has claimed.
    claimed: Arc<Mutex<HashSet<String>>>,
    /// Whether the store could not be used when it was last told that this process lives.
    away: AtomicBool,
}

/// A turn that runs here.
struct Running {
    /// Asks it to end.
    stop: watch::Sender<bool>,
    /// Whether it is in the store yet.
    begun: bool,
}

impl RunningTurns {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        process: ProcessId,
        tasks: Tasks,
        clock: Arc<dyn Clock>,
        bodies: Bodies,
    ) -> Self {
        Self {
            store,
            process,
            tasks,
            clock,
            bodies,
            running: Mutex::default(),
            leaving: Notify::new(),
            taken: Arc::default(),
            queueing: Arc::default(),
            claimed: Arc::default(),
            away: AtomicBool::default(),
        }
    }

    /// Says whether the store could be used just now.
    pub(crate) fn store_is_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// Refuses a turn whose end could not be written anyway: no model works for nothing.
    pub(crate) fn expect_store(&self) -> Result<(), Fault> {
        match self.away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("it was away a moment ago".to_owned()).into()),
            false => Ok(()),
        }
    }

    /// A turn runs here from now on. What comes tells when it is asked to end.
    pub(crate) fn enter(&self, response_id: &str) -> watch::Receiver<bool> {
        let (stop, stopped) = watch::channel(false);
        self.running().insert(response_id.to_owned(), Running { stop, begun: false });
        stopped
    }

    /// A turn that runs here is in the store.
    pub(crate) fn begun(&self, response_id: &str) {
        if let Some(running) = self.running().get_mut(response_id) {
            running.begun = true;
        }
    }

    /// A turn runs here no more.
    pub(crate) fn leave(&self, response_id: &str) {
        self.running().remove(response_id);
        self.leaving.notify_waiters();
    }

    /// Resolves when a turn does not run here, or runs no more: its end is written then.
    pub(crate) async fn left(&self, response_id: &str) {
        loop {
            let mut leaving = std::pin::pin!(self.leaving.notified());
            // Registered before looking: one that leaves in between is not missed.
            leaving.as_mut().enable();
            if !self.running().contains_key(response_id) {
                return;
            }
            leaving.await;
        }
    }

    /// A turn from the queue is this process's business for as long as the guard lives.
    pub(crate) fn take(&self, response_id: &str) -> ClaimGuard {
        ClaimGuard::new(&self.taken, response_id)
    }

    /// A request of this process holds the claim for a response while the guard lives, or while its turn runs.
    pub(crate) fn claim(&self, response_id: &str) -> ClaimGuard {
        ClaimGuard::new(&self.claimed, response_id)
    }

    /// Asks a turn to end, if it runs here.
    pub(crate) fn cancel(&self, response_id: &str) {
        if let Some(running) = self.running().get(response_id) {
            running.stop.send_replace(true);
        }
    }

    /// Whether a turn runs here, or is about to.
    pub(crate) fn runs(&self, response_id: &str) -> bool {
        self.running().contains_key(response_id) || lock(&self.taken).contains(response_id)
    }

    /// Whether a request of this process holds the claim for a response.
    pub(crate) fn works_on(&self, response_id: &str) -> bool {
        lock(&self.claimed).contains(response_id) || self.runs(response_id)
    }

    /// The ids of the turns that run here and are in the store.
    pub(crate) fn begun_ids(&self) -> Vec<String> {
        self.running().iter().filter(|(_, running)| running.begun).map(|(id, _)| id.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        lock(&self.running)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the claim for a response until it is dropped.
#[derive(Debug)]
pub struct ClaimGuard {
    among: Arc<Mutex<HashSet<String>>>,
    response_id: String,
}

impl ClaimGuard {
    fn new(among: &Arc<Mutex<HashSet<String>>>, response_id: &str) -> Self {
        lock(among).insert(response_id.to_owned());
        Self { among: Arc::clone(among), response_id: response_id.to_owned() }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        lock(&self.among).remove(&self.response_id);
    }
}
