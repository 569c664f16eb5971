//! What storing costs: turns that are stored beside the same turns unstored, on each storage engine that is there.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::chain::ChainRow;
use super::cpu::{CpuRow, Measured};
use super::latency::{LatencyRow, Traffic};
use super::{Route, Stage, chain, cpu, latency, probe, progress};
use crate::children::{Server, Store};
use crate::client::Job;
use crate::load::{Clients, Until};
use crate::postgres::Database;
use crate::requests::{Scenario, Storage, Wire};
use crate::stats;

/// Over the same requests unstored, at 500 requests a second; for a disk that flushes in a fraction of it.
pub(super) const ADDED_P99_TARGET_MS: f64 = 2.0;

/// A stored turn of another wire, relative to the same turn on `/v1/responses`.
const WIRES_TARGET: f64 = 1.5;

const RATE: [Traffic; 1] = [Traffic { name: "plain, 500/s", scenario: Scenario::Plain, rate: 500 }];

/// Everything about one storage engine.
pub(super) struct StoredRows {
    pub(super) engine: &'static str,
    /// What a commit waits for.
    pub(super) durability: String,
    pub(super) cpu: Vec<CpuRow>,
    /// Stored turns of the other wires, relative to those of `/v1/responses`.
    pub(super) wires: CpuRow,
    pub(super) latency: Vec<LatencyRow>,
    pub(super) chain: Vec<ChainRow>,
    pub(super) sizes: Vec<SizeRow>,
}

/// What a response takes on disk.
pub(super) struct SizeRow {
    pub(super) scenario: &'static str,
    pub(super) bytes_per_response: f64,
}

pub(super) struct Findings {
    pub(super) engines: Vec<StoredRows>,
    /// Median and 99th percentile of flushing 4 KiB to the disk that the stores are on, in ms.
    pub(super) flush_ms: (f64, f64),
}

impl Findings {
    pub(super) fn missed(&self) -> impl Iterator<Item = String> {
        // Times depend on the disk and on other processes that use it, so only CPU time is judged.
        self.engines.iter().flat_map(|rows| rows.cpu.iter().chain([&rows.wires])).flat_map(CpuRow::missed)
    }
}

pub(super) async fn measure(stage: &Stage<'_>, raw: &Route, started_at: Instant) -> anyhow::Result<Findings> {
    let flush_ms = flush_time(&stage.scratch.path)?;
    let mut engines = vec![on_sqlite(stage, raw, started_at).await.context("stored on SQLite")?];
    match Database::create()? {
        Some(database) => {
            engines.push(on_postgres(stage, raw, database, started_at).await.context("stored on PostgreSQL")?);
        }
        None => progress(started_at, "AMALGAM_BENCH_POSTGRES names no server: nothing is measured on PostgreSQL"),
    }
    Ok(Findings { engines, flush_ms })
}

async fn on_sqlite(stage: &Stage<'_>, raw: &Route, started_at: Instant) -> anyhow::Result<StoredRows> {
    let engine = "SQLite";
    let server = stage.start_stored(Store::File("stored")).await?;
    let routes = routes(raw, &server, None);
    let Figures { cpu, wires, latency, chain } = figures(stage, engine, 4.0, &routes, started_at).await?;
    drop(server);

    let mut sizes = Vec::new();
    for (scenario, name, folder) in SIZES {
        let server = stage.start_stored(Store::File(folder)).await?;
        let responses = fill(stage, &server, scenario).await?;
        // Its log is in the file only when the last connection was closed properly.
        server.stop().await?;
        let file = stage.scratch.path.join(folder).join("amalgam.db");
        let bytes = fs::metadata(&file).with_context(|| format!("looking at {}", file.display()))?.len();
        sizes.push(SizeRow { scenario: name, bytes_per_response: bytes as f64 / f64::from(responses) });
    }
    let durability = "flushed by SQLite at every commit".to_owned();
    Ok(StoredRows { engine, durability, cpu, wires, latency, chain, sizes })
}

async fn on_postgres(
    stage: &Stage<'_>,
    raw: &Route,
    database: Database,
    started_at: Instant,
) -> anyhow::Result<StoredRows> {
    let engine = "PostgreSQL";
    let durability = database.durability()?;
    let server = stage.start_stored(Store::Url(&database.url)).await?;
    let database = std::sync::Arc::new(database);
    let routes = routes(raw, &server, Some(&database));
    let Figures { cpu, wires, latency, chain } = figures(stage, engine, 4.0, &routes, started_at).await?;

    let mut sizes = Vec::new();
    for (scenario, name, _) in SIZES {
        let before = database.bytes()?;
        let responses = fill(stage, &server, scenario).await?;
        let grown = database.bytes()?.saturating_sub(before);
        sizes.push(SizeRow { scenario: name, bytes_per_response: grown as f64 / f64::from(responses) });
    }
    Ok(StoredRows { engine, durability, cpu, wires, latency, chain, sizes })
}

/// The pass-through, and both ways through one server: without its store and with it.
fn routes(raw: &Route, server: &Server, database: Option<&std::sync::Arc<Database>>) -> [Route; 3] {
    let through = |label, storage| Route {
        label,
        address: server.address,
        prefix: "chat/",
        pid: server.pid(),
        storage,
        wire: Wire::Responses,
        database: database.filter(|_| storage == Storage::Stored).cloned(),
    };
    [raw.clone(), through("unstored", Storage::Unstored), through("stored", Storage::Stored)]
}

/// What is measured on one server.
struct Figures {
    cpu: Vec<CpuRow>,
    wires: CpuRow,
    latency: Vec<LatencyRow>,
    chain: Vec<ChainRow>,
}

async fn figures(
    stage: &Stage<'_>,
    engine: &'static str,
    target: f64,
    routes: &[Route; 3],
    started_at: Instant,
) -> anyhow::Result<Figures> {
    let plan = &stage.options.plan;
    let [_, unstored, stored] = routes;
    for scenario in [Scenario::Plain, Scenario::Burst] {
        probe::check(stored, scenario).await?;
    }
    let scenarios = [
        Measured { scenario: Scenario::Plain, name: "plain", target: Some(target) },
        Measured { scenario: Scenario::Burst, name: "100-token streams in bursts", target: None },
    ];
    progress(started_at, &format!("stored on {engine}"));
    let cpu = cpu::measure(plan, routes, &scenarios, Some("stored"), started_at).await?;
    let other = |label, wire| Route { label, wire, ..stored.clone() };
    let wires = [
        Route { label: "/v1/responses", ..stored.clone() },
        other("assistant", Wire::Assistant),
        other("execute", Wire::Execute),
    ];
    let plain = [Measured { scenario: Scenario::Plain, name: "a stored turn", target: Some(WIRES_TARGET) }];
    let wires = cpu::measure(plan, &wires, &plain, None, started_at).await?.pop().context("no wire was measured")?;
    let latency = latency::measure(plan, unstored, std::slice::from_ref(stored), &RATE, started_at).await?;
    let chain = chain::measure(stage, plan, engine, stored, started_at).await?;
    Ok(Figures { cpu, wires, latency, chain })
}

const SIZES: [(Scenario, &str, &str); 2] =
    [(Scenario::Plain, "plain", "plain"), (Scenario::Burst, "streamed, 100 tokens", "streamed")];

/// Stores responses and nothing else; how many.
async fn fill(stage: &Stage<'_>, server: &Server, scenario: Scenario) -> anyhow::Result<u32> {
    let plan = &stage.options.plan;
    let job = Job::with_storage(server.address, "chat/", scenario, Storage::Stored);
    let mut clients = Clients::open(&job, plan.connections).await?;
    let tally = clients.closed_loop(&job, Until::Requests(plan.size_requests), Duration::ZERO).await.checked()?;
    u32::try_from(tally.requests).context("too many requests to count")
}

/// How long this disk takes to keep 4 KiB for good.
fn flush_time(folder: &Path) -> anyhow::Result<(f64, f64)> {
    let path = folder.join("flush");
    let mut file = File::create(&path).context("creating a file to flush")?;
    let mut times = Vec::new();
    for _ in 0..100 {
        let started_at = Instant::now();
        file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).context("flushing a file")?;
        times.push(started_at.elapsed().as_secs_f64() * 1e3);
    }
    fs::remove_file(&path).context("removing the flushed file")?;
    stats::percentile(&times, 50.0).zip(stats::percentile(&times, 99.0)).context("nothing was flushed")
}
