//! `report`: every figure of one run, side by side.
//!
//! Rounds alternate between the pass-through and the server, so that a busy neighbour on the machine hits both, and a
//! ratio is taken within a round. Figures of different runs are not comparable; ratios are.

mod chain;
mod cpu;
mod latency;
mod memory;
mod probe;
mod stored;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::children::{Scratch, Server, Store};
use crate::client::Job;
use crate::postgres::Database;
use crate::requests::{Scenario, Storage, Wire};

pub(crate) struct Options {
    amalgam: PathBuf,
    out: Option<PathBuf>,
    plan: Plan,
    subject: Subject,
    gate: bool,
}

/// What stands beside the pass-through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Amalgam,
    /// A second pass-through: shows what ratios this machine makes out of nothing.
    Itself,
}

/// How long everything takes.
struct Plan {
    name: &'static str,
    connections: usize,
    rounds: usize,
    round: Duration,
    paced_rounds: usize,
    latency_rounds: usize,
    latency_round: Duration,
    open_streams: usize,
    /// Turns of a chain whose cost is measured, beside the first and the tenth.
    chain_turns: &'static [usize],
    /// Responses that each connection stores before the database is measured.
    size_requests: u32,
}

const FULL: Plan = Plan {
    name: "full",
    connections: 16,
    // Many short ones: a machine that others use changes its pace within a second, and a ratio wants both sides of one pace.
    rounds: 21,
    round: Duration::from_millis(350),
    paced_rounds: 7,
    latency_rounds: 3,
    latency_round: Duration::from_millis(1500),
    open_streams: 1000,
    chain_turns: &[100, 1000],
    size_requests: 100,
};

const QUICK: Plan = Plan {
    name: "quick",
    connections: 16,
    rounds: 6,
    round: Duration::from_millis(200),
    paced_rounds: 2,
    latency_rounds: 1,
    latency_round: Duration::from_millis(500),
    open_streams: 1000,
    chain_turns: &[100],
    size_requests: 25,
};

/// A way through which the same request reaches the same mock.
#[derive(Clone)]
struct Route {
    label: &'static str,
    address: SocketAddr,
    /// What stands before the model's name.
    prefix: &'static str,
    pid: u32,
    storage: Storage,
    wire: Wire,
    /// The database that the server uses beside its own process.
    database: Option<Arc<Database>>,
}

impl Route {
    fn unstored(label: &'static str, address: SocketAddr, prefix: &'static str, pid: u32) -> Self {
        Self { label, address, prefix, pid, storage: Storage::Unstored, wire: Wire::Responses, database: None }
    }

    fn job(&self, scenario: Scenario) -> Job {
        Job::with_storage(self.address, self.prefix, scenario, self.storage).on(self.wire)
    }
}

/// All figures of a run.
struct Findings {
    cpu: Vec<cpu::CpuRow>,
    latency: Vec<latency::LatencyRow>,
    memory: Vec<memory::MemoryRow>,
    /// Nothing for a pass-through.
    stored: Option<stored::Findings>,
}

pub(crate) async fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let amalgam = args.value("--amalgam")?.unwrap_or_else(|| PathBuf::from("target/release/amalgam"));
    let out = args.value("--out")?;
    let plan = if args.flag("--quick") { QUICK } else { FULL };
    let subject = if args.flag("--self-check") { Subject::Itself } else { Subject::Amalgam };
    let gate = args.flag("--gate");
    args.finish()?;
    let options = Options { amalgam, out, plan, subject, gate };

    // Returning, rather than being killed, is what ends the servers.
    let mut terminated = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    tokio::select! {
        result = measure(&options) => result,
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        _ = terminated.recv() => bail!("terminated"),
    }
}

async fn measure(options: &Options) -> anyhow::Result<ExitCode> {
    let started_at = Instant::now();
    let plan = &options.plan;
    let scratch = Scratch::create()?;
    let mock = Server::start_own("mock", &[]).await?;
    let stage = Stage { options, scratch: &scratch, mock: &mock };

    // Memory first, with processes that have done nothing else: what an allocator keeps after a load would hide growth.
    let memory = memory::measure(&stage, started_at).await?;

    let raw = stage.start_raw().await?;
    let subject = stage.start_subject().await?;
    let routes = stage.routes(&raw, &subject);
    for route in &routes {
        for scenario in [Scenario::Plain, Scenario::Large, Scenario::Burst] {
            probe::check(route, scenario).await.with_context(|| format!("{}: {scenario:?}", route.label))?;
        }
    }
    progress(started_at, "answers are right on every route");
    let cpu = cpu::measure(plan, &routes, &cpu::unstored(options), None, started_at).await?;
    let direct = Route::unstored("direct", mock.address, "", mock.pid());
    let latency = latency::measure(plan, &direct, &routes, &latency::TRAFFIC, started_at).await?;
    drop(subject);
    let stored = match (options.subject, routes.first()) {
        (Subject::Amalgam, Some(raw)) => Some(stored::measure(&stage, raw, started_at).await?),
        _ => None,
    };

    let findings = Findings { cpu, latency, memory, stored };
    let text = table::markdown(options, &findings, started_at.elapsed());
    print!("{text}");
    if let Some(file) = &options.out {
        fs::write(file, &text).with_context(|| format!("writing {}", file.display()))?;
    }
    let missed = findings.missed();
    let verdict = match options.subject {
        Subject::Amalgam if missed.is_empty() => "every target met".to_owned(),
        Subject::Amalgam => format!("missed: {}", missed.join(", ")),
        Subject::Itself => "done".to_owned(),
    };
    progress(started_at, &verdict);
    Ok(if options.gate && !missed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What servers are started from.
struct Stage<'a> {
    options: &'a Options,
    scratch: &'a Scratch,
    mock: &'a Server,
}

impl Stage<'_> {
    async fn start_raw(&self) -> anyhow::Result<Server> {
        Server::start_own("raw", &["--upstream", &self.mock.address.to_string()]).await
    }

    async fn start_subject(&self) -> anyhow::Result<Server> {
        match self.options.subject {
            Subject::Amalgam => self.start_stored(Store::File("data")).await,
            Subject::Itself => self.start_raw().await,
        }
    }

    /// The server with a store of its own.
    async fn start_stored(&self, store: Store<'_>) -> anyhow::Result<Server> {
        Server::start_amalgam(&self.options.amalgam, self.mock.address, &self.scratch.path, store).await
    }

    /// Bytes of requests that the mock has got so far.
    async fn received_bytes(&self) -> anyhow::Result<u64> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let address = format!("http://{}/received-bytes", self.mock.address).parse().context("the mock's address")?;
        let answer = client.get(address).await.context("asking the mock")?;
        let answer = answer.into_body().collect().await.context("asking the mock")?.to_bytes();
        String::from_utf8_lossy(&answer).parse().context("the mock's count is no number")
    }

    /// The pass-through first, then the ways through the subject.
    fn routes(&self, raw: &Server, subject: &Server) -> Vec<Route> {
        let mut routes = vec![Route::unstored("raw", raw.address, "", raw.pid())];
        let through = |label, prefix| Route::unstored(label, subject.address, prefix, subject.pid());
        match self.options.subject {
            Subject::Amalgam => {
                routes.push(through("amalgam → chat", "chat/"));
                routes.push(through("amalgam → responses", "resp/"));
            }
            Subject::Itself => routes.push(through("raw again", "")),
        }
        routes
    }
}

impl Findings {
    /// The targets that were not met, by name.
    fn missed(&self) -> Vec<String> {
        let cpu = self.cpu.iter().flat_map(|row| row.missed());
        let memory = self.memory.iter().flat_map(|row| row.missed());
        let stored = self.stored.iter().flat_map(stored::Findings::missed);
        cpu.chain(memory).chain(stored).collect()
    }
}

fn progress(started_at: Instant, what: &str) {
    eprintln!("[{:>5.1} s] {what}", started_at.elapsed().as_secs_f64());
}
