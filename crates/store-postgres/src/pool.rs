//! A few connections for everything but the writes of turns.
//!
//! A caller waits for one for a bounded time, in a queue of bounded length. A connection that broke is not used again.
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

/// Work that was contended, or whose connection broke, is tried this often.
const TRIES: usize = 3;

/// Connections that are made when they are needed and kept for the next caller.
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
    /// `size` connections, `queue` callers that wait for one for `wait`; what they do with it ends at `deadline`.
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

    /// Does something that may be done again when the connection breaks: it changes nothing, or the same once more.
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

    /// Whether the database can be used now.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.repeatably(move |connection| async move { connection.rows(PING, &[]).await.map(drop) }).await
    }

    /// Does something once. When the connection breaks it is open whether it happened.
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

    /// One try: the outer error means that there was no connection and nothing happened.
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

/// A connection for one caller. The answer to a statement that was left in the middle is thrown away by the driver before
/// the next one begins; a transaction that was left ends with its connection.
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
