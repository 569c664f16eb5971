//! `amalgam completion SHELL`: a script that completes commands and flags.

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Shell to generate the script for
    shell: Shell,
}

pub(crate) fn run(args: CompletionArgs) -> anyhow::Result<ExitCode> {
    // Into memory first: the generator panics when a write fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "amalgam", &mut script);
    io::stdout().lock().write_all(&script).context("writing the script")?;
    Ok(ExitCode::SUCCESS)
}
