//! Moves what the write-ahead log holds into the database, away from the thread that writes.
//!
//! A log starts anew once all of it was moved and nobody reads it. Under a steady stream of writes that moment never comes
//! by itself, so the writer makes one when the log is long. If somebody reads the file without end and it still grows,
//! writes are refused at last: a full disk would be worse.
//!
//! Where steps are acknowledged ahead of the database (`redo.rs`), commits do not wait for the disk. The thread then flushes
//! the log when a part of the redo log is to be used again.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, MAIN_DB, hooks::Wal, wal::CheckpointMode};
use tracing::{debug, warn};

use super::{file, redo::Sequence};

/// Pages of 8 KiB. So many new ones are worth a move: 8 MiB. Pages that many commits change are moved once.
const WORTH_MOVING: u32 = 1_024;
/// From here on the writer sees to it that the log starts anew: 16 MiB. A log that is written over again costs no more than
/// one that grows, and less where the disk has to make room: a longer one only made the worst waits longer.
const LONG: u32 = 2_048;
/// It does so when no more than this is left to move, which takes it no time.
const LITTLE: u32 = 256;
/// And from here on in any case: 32 MiB.
const TOO_LONG: u32 = 2 * LONG;
/// From here on nothing is written: 1 GiB.
const ENDLESS: u32 = 131_072;
/// How long the writer waits for readers when it wants the log to start anew.
const RESTART_WAIT: Duration = Duration::from_millis(100);

/// How long the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogState {
    /// As it should be.
    Bounded,
    /// Too long to go on.
    Endless,
}

/// The log's length, and the thread that shortens it.
#[derive(Debug)]
pub(super) struct Log {
    pages: Arc<AtomicU32>,
    /// Whether something was written that the writer has not flushed.
    written: Arc<AtomicBool>,
    /// The last batch of the redo log that is on disk here.
    flushed: AtomicI64,
    /// How long it was when pages were last moved.
    tended: AtomicU32,
    /// Where the writer tries again to start the log anew.
    next_try: AtomicU32,
    call: Mutex<Call>,
    called: Condvar,
}

#[derive(Debug, Default)]
struct Call {
    moves: bool,
    flush: Option<Sequence>,
    closed: bool,
}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            pages: Arc::default(),
            written: Arc::default(),
            flushed: AtomicI64::new(0),
            tended: AtomicU32::new(0),
            next_try: AtomicU32::new(LONG),
            call: Mutex::default(),
            called: Condvar::new(),
        }
    }

    /// Learns from every commit of `connection` how long the log is.
    pub(super) fn watch(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let (pages, written) = (Arc::clone(&self.pages), Arc::clone(&self.written));
        connection.wal_hook(Some(move |_: &mut Wal, count| {
            written.store(true, Ordering::Relaxed);
            pages.store(u32::try_from(count).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))
    }

    pub(super) fn state(&self) -> LogState {
        match self.pages.load(Ordering::Relaxed) {
            ..ENDLESS => LogState::Bounded,
            _ => LogState::Endless,
        }
    }

    /// Called by the writer between commits.
    pub(super) fn keep_short(&self, connection: &mut Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        match due(pages, self.tended.load(Ordering::Relaxed), self.next_try.load(Ordering::Relaxed)) {
            Due::Nothing => {}
            Due::Forget => self.tended.store(0, Ordering::Relaxed),
            Due::Move => self.call(|call| !std::mem::replace(&mut call.moves, true)),
            Due::StartAnew => self.start_anew(connection, pages),
        }
    }

    /// Flushes the log of `database`, if anything was written since the last time, up to and with this batch.
    pub(super) fn flush(&self, database: &File, last: Sequence) -> io::Result<()> {
        if self.written.swap(false, Ordering::Relaxed) {
            database.sync_data().inspect_err(|_| self.written.store(true, Ordering::Relaxed))?;
        }
        self.flushed.fetch_max(last, Ordering::Relaxed);
        Ok(())
    }

    /// The same, on the thread of the log: everything up to this batch was committed.
    pub(super) fn flush_aside(&self, last: Sequence) {
        self.call(|call| call.flush.replace(last) != Some(last));
    }

    /// The last batch of the redo log that is on disk here.
    pub(super) fn flushed(&self) -> Sequence {
        self.flushed.load(Ordering::Relaxed)
    }

    fn call(&self, wish: impl FnOnce(&mut Call) -> bool) {
        let is_news = wish(&mut self.lock());
        if is_news {
            self.called.notify_one();
        }
    }

    fn start_anew(&self, connection: &mut Connection, pages: u32) {
        let restarted = connection.busy_timeout(RESTART_WAIT).and_then(|()| {
            let moved = connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::RESTART);
            file::wait_for_locks(connection).and(moved)
        });
        match restarted {
            Ok(_) => {
                self.pages.store(0, Ordering::Relaxed);
                self.tended.store(0, Ordering::Relaxed);
                self.next_try.store(LONG, Ordering::Relaxed);
            }
            Err(error) => {
                warn!(pages, "the store's log could not start anew: {error}");
                // Beyond the last bound every write tries, so that the store recovers as soon as the reader is gone.
                self.next_try.store(pages.saturating_add(LONG / 4).min(ENDLESS), Ordering::Relaxed);
            }
        }
    }

    /// The body of the thread: moves pages whenever there are enough of them, until closed.
    pub(super) fn run(&self, path: PathBuf, mut slot: Option<Connection>) {
        while let Some(Call { moves, flush, .. }) = self.wait() {
            if let Some(last) = flush {
                match file::open_log(&path).and_then(|log| log.sync_data()) {
                    Ok(()) => drop(self.flushed.fetch_max(last, Ordering::Relaxed)),
                    // The writer does it itself when it has to.
                    Err(error) => warn!("the store's log could not be flushed: {error}"),
                }
            }
            if moves {
                self.move_pages(&path, &mut slot);
            }
        }
    }

    fn move_pages(&self, path: &Path, slot: &mut Option<Connection>) {
        if slot.is_none() {
            *slot = file::open_checkpointer(path).ok();
        }
        let Some(connection) = &slot else { return };
        match connection.wal_checkpoint_v2(Some(MAIN_DB), CheckpointMode::PASSIVE) {
            Ok((log, moved)) => {
                debug!(log, moved, "the store's log was moved");
                // Also where somebody reads and not all could be moved: the next try is due with the next pages.
                self.tended.store(u32::try_from(log).unwrap_or(0), Ordering::Relaxed);
            }
            Err(error) => {
                warn!("the store's log could not be moved: {error}");
                *slot = None;
            }
        }
    }

    /// What there is to do; nothing once closed.
    fn wait(&self) -> Option<Call> {
        let mut call = self.lock();
        while !call.moves && call.flush.is_none() && !call.closed {
            call = self.called.wait(call).unwrap_or_else(PoisonError::into_inner);
        }
        let closed = call.closed;
        let wanted = std::mem::replace(&mut *call, Call { closed, ..Call::default() });
        (!closed).then_some(wanted)
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.called.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Call> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the log needs after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// It has started anew by itself.
    Forget,
    /// There is something to move.
    Move,
    /// It is long enough to start anew.
    StartAnew,
}

/// What a log of `pages` needs that was last tended when it had `tended`.
fn due(pages: u32, tended: u32, next_try: u32) -> Due {
    if pages < tended {
        return Due::Forget;
    }
    let new = pages - tended;
    if pages >= next_try && (new <= LITTLE || pages >= TOO_LONG) {
        return Due::StartAnew;
    }
    if new >= WORTH_MOVING { Due::Move } else { Due::Nothing }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_moved_for_new_pages_and_not_for_every_commit() {
        assert_eq!(due(WORTH_MOVING - 1, 0, LONG), Due::Nothing);
        assert_eq!(due(WORTH_MOVING, 0, LONG), Due::Move);
        assert_eq!(due(WORTH_MOVING + 1, WORTH_MOVING, LONG), Due::Nothing);
        assert_eq!(due(2 * WORTH_MOVING, WORTH_MOVING, LONG), Due::Move);
        assert_eq!(due(5, WORTH_MOVING, LONG), Due::Forget);
    }

    #[test]
    fn a_long_log_starts_anew_when_little_is_left_to_move_and_at_last_in_any_case() {
        assert_eq!(due(LONG, LONG - LITTLE, LONG), Due::StartAnew);
        assert_eq!(due(LONG, LONG - LITTLE - 1, LONG), Due::Nothing);
        assert_eq!(due(LONG, 0, LONG), Due::Move);
        assert_eq!(due(TOO_LONG, 0, LONG), Due::StartAnew);
        assert_eq!(due(TOO_LONG, 0, TOO_LONG + 1), Due::Move);
        assert_eq!(due(ENDLESS, 0, ENDLESS), Due::StartAnew);
    }
}
