//! `amalgam version`: prints the version.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::terminal::{print_json, print_stdout};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Set by builds from a checkout; a build from plain sources has none.
pub(crate) const COMMIT: Option<&str> = option_env!("AMALGAM_BUILD_COMMIT");

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: VersionArgs) -> anyhow::Result<ExitCode> {
    match (args.json, COMMIT) {
        (true, commit) => print_json(&json!({"name": "amalgam", "version": VERSION, "commit": commit}))?,
        (false, Some(commit)) => print_stdout(format_args!("amalgam {VERSION} ({commit})"))?,
        (false, None) => print_stdout(format_args!("amalgam {VERSION}"))?,
    }
    Ok(ExitCode::SUCCESS)
}
