//! `amalgam version`: which program is this?

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::terminal::{say, say_json};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Set by builds from a checkout; a build from plain sources has none.
const COMMIT: Option<&str> = option_env!("AMALGAM_BUILD_COMMIT");

#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: VersionArgs) -> anyhow::Result<ExitCode> {
    match (args.json, COMMIT) {
        (true, commit) => say_json(&json!({"name": "amalgam", "version": VERSION, "commit": commit}))?,
        (false, Some(commit)) => say(format_args!("amalgam {VERSION} ({commit})"))?,
        (false, None) => say(format_args!("amalgam {VERSION}"))?,
    }
    Ok(ExitCode::SUCCESS)
}
