//! A progress line for long commands; nothing if standard error is not a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// The refresh interval of the line.
const PAUSE: Duration = Duration::from_millis(100);
/// The width of the bar.
const WIDTH: usize = 24;

/// A line on the terminal's standard error.
pub(crate) struct Progress {
    what: &'static str,
    all: u64,
    done: u64,
    drawn: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// A progress of 0 out of `all`.
    pub(crate) fn of(what: &'static str, all: impl TryInto<u64>) -> Self {
        let all = all.try_into().unwrap_or(u64::MAX);
        Self { what, all, done: 0, drawn: None, shown: io::stderr().is_terminal() }
    }

    /// Adds finished work.
    pub(crate) fn add(&mut self, more: impl TryInto<u64>) {
        self.set(self.done.saturating_add(more.try_into().unwrap_or_default()).min(self.all), self.all);
    }

    /// Shows how much is finished, and of how much.
    pub(crate) fn set(&mut self, done: u64, all: u64) {
        (self.done, self.all) = (done, all);
        let due = self.drawn.is_none_or(|at| at.elapsed() >= PAUSE) || self.done == self.all;
        if self.shown && due {
            self.drawn = Some(Instant::now());
            // A failure to write progress is ignored.
            let _ = write!(io::stderr().lock(), "\r{}", line(self.what, self.done, self.all));
        }
    }
}

/// Clears the line for the next output.
impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, all: u64) -> String {
    let filled = done.saturating_mul(WIDTH as u64).checked_div(all).map_or(WIDTH, |filled| filled as usize).min(WIDTH);
    format!("{what} [{}{}] {done} of {all}", "=".repeat(filled), " ".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_as_full_as_the_work_is_done() {
        assert_eq!(line("courses", 0, 4), format!("courses [{}] 0 of 4", " ".repeat(WIDTH)));
        assert_eq!(line("courses", 2, 4), format!("courses [{}{}] 2 of 4", "=".repeat(12), " ".repeat(12)));
        assert_eq!(line("courses", 4, 4), format!("courses [{}] 4 of 4", "=".repeat(WIDTH)));
        assert_eq!(line("courses", 0, 0), format!("courses [{}] 0 of 0", "=".repeat(WIDTH)));
    }
}
