//! Log lines to standard error: text for people, JSON for machines.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Starts logging for the whole process.
pub(crate) fn init(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&log.filter).context("reading the log filter")?;
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match log.format {
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => lines.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("{error}"))
    .context("starting the log")
}

/// Whether a filter can be read.
pub(crate) fn can_read(filter: &str) -> bool {
    EnvFilter::builder().parse(filter).is_ok()
}
