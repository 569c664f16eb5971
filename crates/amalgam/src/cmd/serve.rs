//! `amalgam serve`: serves until a signal to stop.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
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
    let listener = listen(address).with_context(|| format!("listening on {address}"))?;
    let bound = listener.local_addr().context("asking for the bound address")?;
    let mut stop = Signals::new()?;
    // One line that scripts wait for; everything else goes to the log.
    say(format_args!("amalgam listening on http://{bound}"))?;
    let draining = Arc::clone(&app);
    let (signalled, told) = oneshot::channel();
    let closing = admission.clone();
    let shutdown = async move {
        stop.wait().await;
        info!("stopping: no new turns, running ones may end");
        draining.drain();
        closing.close();
        let _ = signalled.send(());
    };
    let patience = config.server.drain_timeout.saturating_sub(LAST_WORDS.min(config.server.drain_timeout / 2));
    let last_words = async move {
        // Without a signal there is nothing to wait for.
        if told.await.is_err() {
            return std::future::pending().await;
        }
        tokio::time::sleep(patience).await;
        admission.end_turns();
    };
    let serving = amalgam_server::serve(listener, amalgam_server::router(app), wire_up::listener(&config), shutdown);
    let mut serving = pin!(serving);
    let report = tokio::select! {
        report = &mut serving => report,
        () = last_words => serving.await,
    };
    info!(finished = report.finished, dropped = report.dropped, "stopped after {:?}", report.took);
    Ok(())
}

/// So long before the drain is over, turns that still run are told to end, so that their callers hear of it.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the system may hold of a stream for a client that does not read. Left to itself it takes megabytes.
const SEND_BUFFER: u32 = 128 * 1024;

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Binds the address; what is set here holds for every connection that is accepted.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address.is_ipv4() {
        true => TcpSocket::new_v4(),
        false => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
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
