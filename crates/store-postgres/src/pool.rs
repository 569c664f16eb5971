//! A few connections for everything but the writes of turns.
//!
//! A caller waits for a connection for a bounded time, in a queue of bounded length. A connection that broke is not
//! used again.
use std::{
    ops::{Deref, DerefMut},
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::StoreError;
use amalgam_store::statements;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};

use super::connection::{Connection, Connector, FailureKind, PostgresFailure};

statements! {
    OperatorSql PING = "SELECT 1 FROM memory LIMIT 1";
}

/// The number of attempts for work that was contended, or whose connection broke.
const TRIES: usize = 3;

/// A pool of connections, which are opened when they are needed and reused.
pub(super) struct Pool {
    connector: Connector,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue: usize,
    wait: Duration,
    deadline: Duration,
}

impl Pool {
    /// A pool of `size` connections. `queue` callers can wait for one for `wait`; their work ends at `deadline`.
    pub(super) fn new(connector: Connector, size: usize, queue: usize, wait: Duration, deadline: Duration) -> Self {
        Self {
            connector,
            idle: Arc::default(),
            permits: Arc::new(Semaphore::new(size)),
            waiting: AtomicUsize::new(0),
            queue,
            wait,
            deadline,
        }
    }

    /// Runs work that can be repeated if the connection breaks: it only reads, or a second run has the same effect.
    pub(super) async fn repeatably<T, F>(&self, work: impl Fn(Lease) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, PostgresFailure>>,
    {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(&work, tries > 1).await? {
                Err(failure)
                    if tries < TRIES
                        && matches!(failure.kind(), FailureKind::Disconnected | FailureKind::Contended) => {}
                done => return done.map_err(StoreError::from),
            }
        }
    }

    /// Checks that the database is available.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.repeatably(move |connection| async move { connection.rows(PING, &[]).await.map(drop) }).await
    }

    /// Runs work once. If the connection breaks, the work may or may not have been done.
    pub(super) async fn once<T, F>(&self, work: impl Fn(Lease) -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, PostgresFailure>>,
    {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.attempt(&work, tries > 1).await? {
                Err(failure) if tries < TRIES && failure.kind() == FailureKind::Contended => {}
                done => return done.map_err(StoreError::from),
            }
        }
    }

    /// One attempt: the outer error means that there was no connection and nothing was done.
    pub(super) async fn attempt<T, F>(
        &self,
        work: &impl Fn(Lease) -> F,
        repeated: bool,
    ) -> Result<Result<T, PostgresFailure>, StoreError>
    where
        F: Future<Output = Result<T, PostgresFailure>>,
    {
        let mut lease = self.lease().await?;
        lease.start(repeated);
        let overdue = Arc::clone(&lease.overdue);
        let mut work = pin!(work(lease));
        Ok(match time::timeout(self.deadline, work.as_mut()).await {
            Ok(done) => done,
            Err(_) => {
                // Set before the work, and with it the lease, is dropped.
                overdue.store(true, Ordering::Relaxed);
                Err(PostgresFailure::timed_out())
            }
        })
    }

    async fn lease(&self) -> Result<Lease, StoreError> {
        let permit = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait_for_permit().await?,
        };
        let connection = loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(connection) if connection.is_closed() => {}
                Some(connection) => break connection,
                None => break self.connector.connect().await?,
            }
        };
        let idle = Arc::clone(&self.idle);
        Ok(Lease { connection: Some(connection), overdue: Arc::default(), idle, _permit: permit })
    }

    async fn wait_for_permit(&self) -> Result<OwnedSemaphorePermit, StoreError> {
        struct Waiting<'a>(&'a AtomicUsize);
        impl Drop for Waiting<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.queue {
            return Err(StoreError::Busy);
        }
        match time::timeout(self.wait, Arc::clone(&self.permits).acquire_owned()).await {
            Ok(permit) => Ok(permit.expect("the semaphore is never closed")),
            Err(_) => Err(StoreError::Unavailable("all connections to the database are in use".to_owned())),
        }
    }
}

/// A connection for one caller. If the caller drops a statement, the driver discards its answer before the next one
/// begins; a dropped transaction closes its connection.
pub(super) struct Lease {
    connection: Option<Connection>,
    /// The connection did not answer in time, and is not used again.
    overdue: Arc<AtomicBool>,
    idle: Arc<Mutex<Vec<Connection>>>,
    _permit: OwnedSemaphorePermit,
}

impl Deref for Lease {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("a lease has its connection until it is dropped")
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("a lease has its connection until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let reusable = |connection: &Connection| connection.is_reusable() && !self.overdue.load(Ordering::Relaxed);
        if let Some(connection) = self.connection.take().filter(reusable) {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
    }
}
