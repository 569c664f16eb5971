//! The turns that this process runs: where they are stored, and how each is cancelled.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use amalgam_core::{
    Clock, Fault, FaultKind, Scope, Store, StoreError, StoredPart, TurnObserver, TurnStep, TurnSummary,
    store::{ProcessId, TurnWrite, WriteOutcome},
};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    call_record::CallRecord, limiter::Limiter, request_bodies::RequestBodies, tasks::Tasks,
    unstored_turns::UnstoredTurns,
};

/// The class of a failed write in a span.
const FAILED_WRITE: &str = FaultKind::StoreDown.name();

/// The running turns of this process, with the store that they are written to.
pub(crate) struct RunningTurns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) process: ProcessId,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) bodies: RequestBodies,
    /// Receives the summaries of turns that have ended.
    pub(crate) observer: Arc<dyn TurnObserver>,
    /// Applies limits.
    pub(crate) limiter: Arc<Limiter>,
    /// The summaries of turns that are not stored, until they are written.
    pub(crate) unstored: UnstoredTurns,
    /// Turns of this process that have not ended.
    running: Mutex<HashMap<String, RunningTurn>>,
    /// The summaries of all running turns, stored or not.
    summaries: Mutex<HashMap<String, Arc<TurnSummary>>>,
    /// Notified when one of them has ended.
    unregistered: Notify,
    /// Turns that were taken from the background queue and not returned, whether or not they have started.
    taken: Arc<Mutex<HashSet<String>>>,
    /// Its clones count turns that are being added to the queue.
    pub(crate) queueing: Arc<()>,
    /// Responses whose idempotency claims this process holds or is making.
    claimed: Arc<Mutex<HashSet<String>>>,
    /// Whether the last heartbeat failed.
    store_unavailable: AtomicBool,
}

struct RunningTurn {
    /// Requests cancellation.
    cancel: watch::Sender<bool>,
    /// Whether its beginning is in the store.
    begun: bool,
}

impl RunningTurns {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        process: ProcessId,
        observer: Arc<dyn TurnObserver>,
        clock: Arc<dyn Clock>,
        bodies: RequestBodies,
    ) -> Self {
        let tasks = Tasks::default();
        let limiter = Limiter::new(Arc::clone(&store), process, Arc::clone(&clock), tasks.clone());
        Self {
            store,
            process,
            tasks,
            limiter: Arc::new(limiter),
            clock,
            bodies,
            observer,
            unstored: UnstoredTurns::default(),
            running: Mutex::default(),
            summaries: Mutex::default(),
            unregistered: Notify::new(),
            taken: Arc::default(),
            queueing: Arc::default(),
            claimed: Arc::default(),
            store_unavailable: AtomicBool::default(),
        }
    }

    /// Sets whether the last heartbeat failed.
    pub(crate) fn set_store_unavailable(&self, unavailable: bool) {
        self.store_unavailable.store(unavailable, Ordering::Relaxed);
    }

    /// Refuses a turn whose end could probably not be written, before a model is called for it.
    pub(crate) fn check_store(&self) -> Result<(), Fault> {
        match self.store_unavailable.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable("it was unavailable at the last heartbeat".to_owned()).into()),
            false => Ok(()),
        }
    }

    /// Lists a running turn until the guard is dropped.
    pub(crate) fn list(self: &Arc<Self>, summary: Arc<TurnSummary>) -> ListedUntilDropped {
        let response_id = summary.response_id.clone();
        lock(&self.summaries).insert(response_id.clone(), summary);
        ListedUntilDropped { running: Arc::clone(self), response_id }
    }

    /// The running turns of this process.
    pub(crate) fn summaries(&self) -> Vec<TurnSummary> {
        lock(&self.summaries).values().map(|summary| TurnSummary::clone(summary)).collect()
    }

    /// Writes a part of a turn, and reports how long it took.
    pub(crate) async fn write(
        &self,
        scope: &Scope,
        write: Arc<TurnWrite>,
        part: StoredPart,
        call_record: &CallRecord,
    ) -> Result<WriteOutcome, StoreError> {
        let started = Instant::now();
        let written = self.store.write(scope, write).await;
        self.observer.written(written.is_ok(), started.elapsed());
        call_record.add_span(TurnStep::Write(part), started, written.as_ref().err().map(|_| FAILED_WRITE));
        written
    }

    /// Reports the end of a turn that is not stored.
    pub(crate) fn report_unstored(&self, summary: TurnSummary) {
        self.observer.turn_ended(&summary, Vec::new());
        self.unstored.push(summary);
    }

    /// Registers a running turn. The receiver becomes `true` when cancellation is requested.
    pub(crate) fn register(&self, response_id: &str) -> watch::Receiver<bool> {
        let (cancel, cancelled) = watch::channel(false);
        self.running().insert(response_id.to_owned(), RunningTurn { cancel, begun: false });
        cancelled
    }

    /// Marks that a turn's beginning is in the store.
    pub(crate) fn mark_begun(&self, response_id: &str) {
        if let Some(running) = self.running().get_mut(response_id) {
            running.begun = true;
        }
    }

    /// Removes a turn that has ended.
    pub(crate) fn unregister(&self, response_id: &str) {
        self.running().remove(response_id);
        self.unregistered.notify_waiters();
    }

    /// Resolves when a turn does not run here any more; its end is written by then.
    pub(crate) async fn wait_until_ended(&self, response_id: &str) {
        loop {
            let mut unregistered = std::pin::pin!(self.unregistered.notified());
            // Registered before the check, so that no notification in between is missed.
            unregistered.as_mut().enable();
            if !self.running().contains_key(response_id) {
                return;
            }
            unregistered.await;
        }
    }

    /// Registers a turn from the queue until the guard is dropped.
    pub(crate) fn guard_queued(&self, response_id: &str) -> ClaimGuard {
        ClaimGuard::new(&self.taken, response_id)
    }

    /// Registers the claim for a response until the guard is dropped.
    pub(crate) fn guard_claim(&self, response_id: &str) -> ClaimGuard {
        ClaimGuard::new(&self.claimed, response_id)
    }

    /// Cancels a turn, if it runs here.
    pub(crate) fn cancel(&self, response_id: &str) {
        if let Some(running) = self.running().get(response_id) {
            running.cancel.send_replace(true);
        }
    }

    /// Whether a turn runs here, or was taken from the queue.
    pub(crate) fn runs(&self, response_id: &str) -> bool {
        self.running().contains_key(response_id) || lock(&self.taken).contains(response_id)
    }

    /// Whether a request of this process holds the claim for a response.
    pub(crate) fn holds_claim(&self, response_id: &str) -> bool {
        lock(&self.claimed).contains(response_id) || self.runs(response_id)
    }

    /// The ids of running turns whose beginning is in the store.
    pub(crate) fn begun_ids(&self) -> Vec<String> {
        self.running().iter().filter(|(_, running)| running.begun).map(|(id, _)| id.clone()).collect()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, RunningTurn>> {
        lock(&self.running)
    }
}

/// Removes a turn from the list of running ones when it is dropped.
pub(crate) struct ListedUntilDropped {
    running: Arc<RunningTurns>,
    response_id: String,
}

impl Drop for ListedUntilDropped {
    fn drop(&mut self) {
        lock(&self.running.summaries).remove(&self.response_id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a response in a set until it is dropped.
#[derive(Debug)]
pub struct ClaimGuard {
    ids: Arc<Mutex<HashSet<String>>>,
    response_id: String,
}

impl ClaimGuard {
    fn new(ids: &Arc<Mutex<HashSet<String>>>, response_id: &str) -> Self {
        lock(ids).insert(response_id.to_owned());
        Self { ids: Arc::clone(ids), response_id: response_id.to_owned() }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        lock(&self.ids).remove(&self.response_id);
    }
}
