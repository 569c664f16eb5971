//! The one place that writes to standard output and standard error outside of the log.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Writes what a command was asked for.
pub(crate) fn say(text: impl Display) -> io::Result<()> {
    quietly_closed(writeln!(io::stdout().lock(), "{text}"))
}

/// Writes data for other programs.
pub(crate) fn say_json(value: &impl Serialize) -> io::Result<()> {
    say(serde_json::to_string_pretty(value)?)
}

/// Writes to the person in front of the terminal. There is nobody to tell when that fails.
pub(crate) fn tell(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A reader that has seen enough (`amalgam check | head`) is no failure.
fn quietly_closed(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
