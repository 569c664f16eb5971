//! Log lines to standard error: text for people, JSON for machines.

use std::io::{self, IsTerminal as _};

use amalgam_logs::LogOutput;
use anyhow::Context as _;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

use crate::config::{Log, LogFormat};

/// Changes which lines are logged.
pub(crate) struct LogFilter(Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send>);

impl LogFilter {
    /// Applies a new filter from the next line on.
    pub(crate) fn set(&self, log: &Log) -> anyhow::Result<()> {
        (self.0)(read(log)?).context("changing the log filter")
    }
}

/// Starts logging for the whole process.
pub(crate) fn init(log: &Log) -> anyhow::Result<LogFilter> {
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

fn read(log: &Log) -> anyhow::Result<EnvFilter> {
    EnvFilter::builder().parse(&log.filter).context("reading the log filter")
}

/// The crates of this project beside the binary, and the targets of the lines of requests and spans, without their prefix.
const CRATES: &[&str] = &[
    "administration",
    "app",
    "assistant",
    "core",
    "engine",
    "execute",
    "knowledge",
    "models",
    "protocol",
    "request",
    "server",
    "span",
    "store",
    "store_postgres",
    "store_sqlite",
    "telemetry",
    "tokens",
    "tools",
];

/// Whether a filter is valid. `EnvFilter` interprets a single unknown word as a target and then logs next to nothing;
/// here such a word has to be one of this project's crates, and so does every target that starts with `amalgam`.
pub(crate) fn can_read(filter: &str) -> bool {
    let is_known = |directive: &str| {
        let target = directive.split(['=', '[']).next().unwrap_or_default().trim();
        let crate_name = target.split("::").next().unwrap_or_default();
        let is_level = directive.parse::<LevelFilter>().is_ok();
        let is_foreign = directive.contains(['=', '[']) && !crate_name.starts_with("amalgam");
        let of_ours = crate_name.strip_prefix("amalgam_").is_some_and(|name| CRATES.contains(&name));
        is_level || is_foreign || of_ours || crate_name == "amalgam"
    };
    let mut directives = filter.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    directives.all(is_known) && EnvFilter::builder().parse(filter).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_neither_a_level_nor_a_crate_of_ours_cannot_be_read() {
        // right D
        for good in
            ["info", "WARN", "off", "info,amalgam=debug", "amalgam_engine", "amalgam::cmd", "hyper=trace,info", ""]
        {
            assert!(can_read(good), "{good}");
        }
        for wrong in [
            "verbose",
            "info,verbos",
            "amalgam=loud",
            "debugg",
            "yes",
            "amalgam_enigne",
            "info,amalgam_stor=debug",
            "amalgams=info",
        ] {
            assert!(!can_read(wrong), "{wrong}");
        }
    }
}
