//! The embedded store: one SQLite file, one thread that writes, a few that read.
//!
//! Statements are in `sql.rs` and nowhere else. The methods of the store's traits are in the files named for the traits;
//! here is what opens the file and owns the threads.

mod agents;
mod approvals;
mod bank;
mod checkpoint;
mod claims;
mod conversations;
mod courses;
mod execute;
mod failure;
mod file;
mod files;
mod item_positions;
mod job;
mod journal;
mod knowledge;
mod legacy_redo_log;
mod modes;
mod opening;
mod processes;
mod prune;
mod query;
mod queue;
mod reader;
mod responses;
mod schema;
mod session_queue;
mod sessions;
mod sql;
#[cfg(test)]
mod sql_tests;
mod tenancy;
mod transcripts;
mod turns;
mod writer;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use self::{
    checkpoint::Checkpointer,
    failure::Failure,
    job::{Access, Job, Transaction, submit},
    queue::Queue,
    reader::Reader,
    writer::Writer,
};
use crate::{
    migrate::{MigrationError, MigrationStatus},
    notifications::Notifications,
    pending_release::PendingReleases,
};
use amalgam_core::{BoxFuture, Operator, Store, store::Stored};

pub use self::{file::LockError, legacy_redo_log::RedoLogError};
pub use crate::migrate::Migrations;

/// How a database is used.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Threads that read.
    pub readers: usize,
    /// So many calls wait for the writer, and as many for the readers; more are refused with `Busy`.
    pub queue: usize,
    /// The file may not become larger; writes beyond are refused until something was removed. The log beside it is not
    /// counted.
    pub max_bytes: Option<u64>,
    /// What to do with migrations that the database lacks.
    pub migrations: Migrations,
    /// What to do on a disk without room.
    pub full_disk: FullDisk,
}

/// How a database is opened on a disk without room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FullDisk {
    /// Not at all.
    #[default]
    Refuse,
    /// To be read, if its schema is up to date. Writes are refused until there is room.
    Read,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { readers: 2, queue: 1024, max_bytes: None, migrations: Migrations::Run, full_disk: FullDisk::Refuse }
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// The folder or the file cannot be made or read.
    #[error("could not make or open `{}`", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot use it.
    #[error("could not use `{}` as a database", path.display())]
    Database {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The redo log that an older server left cannot be applied.
    #[error("could not apply `{}`, the redo log of an older server", path.display())]
    RedoLog {
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        #[source]
        source: RedoLogError,
    },
    /// Its schema does not fit.
    #[error("`{}` cannot be used", path.display())]
    Schema {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: MigrationError,
    },
}

/// A store in one file.
pub struct Sqlite {
    path: PathBuf,
    writes: Arc<Queue<Box<dyn Job>>>,
    reads: Arc<Queue<Box<dyn Job>>>,
    /// Whether the disk had no room when the store was opened, and nothing was committed since: the writer alone has a
    /// connection.
    read_only: Arc<AtomicBool>,
    notifications: Arc<Notifications>,
    pending_releases: PendingReleases,
    checkpointer: Arc<Checkpointer>,
    threads: Vec<JoinHandle<()>>,
    serving: Mutex<Option<File>>,
}

impl Sqlite {
    /// Opens the database at `path` and brings its schema up to date; makes it, and its folder, if there is none.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, SqliteOpenError> {
        let path = path.as_ref();
        let path = file::create(path).map_err(|source| SqliteOpenError::File { path: path.to_path_buf(), source })?;
        let checkpointer = Arc::new(Checkpointer::new());
        let mut store = Self {
            path: path.clone(),
            writes: Arc::new(Queue::new(options.queue)),
            reads: Arc::new(Queue::new(options.queue)),
            read_only: Arc::default(),
            notifications: Arc::default(),
            pending_releases: PendingReleases::default(),
            checkpointer: Arc::clone(&checkpointer),
            threads: Vec::new(),
            serving: Mutex::default(),
        };
        let work = Writer {
            path: path.clone(),
            max_bytes: options.max_bytes,
            jobs: Arc::clone(&store.writes),
            notifications: Arc::clone(&store.notifications),
            checkpointer: Arc::clone(&checkpointer),
            read_only: Arc::clone(&store.read_only),
        };
        let opened = opening::open(&work, &options)?;
        store.start("store-writer", move || work.run(opened.writer))?;
        for connection in opened.readers {
            let work = Reader { path: path.clone(), jobs: Arc::clone(&store.reads) };
            store.start("store-reader", move || work.run(connection))?;
        }
        // The last one: see `Drop`.
        store.start("store-checkpoint", move || checkpointer.run(&path, opened.checkpointer))?;
        Ok(store)
    }

    /// What the database at `path` has and lacks. A file that is not there lacks everything, and is not made.
    pub fn status(path: impl AsRef<Path>) -> Result<Vec<MigrationStatus>, SqliteOpenError> {
        schema::status(path.as_ref())
    }

    /// Makes this process the one that serves from the database, for as long as the store lives. The holder of the lock knows
    /// that every other process that ever served from it is dead.
    pub fn lock_for_serving(&self) -> Result<(), LockError> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if serving.is_none() {
            *serving = Some(file::lock_for_serving(&self.path)?);
        }
        Ok(())
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), SqliteOpenError> {
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|source| SqliteOpenError::File { path: self.path.clone(), source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Work that changes something. Done when it is committed and flushed.
    fn change<'a, T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        submit(&self.writes, Access::Write, work)
    }

    /// Work that changes nothing. It sees everything that was acknowledged before.
    fn read<'a, T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        match self.read_only.load(Ordering::Acquire) {
            true => submit(&self.writes, Access::Read, work),
            false => submit(&self.reads, Access::Read, work),
        }
    }
}

impl Store for Sqlite {
    fn changed(&self, response_id: &str) -> BoxFuture<'static, ()> {
        self.notifications.wait(response_id)
    }

    fn ping(&self) -> Stored<'_, ()> {
        let look = |transaction: &Transaction<'_>| {
            transaction.database.operator(Operator::of_this_process(), sql::PING, &[])?.exists().map(drop)
        };
        let (written, read) = (self.change(look), self.read(look));
        Box::pin(async move {
            written.await?;
            read.await
        })
    }
}

impl Drop for Sqlite {
    /// Jobs that were accepted are still run.
    fn drop(&mut self) {
        // There is nothing to do about a thread that panicked.
        let join = |thread: JoinHandle<()>| drop(thread.join());
        self.reads.close();
        self.checkpointer.close();
        // The writer was started first and goes last: SQLite checkpoints and removes the write-ahead log when the last
        // connection is closed, and two that close at once each take the other for the last.
        self.threads.split_off(self.threads.len().min(1)).into_iter().for_each(join);
        self.writes.close();
        self.threads.drain(..).for_each(join);
    }
}

impl std::fmt::Debug for Sqlite {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}
