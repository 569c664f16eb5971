//! The engine: its settings, its running turns, and what other parts of the process ask of it.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Clock, Fetch, Ids, Store, TurnObserver, TurnSummary, store::ProcessId};

use crate::{admission::Admission, request_bodies::RequestBodies, running_turns::RunningTurns, turn_tools::ToolLimits};

/// Limits and intervals of turns.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// The longest duration of a turn, from its first byte to its last.
    pub turn_deadline: Duration,
    /// The silence after which a stream sends a keepalive event.
    pub keepalive: Duration,
    /// The longest time that the caller of a stream waits for the response head while no model has accepted.
    pub head_after: Duration,
    /// How long the transcripts of stored turns are stored; `None` if they are not.
    pub transcripts: Option<Duration>,
    /// The largest total size of the uploaded files of one prompt, and of the images that are fetched for it.
    pub upload_bytes: usize,
    /// Limits of server-run tools.
    pub tools: ToolLimits,
    /// The output tokens that limits reserve for a call whose request does not bound them.
    pub reserve_output_tokens: u64,
}

/// Runs turns.
#[derive(Clone)]
pub struct Engine {
    pub(crate) settings: EngineSettings,
    pub(crate) admission: Admission,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) running: Arc<RunningTurns>,
}

/// The id and the creation time of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `resp_…`
    pub response_id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

impl Engine {
    /// An engine with this process's clock, HTTP client for callers' addresses and store.
    pub fn new(
        settings: EngineSettings,
        admission: Admission,
        clock: Arc<dyn Clock>,
        fetch: Arc<dyn Fetch>,
        store: Arc<dyn Store>,
        process: ProcessId,
        observer: Arc<dyn TurnObserver>,
    ) -> Self {
        let bodies = RequestBodies::new(settings.transcripts.unwrap_or_default());
        let running = Arc::new(RunningTurns::new(store, process, observer, Arc::clone(&clock), bodies));
        Self { settings, admission, clock, fetch, running }
    }

    /// The same engine, with the same running turns, and other settings for new turns.
    #[must_use]
    pub fn with_settings(&self, settings: EngineSettings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// The observer of turns.
    pub fn observer(&self) -> &Arc<dyn TurnObserver> {
        &self.running.observer
    }

    /// The number of turns that run now.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// The number of turns that wait until they may run.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// The turns that run in this process, stored or not.
    pub fn running_turns(&self) -> Vec<TurnSummary> {
        self.running.summaries()
    }

    /// The id of this process in the store.
    pub fn process(&self) -> ProcessId {
        self.running.process
    }

    /// The longest duration of a turn.
    pub fn turn_deadline(&self) -> Duration {
        self.settings.turn_deadline
    }

    /// The longest time that the caller of a stream waits for the response head while no model has accepted.
    pub fn head_after(&self) -> Duration {
        self.settings.head_after
    }

    /// Cancels a turn, if it runs in this process.
    pub fn cancel(&self, response_id: &str) {
        self.running.cancel(response_id);
    }

    /// Cancels a turn, if it runs in this process, and waits at most `patience` until its end is in the store.
    pub async fn cancel_and_wait(&self, response_id: &str, patience: Duration) {
        self.running.cancel(response_id);
        // After the timeout the caller reads what is stored so far.
        let _ = tokio::time::timeout(patience, self.running.wait_until_ended(response_id)).await;
    }

    /// A new response id, created now.
    pub fn identity(&self) -> Identity {
        let created_at_ms = self.clock.now_ms();
        Identity { response_id: Ids::Unguessable.response(created_at_ms), created_at_ms }
    }
}
