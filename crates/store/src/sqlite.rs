//! The embedded store: one SQLite file, one thread that writes, a few that read.
//!
//! Statements are in `sql.rs` and nowhere else. The methods of the store's traits are in the files named for the traits;
//! here is what opens the file and owns the threads.

mod agents;
mod ahead;
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
mod job;
mod journal;
mod knowledge;
mod line;
mod modes;
mod opening;
mod places;
mod processes;
mod prune;
mod query;
mod queue;
mod redo;
mod responses;
mod schema;
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
    ahead::Ahead,
    checkpoint::Log,
    failure::Failure,
    job::{Done, Job, Transaction, submit},
    queue::Queue,
    writer::{Reader, Writer},
};
use crate::{
    bells::Bells,
    leaving::Leaving,
    migrate::{MigrationError, MigrationStatus},
};
use amalgam_core::{BoxFuture, Operator, Stem, Store, StoreError, store::Stored};

pub use self::file::LockError;
pub use crate::migrate::Migrations;

/// How a database is used.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that read.
    pub readers: usize,
    /// So many calls wait for the writer, and as many for the readers; more are refused with `Busy`.
    pub queue: usize,
    /// The file may not become larger; writes beyond are refused until something was removed. The log beside it is not
    /// counted.
    pub max_bytes: Option<u64>,
    /// What to do with migrations that the database lacks.
    pub migrations: Migrations,
    /// When steps of turns are acknowledged.
    pub acknowledge: Acknowledge,
}

/// When a step of a turn is acknowledged. Either way it is on disk by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// When the database has it, and whoever opens the file beside this process sees it.
    #[default]
    Settled,
    /// When the redo log beside the database has it, which costs less. The database follows within milliseconds; whoever
    /// reads through this store waits for it. One process at a time does this.
    Ahead,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 2,
            queue: 1024,
            max_bytes: None,
            migrations: Migrations::Run,
            acknowledge: Acknowledge::Settled,
        }
    }
}

/// Why a database could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
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
    /// What was acknowledged, and is in the redo log alone, cannot be put into the database.
    #[error("could not put what `{}` holds into its database", path.display())]
    Redo {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: StoreError,
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
    ahead: Arc<Ahead>,
    /// Whether the disk had no room when the store was opened, and nothing was committed since: the writer alone has a
    /// connection.
    read_only: Arc<AtomicBool>,
    bells: Arc<Bells>,
    leaving: Leaving,
    log: Arc<Log>,
    threads: Vec<JoinHandle<()>>,
    serving: Mutex<Option<File>>,
}

impl Sqlite {
    /// Opens the database at `path` and brings its schema up to date; makes it, and its folder, if there is none. On a disk
    /// without room, a database with an up-to-date schema opens with [`Acknowledge::Ahead`] all the same; writes are refused
    /// until there is room.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let path = file::create(path).map_err(|source| OpenError::File { path: path.to_path_buf(), source })?;
        let log = Arc::new(Log::new());
        let mut store = Self {
            path: path.clone(),
            writes: Arc::new(Queue::new(options.queue)),
            reads: Arc::new(Queue::new(options.queue)),
            ahead: Arc::default(),
            read_only: Arc::default(),
            bells: Arc::default(),
            leaving: Leaving::default(),
            log: Arc::clone(&log),
            threads: Vec::new(),
            serving: Mutex::default(),
        };
        let work = Writer {
            path: path.clone(),
            max_bytes: options.max_bytes,
            jobs: Arc::clone(&store.writes),
            bells: Arc::clone(&store.bells),
            log: Arc::clone(&log),
            ahead: Arc::clone(&store.ahead),
            read_only: Arc::clone(&store.read_only),
        };
        let opened = opening::open(&work, &options)?;
        store.start("store-writer", move || work.run(opened.writer))?;
        for connection in opened.readers {
            let work = Reader { path: path.clone(), jobs: Arc::clone(&store.reads) };
            store.start("store-reader", move || work.run(connection))?;
        }
        // The last one: see `Drop`.
        store.start("store-log", move || log.run(path, opened.checkpointer))?;
        Ok(store)
    }

    /// What the database at `path` has and lacks. A file that is not there lacks everything, and is not made.
    pub fn status(path: impl AsRef<Path>) -> Result<Vec<MigrationStatus>, OpenError> {
        schema::status(path.as_ref())
    }

    /// Makes this process the one that serves from the database, for as long as the store lives. Whoever has the lock knows
    /// that every other process that ever served from it is dead.
    pub fn lock_for_serving(&self) -> Result<(), LockError> {
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if serving.is_none() {
            *serving = Some(file::lock_for_serving(&self.path)?);
        }
        Ok(())
    }

    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), OpenError> {
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|source| OpenError::File { path: self.path.clone(), source })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Work that changes something.
    fn change<'a, T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        submit(&self.writes, Done::Settled, work)
    }

    /// A step of a turn.
    fn step<'a, T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        submit(&self.writes, Done::Ahead, work)
    }

    /// Work that changes nothing. It sees everything that was acknowledged before.
    fn look<'a, T: Send + 'static>(
        &self,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        self.read(self.ahead.holds_any(), work)
    }

    /// The same for what concerns these responses alone, their items and what they continue. A response is never continued
    /// before it is acknowledged, so that whoever finds one in the database finds what it continues there too.
    fn look_at<'a, T: Send + 'static>(
        &self,
        stems: impl IntoIterator<Item = Stem>,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        self.read(self.ahead.holds(stems), work)
    }

    fn read<'a, T: Send + 'static>(
        &self,
        is_behind: bool,
        work: impl FnMut(&Transaction<'_>) -> Result<T, Failure> + Send + 'static,
    ) -> Stored<'a, T> {
        if self.read_only.load(Ordering::Acquire) {
            return submit(&self.writes, Done::Inside, work);
        }
        if !is_behind {
            return submit(&self.reads, Done::Caught, work);
        }
        let caught_up = submit(&self.writes, Done::Caught, |_| Ok(()));
        let (reads, writes) = (Arc::clone(&self.reads), Arc::clone(&self.writes));
        Box::pin(async move {
            match caught_up.await {
                Ok(()) => submit(&reads, Done::Caught, work).await,
                // The disk may be full. Whoever writes has it in hand.
                Err(_) => submit(&writes, Done::Inside, work).await,
            }
        })
    }
}

impl Store for Sqlite {
    fn changed(&self, response_id: &str) -> BoxFuture<'static, ()> {
        self.bells.wait(response_id)
    }

    fn ping(&self) -> Stored<'_, ()> {
        let look = |transaction: &Transaction<'_>| {
            transaction.database.operator(Operator::of_this_process(), sql::PING, &[])?.exists().map(drop)
        };
        let (written, read) = (self.change(look), self.look(look));
        Box::pin(async move {
            written.await?;
            read.await
        })
    }
}

impl Drop for Sqlite {
    /// What was accepted is still written.
    fn drop(&mut self) {
        // A thread that panicked has nothing left to say.
        let join = |thread: JoinHandle<()>| drop(thread.join());
        self.reads.close();
        self.log.close();
        // The writer was started first and goes last: whoever closes the file last folds the log into it, and two who
        // close it at once each take the other for the last.
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
