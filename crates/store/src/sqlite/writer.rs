//! The one thread that writes. What waits together is committed together, with one flush of the disk.
//!
//! Where there is a redo log, steps of turns are acknowledged as soon as it has them on disk. The transaction that they were
//! run in stays open and is committed when it is due, when somebody wants to read what is in it, or together with work that
//! the redo log is not for. What was acknowledged and gets lost with its transaction is run again first of all.

use std::{
    cell::RefCell,
    fs::File,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use amalgam_core::StoreError;
use rusqlite::Connection;
use tracing::{info, warn};

use super::{
    ahead::Ahead,
    checkpoint::{Log, LogState},
    failure::Failure,
    file,
    job::{Done, Job, Transaction},
    query::Database,
    queue::{Queue, Taken},
    redo::{self, Batch, Redo, RedoFile, Sequence},
};
use crate::bells::Bells;

/// So many pieces of work share a commit at most: what waits behind them must not wait for long.
const GROUP: usize = 256;

/// A transaction with steps that were acknowledged stays open for so long, and while they have no more bytes than this.
const LINGER: Duration = Duration::from_millis(20);
const LINGER_BYTES: usize = 1024 * 1024;
/// If it cannot be committed then, so long passes before the next try that nobody asks for.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
    pub(super) bells: Arc<Bells>,
    pub(super) log: Arc<Log>,
    pub(super) ahead: Arc<Ahead>,
    /// Whether the store was opened on a disk without room, and nothing was committed since.
    pub(super) read_only: Arc<AtomicBool>,
}

/// A connection that writes, and the log beside its database where commits do not flush it.
pub(super) struct Desk {
    connection: Connection,
    log: Option<File>,
    access: Access,
}

/// What a connection is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Full,
    /// The disk has no room: transactions are rolled back.
    Read,
}

/// What the thread begins with.
pub(super) struct Start {
    desk: Desk,
    flushes: Flushes,
    redo: Option<Redo>,
    owed: Vec<u8>,
    marked: Sequence,
}

impl Start {
    /// The connection, before the thread has it.
    pub(super) fn connection(&self) -> &Connection {
        &self.desk.connection
    }
}

impl Writer {
    /// What the thread begins with, where the database has everything that was acknowledged.
    pub(super) fn start(&self, redo: Option<RedoFile>) -> Result<Start, Failure> {
        let flushes = Flushes::with(redo.as_ref());
        let desk = self.open(flushes)?;
        let known = Database::new(&desk.connection).redo()?;
        let redo = redo.zip(known).map(|(file, known)| Redo::begin(file, known));
        let marked = redo.as_ref().map_or(0, Redo::last);
        Ok(Start { desk, flushes, redo, owed: Vec::new(), marked })
    }

    /// What the thread begins with on a disk without room.
    pub(super) fn start_to_read(&self, redo: Option<RedoFile>) -> Result<Start, Failure> {
        let flushes = Flushes::with(redo.as_ref());
        let desk = self.open_to_read()?;
        let known = Database::new(&desk.connection).redo()?;
        let Some((file, known)) = redo.zip(known) else {
            return Ok(Start { desk, flushes, redo: None, owed: Vec::new(), marked: 0 });
        };
        let (owed, last) = redo::unapplied(&self.path, &file, known)?;
        let redo = Redo::resume(file, known, last);
        Ok(Start { desk, flushes, redo: Some(redo), owed, marked: known.applied })
    }

    fn open(&self, flushes: Flushes) -> Result<Desk, Failure> {
        let mut connection = file::open_writer(&self.path, self.max_bytes)?;
        self.log.watch(&mut connection)?;
        let log = match flushes {
            Flushes::AtEveryCommit => None,
            Flushes::ByHand => Some(file::flush_by_hand(&connection, &self.path)??),
        };
        Ok(Desk { connection, log, access: Access::Full })
    }

    fn open_to_read(&self) -> Result<Desk, Failure> {
        Ok(Desk { connection: file::open_to_read(&self.path)?, log: None, access: Access::Read })
    }

    /// Opens the database again.
    fn reopen(&self, flushes: Flushes) -> Result<Desk, Failure> {
        if !self.read_only.load(Ordering::Relaxed) {
            return self.open(flushes);
        }
        match self.open(flushes) {
            Ok(desk) => {
                // What is owed may be more than fits into the cache, and is read before it can be committed.
                file::keep_in_memory(&desk.connection)?;
                Ok(desk)
            }
            // Other connections would be in its way, and there are none yet.
            Err(failure) => self.open_to_read().map_err(|_| failure),
        }
    }

    /// Works until the queue is closed and empty.
    pub(super) fn run(self, start: Start) {
        let Start { desk, flushes, redo, owed, marked } = start;
        let due_at = (!owed.is_empty()).then(Instant::now);
        let work =
            Work { writer: &self, flushes, desk: Some(desk), redo, batch: RefCell::default(), owed, due_at, marked };
        work.run();
    }
}

/// Who sees to it that a commit is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flushes {
    AtEveryCommit,
    ByHand,
}

impl Flushes {
    /// With a redo log, most commits need not be on disk.
    fn with(redo: Option<&RedoFile>) -> Self {
        match redo {
            Some(_) => Self::ByHand,
            None => Self::AtEveryCommit,
        }
    }
}

/// Whether those who come while a group is worked on join it: one flush is for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Open,
    Closed,
}

/// What the thread has in its hands.
struct Work<'w> {
    writer: &'w Writer,
    flushes: Flushes,
    desk: Option<Desk>,
    redo: Option<Redo>,
    /// What the group at hand has changed.
    batch: RefCell<Batch>,
    /// What was acknowledged and is not committed: batches of the redo log, and when it is to be.
    owed: Vec<u8>,
    due_at: Option<Instant>,
    /// The last batch that the database holds.
    marked: Sequence,
}

impl Work<'_> {
    fn run(mut self) {
        let mut group = Vec::with_capacity(GROUP);
        loop {
            match self.writer.jobs.take(&mut group, GROUP, self.due_at) {
                Taken::Something => self.write(&mut group),
                Taken::Nothing => {}
                Taken::Closed => break,
            }
            let due = self.due_at.is_some_and(|due_at| due_at <= Instant::now());
            if due && let Err(failure) = self.catch_up() {
                warn!("the store did not commit what is in its redo log: {}", failure.to_error());
                self.due_at = Some(Instant::now() + RETRY);
            }
            if let Some(Desk { connection, .. }) = &mut self.desk
                && connection.is_autocommit()
            {
                self.writer.log.keep_short(connection);
            }
        }
        self.finish();
    }

    fn write(&mut self, group: &mut Vec<Box<dyn Job>>) {
        for job in group.extract_if(.., |job| job.done() == Done::Inside) {
            self.look_inside(job);
        }
        if group.is_empty() {
            return;
        }
        let Err(failure) = self.attempt(group, Door::Open) else { return };
        // Nothing of the group was written. What was acknowledged before is put into the database at once: the next failure
        // finds nothing that has to be run again.
        let caught_up = self.catch_up();
        if group.len() == 1 || !failure.may_be_one_jobs() || caught_up.is_err() {
            return refuse(group, &failure);
        }
        // One of them is at fault, so that each is tried alone.
        for job in group.drain(..) {
            let mut alone = vec![job];
            if let Err(failure) = self.attempt(&mut alone, Door::Closed) {
                refuse(&mut alone, &failure);
            }
        }
    }

    /// Lets somebody read where everything is that was acknowledged.
    fn look_inside(&mut self, mut job: Box<dyn Job>) {
        let was_open = self.desk.as_ref().is_some_and(|desk| !desk.connection.is_autocommit());
        let outcome = self.undo_on_failure(|work| {
            work.begin()?;
            let connection = &work.desk.as_ref().ok_or(CLOSED)?.connection;
            job.run(&Transaction::new(Database::new(connection)))
        });
        if !was_open && !self.reads_only() {
            // What could not be committed is not taken for something that will be.
            self.undo();
        }
        job.answer(outcome.map_err(|failure| failure.to_error()));
    }

    /// All of it or nothing; answers everybody whose work is done.
    fn attempt(&mut self, group: &mut Vec<Box<dyn Job>>, door: Door) -> Result<(), Failure> {
        if self.writer.log.state() == LogState::Endless {
            return Err(Failure::Refused("its log cannot be folded back, because somebody reads the file without end"));
        }
        if self.has_lost_its_transaction() {
            // Nothing more is acknowledged before the database has what was.
            self.catch_up()?;
        }
        let rings = self.undo_on_failure(|work| work.work(group, door))?;
        let may_be_ahead = group.iter().all(|job| job.done() != Done::Settled);
        if may_be_ahead && self.log_ahead(&rings) {
            self.answer(&rings, group.extract_if(.., |job| job.done() == Done::Ahead));
            // Those who are left want to read.
            if !group.is_empty() {
                self.commit()?;
                self.answer(&[], group.drain(..));
            }
            return Ok(());
        }
        self.commit()?;
        self.flush()?;
        self.answer(&rings, group.drain(..));
        Ok(())
    }

    fn answer(&self, rings: &[String], jobs: impl Iterator<Item = Box<dyn Job>>) {
        // Those who wait are told before those who asked: either way it is on disk.
        self.writer.bells.ring(rings.iter().map(String::as_str));
        jobs.for_each(|job| job.answer(Ok(())));
    }

    /// Does the work of a group, in the transaction that is open or in a new one; whom to tell of it.
    fn work(&mut self, group: &mut Vec<Box<dyn Job>>, door: Door) -> Result<Vec<String>, Failure> {
        self.begin_to_write()?;
        let connection = &self.desk.as_ref().ok_or(CLOSED)?.connection;
        self.batch.get_mut().clear();
        let database = match &self.redo {
            Some(_) => Database::noting(connection, &self.batch),
            None => Database::new(connection),
        };
        let transaction = Transaction::new(database);
        let mut done = 0;
        while let Some(job) = group.get_mut(done) {
            job.run(&transaction)?;
            done += 1;
            if door == Door::Open && done == group.len() && done < GROUP {
                self.writer.jobs.take_waiting(group, GROUP - done);
            }
        }
        Ok(transaction.into_rings())
    }

    /// Sees to it that a transaction is open, with everything in it that was acknowledged and is not committed.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.desk.is_none() {
            let desk = self.writer.reopen(self.flushes)?;
            if desk.access == Access::Full {
                info!("the store's database was opened again");
            }
            self.desk = Some(desk);
        }
        let connection = &self.desk.as_ref().ok_or(CLOSED)?.connection;
        if connection.is_autocommit() {
            let database = Database::new(connection);
            database.begin()?;
            redo::apply(database, &self.owed)?;
        }
        Ok(())
    }

    /// The same, for what is to be committed.
    fn begin_to_write(&mut self) -> Result<(), Failure> {
        if self.reads_only() {
            // There may be room by now.
            self.desk = None;
        }
        self.begin()?;
        match self.reads_only() {
            true => Err(Failure::Refused("the disk has no room")),
            false => Ok(()),
        }
    }

    fn reads_only(&self) -> bool {
        self.desk.as_ref().is_some_and(|desk| desk.access == Access::Read)
    }

    /// Puts what the group at hand has changed into the redo log; `false` where that is not possible.
    fn log_ahead(&mut self, rings: &[String]) -> bool {
        let batch = self.batch.get_mut();
        if self.redo.is_some() && batch.is_empty() {
            // Nothing was changed, so that there is nothing to lose.
            return true;
        }
        let flushed = self.writer.log.flushed();
        let Some(redo) = self.redo.as_mut().filter(|redo| batch.is_whole() && redo.has_room(batch, flushed)) else {
            return false;
        };
        match redo.append(batch) {
            Ok(bytes) => {
                self.owed.extend_from_slice(bytes);
                let linger = if self.owed.len() < LINGER_BYTES { LINGER } else { Duration::ZERO };
                let due_at = Instant::now() + linger;
                self.due_at = Some(self.due_at.map_or(due_at, |earlier| earlier.min(due_at)));
                self.writer.ahead.note(rings.iter().map(String::as_str));
                true
            }
            Err(error) => {
                warn!("the store's redo log could not be written: {error}");
                false
            }
        }
    }

    /// Commits the transaction that is open.
    fn commit(&mut self) -> Result<(), Failure> {
        let last = self.redo.as_ref().map_or(0, Redo::last);
        self.undo_on_failure(|work| {
            let database = Database::new(&work.desk.as_ref().ok_or(CLOSED)?.connection);
            if work.marked != last {
                database.mark(last)?;
            }
            database.commit()
        })?;
        self.marked = last;
        self.owed.clear();
        self.due_at = None;
        self.writer.ahead.clear();
        if self.writer.read_only.load(Ordering::Relaxed) {
            self.writer.read_only.store(false, Ordering::Release);
            if let Some(Desk { connection, .. }) = &self.desk {
                file::write_early(connection)?;
            }
            info!("the disk has room: the store takes writes again");
        }
        if let Some(waits_for) = self.redo.as_ref().and_then(|redo| redo.waits_for(self.writer.log.flushed())) {
            self.writer.log.flush_aside(waits_for);
        }
        Ok(())
    }

    /// Waits until everything that was committed is on disk, where commits do not.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.flushes == Flushes::AtEveryCommit {
            return Ok(());
        }
        let log = self.desk.as_ref().and_then(|desk| desk.log.as_ref()).ok_or(CLOSED)?;
        if let Err(error) = self.writer.log.flush(log, self.marked) {
            self.desk = None;
            return Err(error.into());
        }
        if let Some(redo) = &mut self.redo {
            redo.rewind();
        }
        Ok(())
    }

    /// Whether something that was acknowledged is neither committed nor in the transaction that is open.
    fn has_lost_its_transaction(&self) -> bool {
        !self.owed.is_empty() && self.desk.as_ref().is_none_or(|desk| desk.connection.is_autocommit())
    }

    /// Commits what was acknowledged, if it is not.
    fn catch_up(&mut self) -> Result<(), Failure> {
        if self.owed.is_empty() {
            return Ok(());
        }
        self.undo_on_failure(Self::begin_to_write)?;
        self.commit()
    }

    /// What failed leaves no transaction behind, nor a connection that should not be used again.
    fn undo_on_failure<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        let outcome = act(self);
        if let Err(failure) = &outcome {
            self.undo();
            if failure.spoils_the_connection() {
                self.desk = None;
            }
        }
        outcome
    }

    fn undo(&mut self) {
        if let Some(Desk { connection, .. }) = &self.desk
            && !connection.is_autocommit()
            && connection.execute_batch("ROLLBACK").is_err()
        {
            self.desk = None;
        }
    }

    /// The database alone has everything; if it cannot, the redo log keeps the rest for the next start.
    fn finish(mut self) {
        let settled = self.catch_up().and_then(|()| self.flush());
        let cleared = settled.and_then(|()| self.redo.map_or(Ok(()), |redo| Ok(redo.finish()?)));
        if let Err(failure) = cleared {
            warn!("the store left its redo log to the next start: {}", failure.to_error());
        }
    }
}

const CLOSED: Failure = Failure::Refused("it is not open");

fn refuse(group: &mut Vec<Box<dyn Job>>, failure: &Failure) {
    let error = failure.to_error();
    warn!(jobs = group.len(), "the store did not write: {error}");
    group.drain(..).for_each(|job| job.answer(Err(error.clone())));
}

/// Reads, each in a transaction of its own so that all of its statements see one moment.
pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) jobs: Arc<Queue<Box<dyn Job>>>,
}

impl Reader {
    /// Works until the queue is closed and empty.
    pub(super) fn run(self, mut slot: Option<Connection>) {
        let mut taken = Vec::with_capacity(1);
        while self.jobs.take(&mut taken, 1, None) == Taken::Something {
            for mut job in taken.drain(..) {
                if !job.is_abandoned() {
                    let outcome = self.read(&mut slot, &mut *job);
                    job.answer(outcome);
                }
            }
        }
    }

    fn read(&self, slot: &mut Option<Connection>, job: &mut dyn Job) -> Result<(), StoreError> {
        let outcome = self.attempt(slot, job);
        if outcome.as_ref().is_err_and(Failure::spoils_the_connection) {
            *slot = None;
        }
        outcome.map_err(|failure| failure.to_error())
    }

    fn attempt(&self, slot: &mut Option<Connection>, job: &mut dyn Job) -> Result<(), Failure> {
        if slot.is_none() {
            *slot = Some(file::open_reader(&self.path)?);
        }
        let connection = slot.as_ref().ok_or(Failure::Refused("it is not open"))?;
        connection.prepare_cached("BEGIN")?.execute([])?;
        let outcome = job.run(&Transaction::new(Database::new(connection)));
        let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
        outcome.and(ended.map(drop).map_err(Failure::from))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use amalgam_core::Operator;

    use super::*;
    use crate::sqlite::{Migrations, job::submit, schema, sql};

    /// Takes whatever is written to it, and cannot be flushed.
    fn unflushable() -> File {
        OpenOptions::new().write(true).open("/dev/null").unwrap()
    }

    /// What a change is told that counts as done like this, where the database's log is the given one.
    fn told(done: Done, log: Option<File>, redo: impl FnOnce(RedoFile) -> RedoFile) -> Result<u64, StoreError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("amalgam.db");
        file::create(&path).unwrap();
        schema::prepare(&path, Migrations::Run).unwrap();
        let writer = Writer {
            path: path.clone(),
            max_bytes: None,
            jobs: Arc::new(Queue::new(8)),
            bells: Arc::default(),
            log: Arc::new(Log::new()),
            ahead: Arc::default(),
            read_only: Arc::default(),
        };
        let taken = RedoFile::take(&path).unwrap().map(redo);
        let mut start = writer.start(taken).unwrap();
        start.desk.log = log.or(start.desk.log);
        let beaten = submit(&writer.jobs, done, |transaction| {
            let beat: [&dyn rusqlite::ToSql; 2] = [&&b"process of tests"[..], &7];
            transaction.database.operator(Operator::of_this_process(), sql::BEAT, &beat)?.run()
        });
        writer.jobs.close();
        writer.run(start);
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(beaten)
    }

    #[test]
    fn what_could_not_be_flushed_is_not_acknowledged() {
        // S6
        let acknowledged = |told: Result<u64, StoreError>| match told {
            Ok(changed) => changed == 1,
            Err(StoreError::Unavailable(_)) => false,
            Err(error) => panic!("{error}"),
        };
        assert!(acknowledged(told(Done::Settled, None, |redo| redo)));
        assert!(acknowledged(told(Done::Ahead, None, |redo| redo)));
        assert!(!acknowledged(told(Done::Settled, Some(unflushable()), |redo| redo)));
        // The redo log is enough for a step, and the database for a step whose redo log is not.
        assert!(acknowledged(told(Done::Ahead, Some(unflushable()), |redo| redo)));
        assert!(acknowledged(told(Done::Ahead, None, |_| RedoFile::of(unflushable()))));
        assert!(!acknowledged(told(Done::Ahead, Some(unflushable()), |_| RedoFile::of(unflushable()))));
    }
}
