//! `amalgam serve`: runs the server until SIGTERM or SIGINT.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use amalgam_app::turns::QueueRunner;
use amalgam_engine::Runner;
use amalgam_server::{AuthenticatedRouter, DrainReport, ListenerConfig};
use anyhow::Context as _;
use clap::Args;
use secrecy::ExposeSecret as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::cli::ConfigArgs;
use crate::config::{Config, LoadedConfig, Sources};
use crate::default_model::DisplayedModel;
use crate::logs;
use crate::terminal::print_stdout;
use crate::wire_up::{self, AssembledServer};

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Reads the configuration, starts logging and logs warnings.
pub(crate) fn load(args: &ServeArgs) -> anyhow::Result<LoadedConfig> {
    let loaded = Config::load(&Sources::gather(args.config.clone().into())?)?;
    logs::init(&loaded.config.log)?;
    for warning in &loaded.warnings {
        warn!("{warning}");
    }
    Ok(loaded)
}

/// Serves until SIGTERM or SIGINT, then drains running turns.
pub(crate) async fn run(config: Config) -> anyhow::Result<()> {
    // Links in answers name the port, which may be any free one.
    let main = Door::bind(config.server.listen)?;
    let AssembledServer { app, names, engine, admission, auth, tools, life, first_key } =
        wire_up::assemble(&config, main.bound).await?;
    let runner = Arc::new(QueueRunner::new(app.application()));
    engine.register_process(life).await.context("registering this process in the store")?;
    // Where other machines come in, the administration has a door of its own.
    let admin = match config.is_local() {
        true => None,
        false => Some(Door::bind(config.server.admin_listen)?),
    };
    let metrics = config.metrics_listen.map(Door::bind).transpose()?;
    let mut signals = Signals::new()?;
    if let Some(issued) = first_key {
        print_stdout(format_args!("admin key (shown once): {}", issued.key.expose_secret()))?;
    }
    if let Some(admin) = &admin {
        print_stdout(format_args!("amalgam administration on http://{}", admin.bound))?;
    }
    if let Some(metrics) = &metrics {
        print_stdout(format_args!("amalgam metrics on http://{}", metrics.bound))?;
    }
    // One line that scripts wait for; everything else goes to the log.
    print_stdout(format_args!("amalgam listening on http://{}", main.bound))?;

    let (stopping, stop) = watch::channel(false);
    let signal = async {
        signals.wait().await;
        info!("stopping: no new turns, running ones may end");
        app.drain();
        admission.close();
        stopping.send_replace(true);
        let patience = config.server.drain_timeout.saturating_sub(LAST_WORDS.min(config.server.drain_timeout / 2));
        tokio::time::sleep(patience).await;
        admission.end_turns();
        // Turns that are not stored by then are recovered by another process or at the next start.
        tokio::time::sleep(config.server.drain_timeout - patience + FAREWELL).await;
    };
    let listener = || wire_up::listener(&config);
    let serving = async {
        match admin {
            None => main.serve(amalgam_server::router(Arc::clone(&app)), listener(), stop.clone()).await,
            Some(admin) => {
                let wires =
                    main.serve(amalgam_server::without_administration(Arc::clone(&app)), listener(), stop.clone());
                let admin = admin.serve(amalgam_server::administration(Arc::clone(&app)), listener(), stop.clone());
                tokio::join!(wires, admin).0
            }
        }
    };
    let metrics = async {
        if let Some(metrics) = metrics {
            metrics.serve(amalgam_server::metrics(Arc::clone(&app)), listener(), stop.clone()).await;
        }
    };
    // Turns whose caller has left have as long as those whose caller waits.
    let working = async {
        let (report, ()) = tokio::join!(serving, metrics);
        engine.wait_for_tasks().await;
        report
    };
    // An upstream may have to be asked what it has, which must not hold up the start.
    let announced = async {
        let model = DisplayedModel::of(&config, &names).await;
        let wires = "the assistant (/api/v2/ai-agent) and execute (/api/agent) doors";
        match (&model.upstream, &model.missing_key) {
            (Some(_), None) => info!("{wires} use {model}, unless a tenant or profile names another"),
            (Some(_), Some(variable)) => warn!("{wires} use {model}, whose key {variable} is not set"),
            (None, _) => warn!("{wires} have {model}; set `[assistant] model`"),
        }
    };
    let life = async {
        tokio::join!(engine.housekeep(life, Arc::clone(&runner) as Arc<dyn Runner>), auth.write_last_used(), announced)
    };
    // Only the work ends; the others go on for as long as it does.
    let report = tokio::select! {
        report = working => Some(report),
        () = signal => None,
        _ = life => return Ok(()),
    };
    engine.shut_down(FAREWELL).await;
    tokio::join!(tools.close(), auth.flush_last_used());
    match report {
        Some(report) => info!(finished = report.finished, dropped = report.dropped, "stopped after {:?}", report.took),
        None => warn!("stopped before everything was written down"),
    }
    Ok(())
}

/// A listening socket.
struct Door {
    listener: TcpListener,
    bound: SocketAddr,
}

impl Door {
    fn bind(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = listen(address).with_context(|| format!("listening on {address}"))?;
        let bound = listener.local_addr().context("asking for the bound address")?;
        Ok(Self { listener, bound })
    }

    async fn serve(
        self,
        router: AuthenticatedRouter,
        config: ListenerConfig,
        mut stop: watch::Receiver<bool>,
    ) -> DrainReport {
        let shutdown = async move {
            // The sender lives for as long as this is waited for.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        amalgam_server::serve(self.listener, router, config, shutdown).await
    }
}

/// How long background turns may take to be stored at shutdown.
const FAREWELL: Duration = Duration::from_secs(5);

/// Running turns are cancelled this long before the drain deadline, so that their callers get an answer.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The send buffer for a client that does not read. The system's default grows to megabytes.
const SEND_BUFFER: u32 = 128 * 1024;

/// The backlog of connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Binds the address; socket options set here apply to every accepted connection.
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

/// The signals that shut the process down.
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
