//! The session queue: the turns of a session run one at a time, in order of arrival, whichever process received them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{
    Fault, FaultKind, Scope, TurnQueue, TurnStep,
    store::{MetadataRecord, NewUserMessage, SessionHistory, Ticket, session_topic},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout, timeout_at},
};
use tracing::warn;

use crate::{app::Application, turns::add_step};

/// How often a waiting turn polls the store for its position, besides being notified.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The waiting turns of this process, by session and ticket number. Only the first of each session polls the store, so
/// a long queue costs the store no more than a short one. Clones are the same queues.
#[derive(Clone, Default)]
pub struct SessionQueues(Arc<Mutex<BySession>>);

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

/// A waiting turn of this process. Dropping it notifies the next one.
struct WaitingTurn {
    app: Arc<Application>,
    ticket: Ticket,
    first_notify: Arc<Notify>,
}

impl WaitingTurn {
    fn new(app: &Arc<Application>, ticket: Ticket) -> Self {
        let first_notify = Arc::new(Notify::new());
        let mut queues = app.session_queues.lock();
        queues.entry(ticket.session_id).or_default().insert(ticket.number, Arc::clone(&first_notify));
        Self { app: Arc::clone(app), ticket, first_notify }
    }

    /// Resolves when no turn of this process is ahead in the queue.
    async fn first(&self) {
        while !self.is_first() {
            self.first_notify.notified().await;
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

/// A position in the queue of a session. Dropping it leaves the queue.
pub(super) struct QueuePosition {
    app: Arc<Application>,
    scope: Scope,
    ticket: Option<Ticket>,
}

impl QueuePosition {
    /// Joins the queue with the user's message. Returns the history if the turn is first at once; otherwise the turn
    /// has to wait.
    pub(super) async fn join(
        app: &Arc<Application>,
        scope: &Scope,
        profile: Option<&str>,
        message: NewUserMessage,
    ) -> Result<(Self, Ticket, Option<SessionHistory>), Fault> {
        let (process, now_ms) = (app.engine.process(), app.clock.now_ms());
        let entry = app.store.join_queue(scope, profile, process, now_ms, Some(message)).await?;
        let position = Self { app: Arc::clone(app), scope: scope.clone(), ticket: Some(entry.ticket) };
        Ok((position, entry.ticket, entry.history))
    }

    /// Waits until the turn is next.
    pub(super) async fn wait(&self) -> Result<(), Fault> {
        let Self { app, scope, .. } = self;
        let ticket = self.ticket.ok_or_else(lost_position)?;
        let started = Instant::now();
        let deadline = started + app.engine.turn_deadline();
        let waiting = WaitingTurn::new(app, ticket);
        loop {
            if timeout_at(deadline, waiting.first()).await.is_err() {
                return Err(too_late());
            }
            let changed = app.store.changed(&session_topic(ticket.session_id));
            match app.store.is_next(scope, ticket).await? {
                Some(true) => {
                    app.engine.observer().waited(TurnQueue::Session, started.elapsed());
                    add_step(scope, TurnStep::Queue(TurnQueue::Session), started);
                    return Ok(());
                }
                None => return Err(lost_position()),
                Some(false) if Instant::now() >= deadline => return Err(too_late()),
                Some(false) => {
                    let _ = timeout(POLL_INTERVAL, changed).await;
                }
            }
        }
    }

    /// Appends the user's message to the session.
    pub(super) async fn append(&self, message: NewUserMessage) -> Result<SessionHistory, Fault> {
        let ticket = self.ticket.ok_or_else(lost_position)?;
        self.app.store.append_message(&self.scope, ticket, message).await?.ok_or_else(lost_position)
    }

    /// The turn runs; its last write leaves the queue.
    pub(super) fn keep_for_turn(mut self) {
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

fn lost_position() -> Fault {
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
        self.app.engine.spawn_detached(async move {
            if let Err(error) = app.store.leave_queue(&scope, ticket, Some(reason)).await {
                warn!("a turn could not leave the queue of its session: {error}");
            }
        });
    }
}
