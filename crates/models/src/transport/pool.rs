//! The pool of idle connections.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{task::JoinSet, time::Instant};

use super::exchange::Connection;

/// How long an unused connection is kept; shorter than the 60 s after which most servers close it.
const KEEP: Duration = Duration::from_secs(50);
/// How many unused connections are kept.
const KEPT: usize = 256;

/// The idle connections to one upstream.
#[derive(Default)]
pub(super) struct Pool(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// The one that was used last is last, and is used first.
    idle: Vec<Idle>,
    /// Closes what was not used again.
    sweeping: bool,
    /// What has to be done after an answer; ends with the pool.
    tasks: JoinSet<()>,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// A connection that can be used again.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            let mut idle = self.kept().idle.pop()?;
            if idle.since.elapsed() < KEEP && idle.connection.is_quiet() {
                return Some(idle.connection);
            }
        }
    }

    /// Keeps a connection for the next request. Beyond the bound the one that has waited longest is closed.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let mut kept = self.kept();
        if kept.idle.len() >= KEPT {
            kept.idle.remove(0);
        }
        kept.idle.push(Idle { connection, since: Instant::now() });
        if !kept.sweeping && tokio::runtime::Handle::try_current().is_ok() {
            kept.sweeping = true;
            kept.tasks.spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Runs `task` after an answer, when no request waits for it.
    pub(super) fn later(&self, task: impl Future<Output = ()> + Send + 'static) {
        if tokio::runtime::Handle::try_current().is_ok() {
            let mut kept = self.kept();
            while kept.tasks.try_join_next().is_some() {}
            kept.tasks.spawn(task);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes idle connections until none is left: an upstream that gets no more requests holds no
/// sockets.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(KEEP / 5).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut kept = pool.kept();
        kept.idle.retain_mut(|idle| idle.since.elapsed() < KEEP && idle.connection.is_quiet());
        if kept.idle.is_empty() {
            kept.sweeping = false;
            return;
        }
    }
}
