//! `amalgam serve`: runs the server until SIGTERM or SIGINT.

pub(super) mod certificates;
mod service_manager;
mod signals;
mod sockets;
mod startup;
mod unix_socket;

use std::sync::Arc;
use std::time::Duration;

use amalgam_administration::{
    Administration,
    reload::{ConfigurationRequest, ReloadReport},
    webhooks::deliver_webhooks,
};
use amalgam_app::turns::QueueRunner;
use amalgam_core::{Actor, Operator};
use amalgam_engine::Runner;
use amalgam_server::ServerTls;
use anyhow::Context as _;
use clap::Args;
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use self::service_manager::{ServiceState, feed_watchdog, notify};
use self::signals::{ProcessSignal, Signals};
use self::sockets::{Listener, PassedSockets};
use crate::cli::ConfigArgs;
use crate::default_model::DisplayedModel;
use crate::logs::{self, LogFilter};
use crate::machine;
use crate::reload::Reloader;
use crate::terminal::print_stdout;
use crate::wire_up::{self, AssembledServer};
use amalgam_configuration::{Config, Flags, LoadedConfig, Setting, Sources};

/// How long background turns may take to be stored at shutdown.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// Running turns are cancelled this long before the drain deadline, so that their callers get an answer.
const ANSWER_TIME: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// The input of `run`: gathered before the runtime has threads.
pub(crate) struct ServeInput {
    flags: Flags,
    config: Config,
    settings: Vec<Setting>,
    log: LogFilter,
    passed: PassedSockets,
}

/// Reads the configuration, takes passed sockets, starts logging and logs warnings.
pub(crate) fn load(args: &ServeArgs) -> anyhow::Result<ServeInput> {
    let flags: Flags = args.config.clone().into();
    let LoadedConfig { config, settings, warnings } = Config::load(&Sources::gather(flags.clone())?)?;
    let log = logs::init(&config.log)?;
    for warning in &warnings {
        warn!("{warning}");
    }
    Ok(ServeInput { flags, config, settings, log, passed: PassedSockets::take()? })
}

/// Serves until SIGTERM or SIGINT, then drains running turns.
pub(crate) async fn run(input: ServeInput) -> anyhow::Result<()> {
    let ServeInput { flags, config, settings, log, mut passed } = input;
    let tls = config.server.tls.as_ref().map(certificates::load).transpose()?;
    let mut listen = |key: &str, address| match passed.next(key, address, tls.as_ref())? {
        Some(listener) => Ok(listener),
        None => Listener::bind(address, tls.as_ref()),
    };
    // Links in answers name the port, which may be any free one.
    let main = listen("listen", &config.server.listen)?;
    let url = main.address.url(main.scheme());
    let AssembledServer { application, names, engine, live, reload_callers, tools, housekeeping, first_key, refusals } =
        wire_up::assemble(&config, &url, tls.as_ref()).await?;
    let (app, auth, admission) = (live.server.clone(), live.auth.clone(), live.admission.clone());
    let telemetry = live.telemetry.clone();
    let runner = Arc::new(QueueRunner::new(&application));
    engine.register_process(housekeeping).await.context("registering this process in the store")?;
    // Where other machines can reach the server, the administration has a listener of its own.
    let admin = match config.is_local() {
        true => None,
        false => Some(listen("admin_listen", &config.server.admin_listen)?),
    };
    // Scrapers in the same network need neither a key nor TLS.
    let metrics = config.metrics_listen.as_ref().map(|address| Listener::bind(address, None)).transpose()?;
    let mut signals = Signals::new()?;
    if let Some(first_key) = first_key {
        let listener = admin.as_ref().unwrap_or(&main);
        let address = listener.address.url(listener.scheme());
        startup::hand_over_first_key(&config, &first_key, &address)?;
    }
    startup::log_configuration(&config, &main, admin.as_ref());
    if let Some(admin) = &admin {
        print_stdout(format_args!("amalgam administration on {}", admin.shown()))?;
    }
    if let Some(metrics) = &metrics {
        print_stdout(format_args!("amalgam metrics on {}", metrics.shown()))?;
    }
    // One line that scripts wait for; everything else goes to the log.
    print_stdout(format_args!("amalgam listening on {}", main.shown()))?;
    notify(ServiceState::Ready);

    let (stopping, stop) = watch::channel(false);
    // A reload changes nothing that webhook deliveries use.
    let delivering = application.load();
    let reloader = Reloader { flags, config: config.clone(), settings, log, application, live };
    let shutdown = async {
        reload_until_stop(&mut signals, reload_callers, reloader, tls.as_ref()).await;
        info!("stopping: no new turns, running ones may end");
        notify(ServiceState::Stopping);
        app.drain();
        admission.close();
        stopping.send_replace(true);
        let patience = config.server.drain_timeout.saturating_sub(ANSWER_TIME.min(config.server.drain_timeout / 2));
        tokio::time::sleep(patience).await;
        admission.end_turns();
        // Turns that are not stored by then are recovered by another process or at the next start.
        tokio::time::sleep(config.server.drain_timeout - patience + STORE_TIMEOUT).await;
    };
    let limits = || wire_up::listener(&config, refusals.clone());
    let serving = async {
        match admin {
            None => main.serve(amalgam_server::router(app.clone()), limits(), stop.clone()).await,
            Some(admin) => {
                let wires = main.serve(amalgam_server::without_administration(app.clone()), limits(), stop.clone());
                let admin = admin.serve(amalgam_server::administration(app.clone()), limits(), stop.clone());
                tokio::join!(wires, admin).0
            }
        }
    };
    let metrics = async {
        if let Some(metrics) = metrics {
            metrics.serve(amalgam_server::metrics(app.clone()), limits(), stop.clone()).await;
        }
    };
    // Turns without a connected caller have as much time to end as the others.
    let working = async {
        let (report, ()) = tokio::join!(serving, metrics);
        engine.wait_for_tasks().await;
        report
    };
    let periodic = async {
        tokio::join!(
            engine.housekeep(housekeeping, Arc::clone(&runner) as Arc<dyn Runner>),
            auth.write_last_used(),
            deliver_webhooks(&delivering, housekeeping.transcripts),
            log_default_model(&config, &names),
            certificates::watch(tls.as_ref()),
            telemetry.export(|| amalgam_server::metrics_text(app.clone())),
            feed_watchdog(),
        )
    };
    // Waits only for `work`; the other tasks run until it has ended.
    let report = tokio::select! {
        report = working => Some(report),
        () = shutdown => None,
        _ = periodic => return Ok(()),
    };
    engine.shut_down(STORE_TIMEOUT).await;
    tokio::join!(tools.close(), auth.flush_last_used(), telemetry.flush());
    match report {
        Some(report) => info!(finished = report.finished, dropped = report.dropped, "stopped after {:?}", report.took),
        None => warn!("stopped before everything was written down"),
    }
    Ok(())
}

/// Reloads the configuration and the certificate on SIGHUP and on requests of operators, one at a time, until the process has
/// to stop.
async fn reload_until_stop(
    signals: &mut Signals,
    mut callers: mpsc::Receiver<ConfigurationRequest>,
    mut reloader: Reloader,
    tls: Option<&ServerTls>,
) {
    loop {
        let caller = tokio::select! {
            biased;
            signal = signals.next() => match signal {
                ProcessSignal::Stop => return,
                ProcessSignal::Reload => None,
            },
            // The application holds a sender for as long as this runs.
            Some(request) = callers.recv() => match request {
                ConfigurationRequest::Reload(caller) => Some(caller),
                // The callers may have left.
                ConfigurationRequest::Preview(caller) => {
                    let _ = caller.send(reloader.preview());
                    continue;
                }
                ConfigurationRequest::Show(caller) => {
                    let _ = caller.send(reloader.show());
                    continue;
                }
            },
        };
        notify(ServiceState::Reloading);
        certificates::refresh(tls).await;
        let result = reloader.reload().await;
        if let Ok(report) = &result {
            startup::log_reloadable(&reloader.config);
            // The handler of a caller's request records who it was.
            if caller.is_none() {
                record_signalled(&reloader, report).await;
            }
        }
        // The caller may have disconnected.
        if let Some(caller) = caller {
            let _ = caller.send(result);
        }
        notify(ServiceState::Ready);
    }
}

/// Appends a reload by SIGHUP to the audit.
async fn record_signalled(reloader: &Reloader, report: &ReloadReport) {
    let application = reloader.application.load();
    let administration = Administration::new(&application, Actor::server(machine::host_name()));
    if let Err(fault) = administration.record_reload(Operator::of_this_process(), report).await {
        warn!("the reload could not be added to the audit: {}", fault.explained());
    }
}

/// Logs the model for callers that name none. An upstream may have to be asked what it has, which must not delay the start.
async fn log_default_model(config: &Config, names: &amalgam_models::ModelNames) {
    let model = DisplayedModel::of(config, names).await;
    let wires = "the assistant (/api/v2/ai-agent) and execute (/api/agent) doors";
    match (&model.upstream, &model.missing_key) {
        (Some(_), None) => info!("{wires} use {model}, unless a tenant or profile names another"),
        (Some(_), Some(variable)) => warn!("{wires} use {model}, whose key {variable} is not set"),
        (None, _) => warn!("{wires} have {model}; set `[assistant] model`"),
    }
}
