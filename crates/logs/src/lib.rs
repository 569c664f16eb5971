//! Standard error, for log lines. A server writes a line for each request: lines are gathered for a moment and written together.
//! Warnings and errors are written at once, with the lines before them. At a terminal every line is written at once.

mod plain_fields;

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Condvar, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

pub use plain_fields::PlainFields;

/// The longest time that a line waits.
const WRITE_AFTER: Duration = Duration::from_millis(20);

/// Lines of this size are written without waiting.
const FULL_BYTES: usize = 32 * 1024;

static LINES: LazyLock<LogLines> = LazyLock::new(LogLines::default);

/// Whether the thread that writes gathered lines was started.
static GATHERS: AtomicBool = AtomicBool::new(false);

#[derive(Default)]
struct LogLines {
    waiting: Mutex<Vec<u8>>,
    added: Condvar,
}

impl LogLines {
    fn waiting(&self) -> MutexGuard<'_, Vec<u8>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_periodically(&self) {
        loop {
            let waiting = self.added.wait_while(self.waiting(), |waiting| waiting.is_empty());
            drop(waiting);
            thread::sleep(WRITE_AFTER);
            flush();
        }
    }
}

/// Writes the lines that wait.
pub fn flush() {
    write_out(&mut LINES.waiting());
}

/// A log that cannot be written ends no request.
fn write_out(waiting: &mut Vec<u8>) {
    let _ = io::stderr().write_all(waiting);
    waiting.clear();
}

/// Where the lines of the log go.
#[derive(Debug, Clone, Copy)]
pub struct LogOutput {
    gathers: bool,
}

impl LogOutput {
    /// Starts the thread that writes gathered lines, unless standard error is a terminal.
    pub fn start() -> Self {
        let gathers = !io::stderr().is_terminal()
            && thread::Builder::new().name("log-writer".to_owned()).spawn(|| LINES.write_periodically()).is_ok();
        GATHERS.store(gathers, Ordering::Relaxed);
        Self { gathers }
    }

    /// The output that was started.
    pub fn current() -> Self {
        Self { gathers: GATHERS.load(Ordering::Relaxed) }
    }
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LineWriter;

    fn make_writer(&'a self) -> LineWriter {
        LineWriter { gathers: self.gathers }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> LineWriter {
        LineWriter { gathers: self.gathers && *line.level() > Level::WARN }
    }
}

/// Writes one line.
pub struct LineWriter {
    gathers: bool,
}

impl io::Write for LineWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = LINES.waiting();
        let is_first = waiting.is_empty();
        waiting.extend_from_slice(line);
        if !self.gathers || waiting.len() >= FULL_BYTES {
            write_out(&mut waiting);
        } else if is_first {
            drop(waiting);
            LINES.added.notify_one();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
