//! Keeps the write-ahead log short.
//!
//! A separate thread copies pages from the log into the database while the writer continues (`PASSIVE`). The log can be
//! written from its beginning again once all of it was copied and no connection reads from it. Under a steady load that
//! moment never occurs by itself, so the writer creates it between two transactions (`RESTART`), when little is left to
//! copy. Reads that begin then need only the database file, so the writer waits for the current reads, which are short.
//! Another process may read for longer. If it never ends and the log keeps growing, the store finally refuses writes,
//! because a full disk would be worse.
use std::{
    path::Path,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, MAIN_DB, hooks::Wal, wal::CheckpointMode};
use tracing::{debug, warn};

use super::file;

/// The number of new pages (of 8 KiB) after which copying is worth its cost: 8 MiB. A page that many commits changed is
/// copied once.
const WORTH_COPYING: u32 = 1_024;
/// From this length on the writer restarts the log: 16 MiB. Overwriting a log costs no more than extending it, and less
/// where the disk has to allocate space.
const LONG: u32 = 2_048;
/// The writer restarts the log when no more pages than this are left to copy, which takes little time.
const LITTLE: u32 = 256;
/// From this length on the writer restarts the log in any case: 32 MiB.
const OVERDUE: u32 = 2 * LONG;
/// From this length on another process must be blocking the restart, and a warning is logged: 256 MiB, and each time it
/// has doubled.
const WORTH_A_WARNING: u32 = 32_768;
/// From this length on writes are refused: 1 GiB.
const TOO_LONG: u32 = 131_072;
/// The time that the writer waits for readers.
const READER_WAIT: Duration = Duration::from_millis(100);

/// The state of the write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WalState {
    /// Within its usual length.
    Bounded,
    /// Too long for more writes.
    TooLong,
}

/// The length of the write-ahead log, and the thread that checkpoints it.
#[derive(Debug)]
pub(super) struct Checkpointer {
    pages: Arc<AtomicU32>,
    /// The length of the log when pages were last copied.
    copied_at: AtomicU32,
    /// The length of the log at which the next restart is tried.
    next_try: AtomicU32,
    /// The length of the log at which the next warning is logged.
    next_warning: AtomicU32,
    /// Held while a checkpoint runs: SQLite refuses a second one as `database is locked`.
    running: Mutex<()>,
    request: Mutex<Request>,
    requested: Condvar,
}

#[derive(Debug, Default)]
struct Request {
    copy: bool,
    closed: bool,
}

impl Checkpointer {
    pub(super) fn new() -> Self {
        Self {
            pages: Arc::default(),
            copied_at: AtomicU32::new(0),
            next_try: AtomicU32::new(LONG),
            next_warning: AtomicU32::new(WORTH_A_WARNING),
            running: Mutex::default(),
            request: Mutex::default(),
            requested: Condvar::new(),
        }
    }

    /// Records the length of the log after every commit of `connection`.
    pub(super) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let pages = Arc::clone(&self.pages);
        connection.wal_hook(Some(move |_: &mut Wal, count| {
            pages.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
    }

    pub(super) fn state(&self) -> WalState {
        match self.pages.load(Ordering::Relaxed) {
            ..TOO_LONG => WalState::Bounded,
            _ => WalState::TooLong,
        }
    }

    /// Called by the writer between transactions.
    pub(super) fn after_commit(&self, connection: &mut Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        match due(pages, self.copied_at.load(Ordering::Relaxed), self.next_try.load(Ordering::Relaxed)) {
            Due::Nothing => {}
            Due::Forget => self.copied_at.store(0, Ordering::Relaxed),
            Due::Copy => self.request_copy(),
            Due::Restart => self.restart(connection, pages),
        }
    }

    fn request_copy(&self) {
        let was_requested = std::mem::replace(&mut self.lock().copy, true);
        if !was_requested {
            self.requested.notify_one();
        }
    }

    fn restart(&self, connection: &mut Connection, pages: u32) {
        // If the thread copies right now, the log can wait until it is done, unless it is overdue.
        let running = match self.running.try_lock() {
            Ok(running) => running,
            Err(_) if pages < OVERDUE => return,
            Err(_) => self.running.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let restarted = restart_log(connection);
        drop(running);
        match restarted {
            Ok(()) => {
                self.pages.store(0, Ordering::Relaxed);
                self.copied_at.store(0, Ordering::Relaxed);
                self.next_try.store(LONG, Ordering::Relaxed);
                self.next_warning.store(WORTH_A_WARNING, Ordering::Relaxed);
            }
            Err(error) => {
                debug!(pages, "the write-ahead log could not be restarted: {error}");
                if pages >= self.next_warning.load(Ordering::Relaxed) {
                    warn!(pages, "the write-ahead log grows because another process reads the database: {error}");
                    self.next_warning.store(pages.saturating_mul(2), Ordering::Relaxed);
                }
                // Beyond the last bound every write tries, so that the store recovers as soon as the reader has ended.
                self.next_try.store(pages.saturating_add(LONG / 4).min(TOO_LONG), Ordering::Relaxed);
            }
        }
    }

    /// The body of the thread: copies pages whenever the writer requests it, until closed.
    pub(super) fn run(&self, path: &Path, mut slot: Option<Connection>) {
        while self.wait() {
            let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if slot.is_none() {
                slot = file::open_checkpointer(path).ok();
            }
            let Some(connection) = &slot else { continue };
            match connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) {
                Ok((pages, copied)) => {
                    debug!(pages, copied, "the write-ahead log was checkpointed");
                    // Also when a reader prevented some pages from being copied: the next try is due with more pages.
                    self.copied_at.store(u32::try_from(pages).unwrap_or(0), Ordering::Relaxed);
                }
                Err(error) => {
                    warn!("the write-ahead log could not be checkpointed: {error}");
                    slot = None;
                }
            }
        }
    }

    /// Waits for a request; `false` once closed.
    fn wait(&self) -> bool {
        let idle = |request: &mut Request| !request.copy && !request.closed;
        let mut request = self.requested.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        request.copy = false;
        !request.closed
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.requested.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Request> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies the remaining pages; the next transaction then writes the log from its beginning.
fn restart_log(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(READER_WAIT)?;
    let restarted = connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::RESTART);
    file::wait_for_locks(connection)?;
    restarted.map(drop)
}

/// What the log needs after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// SQLite has restarted the log itself.
    Forget,
    /// Pages have to be copied.
    Copy,
    /// The log has to be restarted.
    Restart,
}

/// What to do with a log of `pages` whose pages were last copied when it had `copied_at`.
fn due(pages: u32, copied_at: u32, next_try: u32) -> Due {
    if pages < copied_at {
        return Due::Forget;
    }
    let new = pages - copied_at;
    if pages >= next_try && (new <= LITTLE || pages >= OVERDUE) {
        return Due::Restart;
    }
    if new >= WORTH_COPYING { Due::Copy } else { Due::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_checkpointed_for_new_pages_and_not_for_every_commit() {
        assert_eq!(due(WORTH_COPYING - 1, 0, LONG), Due::Nothing);
        assert_eq!(due(WORTH_COPYING, 0, LONG), Due::Copy);
        assert_eq!(due(WORTH_COPYING + 1, WORTH_COPYING, LONG), Due::Nothing);
        assert_eq!(due(2 * WORTH_COPYING, WORTH_COPYING, LONG), Due::Copy);
        assert_eq!(due(5, WORTH_COPYING, LONG), Due::Forget);
    }

    #[test]
    fn a_long_log_is_restarted_when_little_is_left_to_copy_and_at_last_in_any_case() {
        assert_eq!(due(LONG, LONG - LITTLE, LONG), Due::Restart);
        assert_eq!(due(LONG, LONG - LITTLE - 1, LONG), Due::Nothing);
        assert_eq!(due(LONG, 0, LONG), Due::Copy);
        assert_eq!(due(OVERDUE, 0, LONG), Due::Restart);
        assert_eq!(due(OVERDUE, 0, OVERDUE + 1), Due::Copy);
        assert_eq!(due(TOO_LONG, 0, TOO_LONG), Due::Restart);
    }
}
