//! `report`: every figure of one run, side by side.
//!
//! Rounds alternate between the pass-through and the server, so that a busy neighbour on the machine hits both, and a
//! ratio is taken within a round. Figures of different runs are not comparable; ratios are.

mod cpu;
mod latency;
mod memory;
mod probe;
mod table;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::children::{Scratch, Server};
use crate::requests::Scenario;

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
}

const FULL: Plan = Plan {
    name: "full",
    connections: 16,
    rounds: 7,
    round: Duration::from_millis(1000),
    paced_rounds: 7,
    latency_rounds: 3,
    latency_round: Duration::from_millis(1500),
    open_streams: 1000,
};

const QUICK: Plan = Plan {
    name: "quick",
    connections: 16,
    rounds: 3,
    round: Duration::from_millis(400),
    paced_rounds: 2,
    latency_rounds: 1,
    latency_round: Duration::from_millis(500),
    open_streams: 1000,
};

/// A way through which the same request reaches the same mock.
struct Route {
    label: &'static str,
    address: SocketAddr,
    /// What stands before the model's name.
    prefix: &'static str,
    pid: u32,
}

/// All figures of a run.
struct Findings {
    cpu: Vec<cpu::CpuRow>,
    latency: Vec<latency::LatencyRow>,
    memory: Vec<memory::MemoryRow>,
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
    let cpu = cpu::measure(options, &routes, started_at).await?;
    let direct = Route { label: "direct", address: mock.address, prefix: "", pid: mock.pid() };
    let latency = latency::measure(plan, &direct, &routes, started_at).await?;

    let findings = Findings { cpu, latency, memory };
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
            Subject::Amalgam => {
                Server::start_amalgam(&self.options.amalgam, self.mock.address, &self.scratch.path).await
            }
            Subject::Itself => self.start_raw().await,
        }
    }

    /// The pass-through first, then the ways through the subject.
    fn routes(&self, raw: &Server, subject: &Server) -> Vec<Route> {
        let mut routes = vec![Route { label: "raw", address: raw.address, prefix: "", pid: raw.pid() }];
        let through = |label, prefix| Route { label, address: subject.address, prefix, pid: subject.pid() };
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
        cpu.chain(memory).collect()
    }
}

fn progress(started_at: Instant, what: &str) {
    eprintln!("[{:>5.1} s] {what}", started_at.elapsed().as_secs_f64());
}
