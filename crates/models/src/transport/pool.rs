//! The pool of idle connections.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::exchange::Connection;

/// How long an idle connection is kept; shorter than the 60 s after which most servers close it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The maximum number of idle connections.
const MAX_IDLE: usize = 256;

/// The idle connections to one upstream.
#[derive(Default)]
pub(super) struct Pool(Mutex<PoolState>);

#[derive(Default)]
struct PoolState {
    /// The most recently used connection is last, and is reused first.
    idle: Vec<Idle>,
    /// Whether the task that closes expired connections runs.
    sweeping: bool,
    /// Work after an answer; aborted with the pool.
    tasks: JoinSet<()>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// Takes an idle connection that is still usable.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            let mut idle = self.state().idle.pop()?;
            if idle.since.elapsed() < IDLE_TIMEOUT && idle.connection.is_quiet() {
                return Some(idle.connection);
            }
        }
    }

    /// Adds an idle connection. Above the maximum the oldest one is closed.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let mut state = self.state();
        if state.idle.len() >= MAX_IDLE {
            state.idle.remove(0);
        }
        state.idle.push(Idle { connection, since: Instant::now() });
        if !state.sweeping && tokio::runtime::Handle::try_current().is_ok() {
            state.sweeping = true;
            state.tasks.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Spawns work after an answer, for which no request waits.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let mut state = self.state();
            while state.tasks.try_join_next().is_some() {}
            state.tasks.spawn(task);
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes expired connections until none is left, so that an unused upstream holds no sockets.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(IDLE_TIMEOUT / 5).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut state = pool.state();
        state.idle.retain_mut(|idle| idle.since.elapsed() < IDLE_TIMEOUT && idle.connection.is_quiet());
        if state.idle.is_empty() {
            state.sweeping = false;
            return;
        }
    }
}
