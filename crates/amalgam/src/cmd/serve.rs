//! `amalgam serve`: serves until a signal to stop.

use clap::Args;
use tracing::warn;

use crate::cli::ConfigArgs;
use crate::config::{Config, Loaded, Sources};
use crate::logs;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Reads the configuration, starts the log and says what is odd. From here on everything is logged.
pub(crate) fn load(args: &ServeArgs) -> anyhow::Result<Loaded> {
    let loaded = Config::load(&Sources::gather(args.config.clone().into())?)?;
    logs::init(&loaded.config.log)?;
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    Ok(loaded)
}

pub(crate) async fn run(_args: ServeArgs, config: Config) -> anyhow::Result<()> {
    anyhow::bail!("this build cannot serve on {} yet", config.server.listen)
}
