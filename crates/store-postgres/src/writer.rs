//! Tasks that write for turns, many writes at once.
//!
//! Each task has a queue of its own, of bounded length and size, and a connection of its own. All writes of one
//! response go to the same queue, so they happen in the order of the calls. While one batch is sent, the next one
//! collects in the queue: under load a write costs less.
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{
    Scope, Stem, StoreError,
    store::{StoreMeter, TurnWrite, WriteOutcome},
};
use amalgam_store::notifications::Notifications;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
    time::{self, Instant},
};
use tracing::debug;

use super::{
    PostgresOptions, batch,
    connection::{Connection, Connector, FailureKind, PostgresFailure},
    job::Job,
};

/// At most this many writes, or about this many bytes, go in one transaction.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 2 << 20;
/// The number of attempts for a write that failed because of a concurrent one.
const TRIES: usize = 4;
/// The number of writes with an unknown outcome that are remembered, in case they are repeated.
const REMEMBERED: usize = 4096;
/// The pause between two attempts to reach a server that does not answer.
const PAUSE: Duration = Duration::from_millis(50);

/// The queues of writes.
pub(super) struct Writers {
    queues: Vec<mpsc::Sender<Job>>,
    bytes: Arc<AtomicUsize>,
    most_bytes: usize,
}

impl Writers {
    /// Starts the tasks; they end with `tasks`.
    pub(super) fn start(
        options: &PostgresOptions,
        connector: &Connector,
        notifications: &Arc<Notifications>,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let bytes = Arc::new(AtomicUsize::new(0));
        let queues = (0..options.writers.max(1)).map(|_| {
            // A full queue refuses a write at once: the store is busy.
            let (queue, jobs) = mpsc::channel(options.queue.div_ceil(options.writers.max(1)));
            let writer = Writer {
                jobs,
                bytes: Arc::clone(&bytes),
                connector: connector.clone(),
                connection: None,
                notifications: Arc::clone(notifications),
                unsettled: HashSet::new(),
                flushes: options.flushes.clone(),
                wait: options.wait,
                deadline: options.deadline,
            };
            tasks.spawn(writer.run());
            queue
        });
        Self { queues: queues.collect(), bytes, most_bytes: options.queue_bytes }
    }

    /// Enqueues a write and waits for its outcome.
    pub(super) async fn write(
        &self,
        scope: &Scope,
        stem: Stem,
        write: Arc<TurnWrite>,
    ) -> Result<WriteOutcome, StoreError> {
        let mut hasher = DefaultHasher::new();
        write.response_id.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % self.queues.len().max(1) as u64).unwrap_or_default();
        let queue = self.queues.get(at).ok_or(StoreError::Busy)?;
        let (answer, answered) = oneshot::channel();
        let job = Job::new(scope, stem, write, answer);
        let bytes = job.bytes;
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // A write that is larger than the limit of the queue is accepted when the queue is empty.
        let fits = before == 0 || before + bytes <= self.most_bytes;
        if !fits || queue.try_send(job).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(StoreError::Busy);
        }
        answered.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store is closed".to_owned())))
    }
}

struct Writer {
    jobs: mpsc::Receiver<Job>,
    bytes: Arc<AtomicUsize>,
    connector: Connector,
    connection: Option<Connection>,
    notifications: Arc<Notifications>,
    /// The marks of writes whose outcome is unknown.
    unsettled: HashSet<i64>,
    /// Counts commits.
    flushes: StoreMeter,
    wait: Duration,
    deadline: Duration,
}

impl Writer {
    async fn run(mut self) {
        let mut next = None;
        loop {
            let first = match next.take() {
                Some(job) => job,
                None => match self.jobs.recv().await {
                    Some(job) => job,
                    None => return,
                },
            };
            let mut bytes = first.bytes;
            let mut ids = HashSet::from([first.write.response_id.clone()]);
            let mut jobs = vec![first];
            while jobs.len() < BATCH && bytes < BATCH_BYTES {
                let Ok(job) = self.jobs.try_recv() else { break };
                // The next step of a response that is in this batch starts the next batch.
                if !ids.insert(job.write.response_id.clone()) {
                    next = Some(job);
                    break;
                }
                bytes += job.bytes;
                jobs.push(job);
            }
            if let Err(error) = self.write(&mut jobs).await {
                // Jobs that have arrived meanwhile would wait for the same server.
                while let Some(mut job) = next.take().or_else(|| self.jobs.try_recv().ok()) {
                    bytes += job.bytes;
                    job.answer(Err(error.clone()));
                }
            }
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Writes a batch and answers its jobs. An error means that the server cannot be reached.
    async fn write(&mut self, jobs: &mut [Job]) -> Result<(), StoreError> {
        jobs.sort_by(|one, other| one.contested().cmp(&other.contested()));
        let failure = match self.attempt(jobs).await {
            Ok(written) => {
                for (job, written) in jobs.iter_mut().zip(written) {
                    self.settle(job, Ok(written)).await;
                }
                return Ok(());
            }
            Err(Attempt::NoConnection(error)) => {
                jobs.iter_mut().for_each(|job| job.answer(Err(error.clone())));
                return Err(error);
            }
            Err(Attempt::Failed(failure)) => failure,
        };
        if failure.kind() == FailureKind::Unavailable {
            let error = StoreError::from(failure);
            jobs.iter_mut().for_each(|job| job.answer(Err(error.clone())));
            return Ok(());
        }
        // One invalid write must not make the others fail, and after a lost connection each is checked by itself.
        let cut = failure.kind() == FailureKind::Disconnected;
        debug!(writes = jobs.len(), "a batch of writes failed and is tried one by one: {failure}");
        let mut jobs = jobs.iter_mut();
        while let Some(job) = jobs.next() {
            if let Err(error) = self.write_one(job, cut).await {
                for job in jobs {
                    self.remember(job, cut);
                    job.answer(Err(error.clone()));
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes one job that may have been committed already (`cut`). An error means that the server cannot be reached.
    async fn write_one(&mut self, job: &mut Job, mut cut: bool) -> Result<(), StoreError> {
        let mut last = None;
        let mut was_cut = cut;
        for _ in 0..TRIES {
            if cut {
                match self.look(job).await {
                    Ok(true) => {
                        self.settle(job, Ok(WriteOutcome::Kept)).await;
                        return Ok(());
                    }
                    Ok(false) => {}
                    Err(error) => {
                        self.remember(job, true);
                        job.answer(Err(error.clone()));
                        return Err(error);
                    }
                }
            }
            let outcome = match self.attempt(std::slice::from_ref(job)).await {
                Ok(written) => Ok(written.first().copied().unwrap_or(WriteOutcome::Lost)),
                Err(Attempt::NoConnection(error)) => {
                    self.remember(job, was_cut);
                    job.answer(Err(error.clone()));
                    return Err(error);
                }
                Err(Attempt::Failed(failure)) => match failure.kind() {
                    FailureKind::Contended | FailureKind::Disconnected => {
                        cut = failure.kind() == FailureKind::Disconnected;
                        was_cut |= cut;
                        last = Some(failure);
                        continue;
                    }
                    FailureKind::Unavailable | FailureKind::Duplicate | FailureKind::Broken => Err(failure),
                },
            };
            // The server may have committed an attempt whose connection was cut, after this task looked for it. Then
            // that attempt is the conflict, and the write is looked for as a repeated one.
            self.remember(job, was_cut);
            self.settle(job, outcome).await;
            return Ok(());
        }
        self.remember(job, cut);
        let error = last.map_or_else(|| StoreError::Unavailable("the write did not go through".to_owned()), Into::into);
        job.answer(Err(error));
        Ok(())
    }

    /// Answers the job and notifies the tasks of this process that wait for the change.
    async fn settle(&mut self, job: &mut Job, outcome: Result<WriteOutcome, PostgresFailure>) {
        let refused = is_refused(&outcome);
        let mut outcome = outcome.map_err(StoreError::from);
        // A repeated write whose outcome was unknown.
        let unsettled = self.unsettled.remove(&job.mark);
        if refused && unsettled {
            match self.look(job).await {
                Ok(true) => outcome = Ok(WriteOutcome::Kept),
                Ok(false) => {}
                Err(error) => {
                    self.remember(job, true);
                    return job.answer(Err(error));
                }
            }
        }
        if refused && outcome.is_err() && job.write.begin.is_some() {
            // The id exists already.
            outcome = Ok(WriteOutcome::Lost);
        }
        if matches!(outcome, Ok(WriteOutcome::Kept)) {
            let session = job.session_topic();
            let others = job.is_queued().then_some("").into_iter().chain(session.as_deref());
            self.notifications.notify([job.write.response_id.as_str()].into_iter().chain(others));
        }
        job.answer(outcome);
    }

    /// Whether the write was committed; tries to reach the server for a while.
    async fn look(&mut self, job: &Job) -> Result<bool, StoreError> {
        let until = Instant::now() + self.wait;
        loop {
            let looked = match self.connected().await {
                Ok(()) => {
                    let connection = self.connection.as_ref().expect("it is connected");
                    match time::timeout(self.deadline, batch::has_happened(connection, job)).await {
                        Ok(looked) => looked.map_err(StoreError::from),
                        Err(_) => Err(PostgresFailure::timed_out().into()),
                    }
                }
                Err(error) => Err(error),
            };
            match looked {
                Ok(happened) => return Ok(happened),
                Err(error) if Instant::now() + PAUSE >= until => return Err(error),
                Err(_) => {
                    self.connection = None;
                    time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Remembers that the outcome of a write is unknown, in case it is repeated.
    fn remember(&mut self, job: &Job, cut: bool) {
        if cut {
            if self.unsettled.len() >= REMEMBERED {
                self.unsettled.clear();
            }
            self.unsettled.insert(job.mark);
        }
    }

    /// Makes one attempt to write some jobs in one transaction.
    async fn attempt(&mut self, jobs: &[Job]) -> Result<Vec<WriteOutcome>, Attempt> {
        self.connected().await.map_err(Attempt::NoConnection)?;
        let connection = self.connection.as_ref().expect("it is connected");
        let started = Instant::now();
        let done = match time::timeout(self.deadline, batch::run(connection, jobs)).await {
            Ok(done) => done,
            Err(_) => Err(PostgresFailure::timed_out()),
        };
        // Turns that wait for limits are notified.
        let topics = connection.take_topics();
        if done.is_ok() {
            self.flushes.add(jobs.len(), started.elapsed());
            self.notifications.notify(topics.iter().map(String::as_str));
        }
        done.map_err(|failure| {
            if failure.kind() == FailureKind::Disconnected {
                self.connection = None;
            }
            Attempt::Failed(failure)
        })
    }

    async fn connected(&mut self) -> Result<(), StoreError> {
        if self.connection.as_ref().is_none_or(Connection::is_closed) {
            self.connection = None;
            self.connection = Some(self.connector.connect().await?);
        }
        Ok(())
    }
}

/// Whether an existing row caused a conflict.
fn is_refused(outcome: &Result<WriteOutcome, PostgresFailure>) -> bool {
    match outcome {
        Ok(written) => *written == WriteOutcome::Lost,
        Err(failure) => failure.kind() == FailureKind::Duplicate,
    }
}

/// Why an attempt failed.
enum Attempt {
    /// The server was not reached: nothing was written.
    NoConnection(StoreError),
    /// The server was reached, and the write failed.
    Failed(PostgresFailure),
}
