//! The line of those who want to speak in one thread: one after the other, in the order in which they came, whichever
//! process they came to.

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

use crate::app::App;

/// How often somebody in the line looks whether its time has come, besides being woken.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Those who stand in lines at this process, by thread and number. Only the first of them in a line asks the store
/// whether its time has come: a long line costs the store no more than a short one.
#[derive(Default)]
pub(crate) struct Lines(Mutex<ByThread>);

type ByThread = HashMap<i64, BTreeMap<i64, Arc<Notify>>>;

impl Lines {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().values().map(BTreeMap::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, ByThread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody who waits in a line at this process. Lets the next one come forward when it goes.
struct Standing {
    app: Arc<App>,
    ticket: Ticket,
    called: Arc<Notify>,
}

impl Standing {
    fn new(app: &Arc<App>, ticket: Ticket) -> Self {
        let called = Arc::new(Notify::new());
        let mut lines = app.lines.lock();
        lines.entry(ticket.session_id).or_default().insert(ticket.number, Arc::clone(&called));
        Self { app: Arc::clone(app), ticket, called }
    }

    /// Returns when nobody of this process stands before it.
    async fn first(&self) {
        while !self.is_first() {
            self.called.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        let lines = self.app.lines.lock();
        let first = lines.get(&self.ticket.session_id).and_then(|line| line.keys().next());
        first.is_none_or(|first| *first >= self.ticket.number)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut lines = self.app.lines.lock();
        let Some(line) = lines.get_mut(&self.ticket.session_id) else { return };
        line.remove(&self.ticket.number);
        match line.values().next() {
            Some(next) => next.notify_one(),
            None => drop(lines.remove(&self.ticket.session_id)),
        }
    }
}

/// A place in the line. Whoever leaves gives it up.
pub(super) struct Place {
    app: Arc<App>,
    scope: Scope,
    ticket: Option<Ticket>,
}

impl Place {
    /// Gets in line and waits until its time has come.
    pub(super) async fn take(app: &Arc<App>, scope: &Scope, profile: Option<&str>) -> Result<Self, Fault> {
        let deadline = Instant::now() + app.engine.turn_deadline();
        let ticket = app.store.join_queue(scope, profile, app.engine.process(), app.clock.now_ms()).await?;
        let place = Self { app: Arc::clone(app), scope: scope.clone(), ticket: Some(ticket) };
        let standing = Standing::new(app, ticket);
        loop {
            if timeout_at(deadline, standing.first()).await.is_err() {
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

    /// Says what the user says.
    pub(super) async fn speak(&mut self, words: NewUserMessage) -> Result<(Ticket, SessionHistory), Fault> {
        let ticket = self.ticket.ok_or_else(gone)?;
        let heard = self.app.store.append_message(&self.scope, ticket, words).await?.ok_or_else(gone)?;
        Ok((ticket, heard))
    }

    /// The turn that answers runs, and its end gives the place up.
    pub(super) fn hand_on(mut self) {
        self.ticket = None;
    }

    /// Nobody answers: the place is given up, and what was said is marked with the reason. RNCC-20
    pub(super) async fn fail(mut self, code: &str, message: &str) {
        let Some(ticket) = self.ticket.take() else { return };
        let reason = MetadataRecord::new("error", |writer| {
            writer.key("code").string(code);
            writer.key("message").string(message);
        });
        if let Err(error) = self.app.store.leave_queue(&self.scope, ticket, Some(reason)).await {
            warn!("a place in a line could not be given up: {error}");
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

impl Drop for Place {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let (app, scope) = (Arc::clone(&self.app), self.scope.clone());
        let reason = MetadataRecord::new("error", |writer| {
            writer.key("code").string("cancelled");
            writer.key("message").string("The caller left before it was answered.");
        });
        self.app.engine.outlive(async move {
            if let Err(error) = app.store.leave_queue(&scope, ticket, Some(reason)).await {
                warn!("a place in a line could not be given up: {error}");
            }
        });
    }
}
