//! Log lines to standard error: text for people, JSON for machines.

use std::io::{self, IsTerminal as _};

use amalgam_logs::LogOutput;
use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

use amalgam_configuration::{LogConfig, LogFormat};

/// Changes which lines are logged.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send>);

impl LogFilter {
    /// Applies a new filter from the next line on.
    pub(crate) fn set(&self, log: &LogConfig) -> anyhow::Result<()> {
        (self.0)(read(log)?).context("changing the log filter")
    }
}

/// Starts logging for the whole process.
pub(crate) fn init(log: &LogConfig) -> anyhow::Result<LogFilter> {
    let lines = tracing_subscriber::fmt().with_env_filter(read(log)?).with_writer(LogOutput::start());
    let (set, started): (LogFilter, _) = match log.format {
        LogFormat::Text => {
            let lines = lines.with_ansi(io::stderr().is_terminal()).with_filter_reloading();
            let handle = lines.reload_handle();
            (LogFilter(Box::new(move |filter| Ok(handle.reload(filter)?))), lines.try_init())
        }
        LogFormat::Json => {
            let lines = lines.json().with_filter_reloading();
            let handle = lines.reload_handle();
            (LogFilter(Box::new(move |filter| Ok(handle.reload(filter)?))), lines.try_init())
        }
    };
    started.map_err(|error| anyhow::anyhow!("{error}")).context("starting the log")?;
    Ok(set)
}

fn read(log: &LogConfig) -> anyhow::Result<EnvFilter> {
    EnvFilter::builder().parse(&log.filter).context("reading the log filter")
}
