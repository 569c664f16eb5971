//! The embedded store: one SQLite file, one thread that writes, a few that read.
//!
//! The statements of the shared code, and the writes and reads of turns, are in files named for their subjects. This
//! file opens the database, owns the threads and passes work to them.

mod approvals;
mod backup;
mod checkpoint;
mod claims;
mod connection;
mod conversations;
mod courses;
mod execute;
mod export;
mod failure;
mod file;
mod files;
mod item_positions;
mod job;
mod journal;
mod knowledge;
mod legacy_redo_log;
mod opening;
mod processes;
mod prune;
mod query;
mod queue;
mod reader;
mod responses;
mod schema;
mod session_queue;
#[cfg(test)]
mod sql_tests;
mod statements;
mod transcripts;
mod turn_list;
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

use amalgam_core::{
    BoxFuture, Operator,
    store::{StoreMeter, Stored},
};
use amalgam_store::{
    IndexSyntax, Repeat, SqlEngine, SqlStore, Work,
    migrate::{MigrationError, MigrationStatus, Migrations},
    notifications::Notifications,
    statements,
};

use self::{
    checkpoint::Checkpointer,
    failure::SqliteFailure,
    job::{Access, Job, JobConnection, Transaction, submit},
    queue::Queue,
    reader::Reader,
    writer::Writer,
};

pub use self::{backup::SqliteCopyError, export::SqliteExport, file::LockError, legacy_redo_log::RedoLogError};

statements! {
    OperatorSql PING = "SELECT 1 FROM memory LIMIT 1";
}

/// The settings of a database.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The number of threads that read.
    pub readers: usize,
    /// The number of calls that may wait for the writer, and for the readers; more are refused with `Busy`.
    pub queue: usize,
    /// The maximum size of the file; further writes are refused until data is deleted. Does not include the log.
    pub max_bytes: Option<u64>,
    /// What to do with migrations that the database lacks.
    pub migrations: Migrations,
    /// Whether the database is copied before migrations run.
    pub migration_backup: MigrationBackup,
    /// What to do on a full disk.
    pub full_disk: FullDisk,
    /// Counts commits.
    pub flushes: StoreMeter,
}

/// How a database is opened on a full disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FullDisk {
    /// The database is not opened.
    #[default]
    Refuse,
    /// The database is opened for reading if its schema is up to date. Writes are refused until there is room.
    Read,
}

/// Whether a database with data is copied before it is migrated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MigrationBackup {
    /// It is copied to a file beside it, named after its schema version: `amalgam.db.v011.backup`.
    #[default]
    Make,
    /// It is not copied.
    Skip,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            readers: 2,
            queue: 1024,
            max_bytes: None,
            migrations: Migrations::Run,
            migration_backup: MigrationBackup::Make,
            full_disk: FullDisk::Refuse,
            flushes: StoreMeter::default(),
        }
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// The folder or the file cannot be created or read.
    #[error("could not make or open `{}`", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// SQLite cannot use it.
    #[error("could not use `{}` as a database", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: rusqlite::Error,
    },
    /// The redo log that an older server left cannot be applied.
    #[error("could not apply `{}`, the redo log of an older server", path.display())]
    RedoLog {
        /// The file.
        path: PathBuf,
        /// The reason, and the remedy.
        #[source]
        source: RedoLogError,
    },
    /// The copy before a migration failed, so nothing was migrated.
    #[error("could not copy the database to `{}` before migrating it", path.display())]
    MigrationBackup {
        /// The copy.
        path: PathBuf,
        /// The error.
        #[source]
        source: Box<SqliteCopyError>,
    },
    /// Its schema does not fit.
    #[error("`{}` cannot be used", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: MigrationError,
    },
}

/// A store in one file.
pub struct Sqlite {
    path: PathBuf,
    writes: Arc<Queue<Box<dyn Job>>>,
    reads: Arc<Queue<Box<dyn Job>>>,
    /// Whether the disk was full when the store was opened, and nothing was committed since. Only the writer has a
    /// connection then.
    read_only: Arc<AtomicBool>,
    notifications: Arc<Notifications>,
    checkpointer: Arc<Checkpointer>,
    threads: Vec<JoinHandle<()>>,
    serving: Mutex<Option<File>>,
}

impl Sqlite {
    /// Opens the database at `path`, or creates it with its folder, and brings its schema up to date.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<SqlStore<Self>, SqliteOpenError> {
        let path = path.as_ref();
        let path = file::create(path).map_err(|source| SqliteOpenError::File { path: path.to_path_buf(), source })?;
        let checkpointer = Arc::new(Checkpointer::new());
        let mut store = Self {
            path: path.clone(),
            writes: Arc::new(Queue::new(options.queue)),
            reads: Arc::new(Queue::new(options.queue)),
            read_only: Arc::default(),
            notifications: Arc::new(Notifications::counting(options.flushes.clone())),
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
            flushes: options.flushes.clone(),
        };
        let opened = opening::open(&work, &options)?;
        store.start("store-writer", move || work.run(opened.writer))?;
        for connection in opened.readers {
            let work = Reader { path: path.clone(), jobs: Arc::clone(&store.reads) };
            store.start("store-reader", move || work.run(connection))?;
        }
        // Started last: see `Drop`.
        store.start("store-checkpoint", move || checkpointer.run(&path, opened.checkpointer))?;
        Ok(SqlStore::new(store))
    }

    /// The state of each migration in the database at `path`. A missing file has none of them, and is not created.
    pub fn status(path: impl AsRef<Path>) -> Result<Vec<MigrationStatus>, SqliteOpenError> {
        schema::status(path.as_ref())
    }

    /// The path of the copy that is made before the database at `path` is migrated from `version`.
    pub fn migration_backup(path: impl AsRef<Path>, version: u32) -> PathBuf {
        schema::copy_name(path.as_ref(), version)
    }

    /// Makes this process the only one that serves from the database, for as long as the store exists. So the holder of
    /// the lock can treat every other process in the database as dead.
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

    /// Runs writes of this engine. Resolves when they are committed and flushed.
    fn write_with<'a, T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Transaction<'_>) -> Result<T, SqliteFailure> + Send + 'static,
    ) -> Stored<'a, T> {
        submit(&self.writes, Access::Write, move |connection| connection.with(&mut work))
    }

    /// Runs reads of this engine. They see all writes that were acknowledged before.
    fn read_with<'a, T: Send + 'static>(
        &self,
        mut work: impl FnMut(&Transaction<'_>) -> Result<T, SqliteFailure> + Send + 'static,
    ) -> Stored<'a, T> {
        submit(self.reads(), Access::Read, move |connection| connection.with(&mut work))
    }

    /// The queue of reads.
    fn reads(&self) -> &Queue<Box<dyn Job>> {
        match self.read_only.load(Ordering::Acquire) {
            true => &self.writes,
            false => &self.reads,
        }
    }
}

impl SqlEngine for Sqlite {
    type Failure = SqliteFailure;
    type Connection<'c> = JobConnection<'c>;
    const INDEX_SYNTAX: IndexSyntax = IndexSyntax::Fts5;
    const CHANGES_IN_ORDER: bool = true;

    fn read<'a, A, T>(&'a self, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        submit(self.reads(), Access::Read, move |connection| job::outcome(work(connection, &arguments)))
    }

    fn change<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        self.transaction(repeat, arguments, work)
    }

    // All changes run in the transaction of their group, and are rolled back with it.
    fn transaction<'a, A, T>(&'a self, repeat: Repeat, arguments: A, work: Work<Self, A, T>) -> Stored<'a, T>
    where
        A: Send + Sync + 'static,
        T: Send + 'static,
    {
        let access = match repeat {
            Repeat::Reservation => Access::Reserve,
            Repeat::Safe | Repeat::Never => Access::Write,
        };
        submit(&self.writes, access, move |connection| job::outcome(work(connection, &arguments)))
    }

    fn changed(&self, topic: &str) -> BoxFuture<'static, ()> {
        self.notifications.wait(topic)
    }

    fn ping(&self) -> Stored<'_, ()> {
        let look = |transaction: &Transaction<'_>| {
            transaction.database.operator(Operator::of_this_process(), PING, &[])?.exists().map(drop)
        };
        let (written, read) = (self.write_with(look), self.read_with(look));
        Box::pin(async move {
            written.await?;
            read.await
        })
    }
}

impl Drop for Sqlite {
    /// Jobs that were accepted still run.
    fn drop(&mut self) {
        // A thread that panicked cannot be recovered.
        let join = |thread: JoinHandle<()>| drop(thread.join());
        self.reads.close();
        self.checkpointer.close();
        // The writer was started first and is joined last: SQLite checkpoints and removes the write-ahead log when the
        // last connection is closed, and of two that close at once each would see the other as the last.
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
