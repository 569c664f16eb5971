//! The queue of a session: its turns run one after the other, in the order in which they came, whichever process they came
//! to.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{
    Fault, FaultKind, Scope,
    store::{MetadataRecord, NewUserMessage, SessionHistory, Ticket, session_topic},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tracing::warn;

use crate::app::Application;

/// How often a waiting turn asks the store whether it is next, besides being notified.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The turns of this process that wait, by session and number. Only the first of them in a session asks the store whether it
/// is next: a long queue costs the store no more than a short one.
#[derive(Default)]
pub struct SessionQueues(Mutex<BySession>);

type BySession = HashMap<i64, BTreeMap<i64, Arc<Notify>>>;

impl SessionQueues {
    /// How many turns wait.
    pub fn waiting(&self) -> usize {
        self.lock().values().map(BTreeMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, BySession> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A turn that waits in this process. Notifies the next one when it is dropped.
struct WaitingTurn {
    app: Arc<Application>,
    ticket: Ticket,
    called: Arc<Notify>,
}

impl WaitingTurn {
    fn new(app: &Arc<Application>, ticket: Ticket) -> Self {
        let called = Arc::new(Notify::new());
        let mut queues = app.session_queues.lock();
        queues.entry(ticket.session_id).or_default().insert(ticket.number, Arc::clone(&called));
        Self { app: Arc::clone(app), ticket, called }
    }

    /// Resolves when no turn of this process is before it in the queue.
    async fn first(&self) {
        while !self.is_first() {
            self.called.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        let queues = self.app.session_queues.lock();
        let first = queues.get(&self.ticket.session_id).and_then(|queue| queue.keys().next());
        first.is_none_or(|first| *first >= self.ticket.number)
    }
}

impl Drop for WaitingTurn {
    fn drop(&mut self) {
        let mut queues = self.app.session_queues.lock();
        let Some(queue) = queues.get_mut(&self.ticket.session_id) else { return };
        queue.remove(&self.ticket.number);
        match queue.values().next() {
            Some(next) => next.notify_one(),
            None => drop(queues.remove(&self.ticket.session_id)),
        }
    }
}

/// A place in the queue of a session. Dropping it leaves the queue.
pub(super) struct QueuePosition {
    app: Arc<Application>,
    scope: Scope,
    ticket: Option<Ticket>,
}

impl QueuePosition {
    /// Joins the queue and waits until the turn is next.
    pub(super) async fn take(app: &Arc<Application>, scope: &Scope, profile: Option<&str>) -> Result<Self, Fault> {
        let deadline = Instant::now() + app.engine.turn_deadline();
        let ticket = app.store.join_queue(scope, profile, app.engine.process(), app.clock.now_ms()).await?;
        let place = Self { app: Arc::clone(app), scope: scope.clone(), ticket: Some(ticket) };
        let waiting = WaitingTurn::new(app, ticket);
        loop {
            if timeout_at(deadline, waiting.first()).await.is_err() {
                return Err(too_late());
            }
            let changed = app.store.changed(&session_topic(ticket.session_id));
            match app.store.is_next(scope, ticket).await? {
                Some(true) => return Ok(place),
                None => return Err(gone()),
                Some(false) if Instant::now() >= deadline => return Err(too_late()),
                Some(false) => {
                    let _ = timeout(LOOK_AGAIN, changed).await;
                }
            }
        }
    }

    /// Appends the user's message to the session.
    pub(super) async fn append(&mut self, words: NewUserMessage) -> Result<(Ticket, SessionHistory), Fault> {
        let ticket = self.ticket.ok_or_else(gone)?;
        let heard = self.app.store.append_message(&self.scope, ticket, words).await?.ok_or_else(gone)?;
        Ok((ticket, heard))
    }

    /// The turn runs, and its end leaves the queue.
    pub(super) fn hand_on(mut self) {
        self.ticket = None;
    }

    /// The turn failed to start: leaves the queue, and marks the user's message with the reason. RNCC-20
    pub(super) async fn fail(mut self, code: &str, message: &str) {
        let Some(ticket) = self.ticket.take() else { return };
        let reason = MetadataRecord::new("error", |writer| {
            writer.key("code").string(code);
            writer.key("message").string(message);
        });
        if let Err(error) = self.app.store.leave_queue(&self.scope, ticket, Some(reason)).await {
            warn!("a turn could not leave the queue of its session: {error}");
        }
    }
}

fn too_late() -> Fault {
    Fault::new(FaultKind::Deadline, "The turns before this one are not done yet.")
}

fn gone() -> Fault {
    Fault::new(FaultKind::StoreDown, "The place in the line is gone; try again.")
        .retry_after(Some(Duration::from_secs(1)))
}

impl Drop for QueuePosition {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (app, scope) = (Arc::clone(&self.app), self.scope.clone());
        let reason = MetadataRecord::new("error", |writer| {
            writer.key("code").string("cancelled");
            writer.key("message").string("The caller left before it was answered.");
        });
        self.app.engine.outlive(async move {
            if let Err(error) = app.store.leave_queue(&scope, ticket, Some(reason)).await {
                warn!("a turn could not leave the queue of its session: {error}");
            }
        });
    }
}
