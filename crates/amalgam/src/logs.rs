//! Log lines to standard error: text for people, JSON for machines.

use std::io::{self, IsTerminal as _};

use anyhow::Context as _;
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

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

/// The crates of this project, as targets of log lines.
const CRATES: &[&str] = &[
    "amalgam",
    "amalgam_app",
    "amalgam_assistant",
    "amalgam_core",
    "amalgam_engine",
    "amalgam_execute",
    "amalgam_knowledge",
    "amalgam_models",
    "amalgam_protocol",
    "amalgam_server",
    "amalgam_store",
    "amalgam_store_postgres",
    "amalgam_store_sqlite",
    "amalgam_tokens",
    "amalgam_tools",
];

/// Whether a filter is valid. `EnvFilter` interprets a single unknown word as a target and then logs next to nothing;
/// here such a word has to be one of this project's crates, and so does every target that starts with `amalgam`.
pub(crate) fn can_read(filter: &str) -> bool {
    let is_known = |directive: &str| {
        let target = directive.split(['=', '[']).next().unwrap_or_default().trim();
        let crate_name = target.split("::").next().unwrap_or_default();
        let is_level = directive.parse::<LevelFilter>().is_ok();
        let is_foreign = directive.contains(['=', '[']) && !crate_name.starts_with("amalgam");
        is_level || is_foreign || CRATES.contains(&crate_name)
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
