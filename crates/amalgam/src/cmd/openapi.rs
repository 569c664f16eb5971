//! `amalgam openapi`: the description of the HTTP interface.

use std::process::ExitCode;

use crate::terminal::print_stdout;

/// Prints the document that the server publishes at `/openapi.json`.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    print_stdout(amalgam_server::openapi().trim_end())?;
    Ok(ExitCode::SUCCESS)
}
