//! `amalgam openapi`: the description of the HTTP interface.

use std::process::ExitCode;

use crate::terminal::print_stdout;

/// Prints the document that the server publishes at `/openapi.json`.
pub(crate) fn run(document: &str) -> anyhow::Result<ExitCode> {
    print_stdout(document.trim_end())?;
    Ok(ExitCode::SUCCESS)
}
