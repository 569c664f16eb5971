//! Which log filters are valid.

use tracing_subscriber::{EnvFilter, filter::LevelFilter};

/// The crates of this project beside the binary, and the targets of the lines of requests and spans, without their prefix.
const CRATES: &[&str] = &[
    "administration",
    "app",
    "assistant",
    "chat_completions",
    "configuration",
    "core",
    "engine",
    "execute",
    "knowledge",
    "listener",
    "messages",
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
pub(crate) fn is_valid(filter: &str) -> bool {
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
            assert!(is_valid(good), "{good}");
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
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
