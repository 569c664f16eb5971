//! `amalgam serve`: serves until a signal to stop.

use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::cli::ConfigArgs;
use crate::config::{Config, Loaded, Sources};
use crate::logs;
use crate::terminal::say;
use crate::wire_up::{self, Joined};

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

/// Serves until SIGTERM or SIGINT, then lets running turns end.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    let Joined { app, admission } = wire_up::join(&config)?;
    let address = config.server.listen;
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening on {address}"))?;
    let bound = listener.local_addr().context("asking for the bound address")?;
    let mut stop = Signals::new()?;
    // One line that scripts wait for; everything else goes to the log.
    say(format_args!("amalgam listening on http://{bound}"))?;
    let draining = Arc::clone(&app);
    let shutdown = async move {
        stop.wait().await;
        info!("stopping: no new turns, running ones may end");
        draining.drain();
        admission.close();
    };
    let report =
        amalgam_server::serve(listener, amalgam_server::router(app), wire_up::listener(&config), shutdown).await;
    info!(finished = report.finished, dropped = report.dropped, "stopped after {:?}", report.took);
    Ok(())
}

/// The signals that end the process in order.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
