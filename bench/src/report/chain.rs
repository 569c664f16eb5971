//! What a turn of a stored chain costs, and how that grows with the turns before it.
//!
//! One caller, one turn at a time: the first and the tenth turn of many chains, then one chain that goes on, with the turns
//! around the hundredth and the thousandth.

use std::ops::Range;
use std::time::Instant;

use anyhow::Context;

use super::{Plan, Route, Stage, progress};
use crate::client::{Connection, Job};
use crate::process::CpuSnapshot;

/// Turns that are averaged for one figure.
const SAMPLES: usize = 20;

/// One turn number on one engine.
pub(super) struct ChainRow {
    pub(super) engine: &'static str,
    pub(super) turn: usize,
    /// CPU time of the server.
    pub(super) micros: f64,
    pub(super) bytes_upstream: f64,
}

pub(super) async fn measure(
    stage: &Stage<'_>,
    plan: &Plan,
    engine: &'static str,
    route: &Route,
    started_at: Instant,
) -> anyhow::Result<Vec<ChainRow>> {
    let mut caller = Caller::new(stage, route).await?;
    let mut chains = vec![None; SAMPLES];
    let mut rows = Vec::new();
    let mut row = |turn, (micros, bytes_upstream)| rows.push(ChainRow { engine, turn, micros, bytes_upstream });

    // Connections, statements and caches are there before the first figure.
    caller.go_on(&mut vec![None; SAMPLES]).await?;
    row(1, caller.measured(&mut chains).await?);
    for _ in 2..10 {
        caller.go_on(&mut chains).await?;
    }
    row(10, caller.measured(&mut chains).await?);
    let mut chain = chains.pop().context("no chain was made")?;
    let mut length = 10;
    for turn in plan.chain_turns {
        let Range { start, end } = turn - SAMPLES / 2..turn + SAMPLES / 2;
        chain = caller.turns(chain, start - length).await?;
        let before = caller.snapshot().await?;
        chain = caller.turns(chain, end - start).await?;
        row(*turn, caller.since(&before, end - start).await?);
        length = end;
    }
    let figures: Vec<String> = rows.iter().map(|row| format!("{} {:.0} µs", row.turn, row.micros)).collect();
    progress(started_at, &format!("turns of a chain, {engine}: {}", figures.join(", ")));
    Ok(rows)
}

struct Caller<'a> {
    stage: &'a Stage<'a>,
    route: &'a Route,
    connection: Connection,
}

/// Everything up to one moment.
struct Snapshot {
    cpu: CpuSnapshot,
    upstream: u64,
}

impl<'a> Caller<'a> {
    async fn new(stage: &'a Stage<'a>, route: &'a Route) -> anyhow::Result<Self> {
        let connection = Connection::open(&Job::chained(route.address, route.prefix, None)).await?;
        Ok(Self { stage, route, connection })
    }

    /// One more turn of each chain; the mean of what it cost.
    async fn measured(&mut self, chains: &mut [Option<String>]) -> anyhow::Result<(f64, f64)> {
        let before = self.snapshot().await?;
        self.go_on(chains).await?;
        self.since(&before, chains.len()).await
    }

    async fn go_on(&mut self, chains: &mut [Option<String>]) -> anyhow::Result<()> {
        for chain in chains {
            *chain = self.turns(chain.take(), 1).await?;
        }
        Ok(())
    }

    /// Some turns, one behind the other. The id of the last response.
    async fn turns(&mut self, chain: Option<String>, count: usize) -> anyhow::Result<Option<String>> {
        self.connection.turns(self.route.address, self.route.prefix, chain, count).await
    }

    async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        Ok(Snapshot { cpu: CpuSnapshot::take(self.route.pid)?, upstream: self.stage.received_bytes().await? })
    }

    /// CPU time in microseconds and bytes sent upstream, a turn.
    async fn since(&self, before: &Snapshot, turns: usize) -> anyhow::Result<(f64, f64)> {
        let now = self.snapshot().await?;
        let micros = now.cpu.since(&before.cpu).as_secs_f64() * 1e6 / turns as f64;
        Ok((micros, (now.upstream - before.upstream) as f64 / turns as f64))
    }
}
