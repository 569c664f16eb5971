//! `load`: clients that send Responses requests and read every answer to its end.
//!
//! Two loops: closed (each connection sends its next request when the last one is answered) for CPU per request, and
//! open (requests leave on a fixed schedule whatever the server does) for latencies. Both check what came back.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tokio::task::JoinSet;

use crate::args::Args;
use crate::client::{Connection, Exchange, Job};
use crate::requests::{Scenario, Storage, Wire};
use crate::stats;

/// What a load brought back.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) deltas: u64,
    pub(crate) latencies_ms: Vec<f64>,
    pub(crate) first_deltas_ms: Vec<f64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

impl Tally {
    fn add(&mut self, result: anyhow::Result<Exchange>) {
        match result {
            Ok(exchange) => {
                self.requests += 1;
                self.deltas += exchange.deltas;
                self.latencies_ms.push(exchange.whole.as_secs_f64() * 1e3);
                self.first_deltas_ms.extend(exchange.first_delta.map(|after| after.as_secs_f64() * 1e3));
            }
            Err(error) => {
                self.errors += 1;
                self.first_error.get_or_insert_with(|| format!("{error:#}"));
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.deltas += other.deltas;
        self.latencies_ms.extend(other.latencies_ms);
        self.first_deltas_ms.extend(other.first_deltas_ms);
        self.errors += other.errors;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    /// A figure from a load with errors would compare answers with refusals, so there is none.
    pub(crate) fn checked(self) -> anyhow::Result<Self> {
        match &self.first_error {
            Some(error) => {
                Err(anyhow!("{} of {} requests failed, the first: {error}", self.errors, self.requests + self.errors))
            }
            None if self.requests == 0 => Err(anyhow!("no request was made")),
            None => Ok(self),
        }
    }
}

/// When a closed loop ends. A request that has begun is always finished.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    Requests(u32),
}

/// Connections that stay open for a closed loop.
pub(crate) struct Clients {
    connections: Vec<Connection>,
}

impl Clients {
    pub(crate) async fn open(job: &Job, connections: usize) -> anyhow::Result<Self> {
        let mut opening = JoinSet::new();
        for _ in 0..connections {
            let job = job.clone();
            opening.spawn(async move { Connection::open(&job).await });
        }
        let connections = opening.join_all().await.into_iter().collect::<Result<_, _>>()?;
        Ok(Self { connections })
    }

    /// Opens sessions of the strict contract for the requests of `job`.
    pub(crate) async fn open_sessions(&mut self, job: &Job, count: usize) -> anyhow::Result<()> {
        let share = count / self.connections.len().max(1) + 1;
        let mut opening = JoinSet::new();
        for mut connection in std::mem::take(&mut self.connections) {
            let job = job.clone();
            opening.spawn(async move { connection.open_sessions(&job, share).await.map(|()| connection) });
        }
        self.connections = opening.join_all().await.into_iter().collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The connections themselves, for an open loop.
    pub(crate) fn into_connections(self) -> Vec<Connection> {
        self.connections
    }

    /// Each connection sends one request after another. `stagger` spreads the starts, so that streams of one pace do
    /// not move in step.
    pub(crate) async fn closed_loop(&mut self, job: &Job, until: Until, stagger: Duration) -> Tally {
        let started_at = Instant::now();
        let share = stagger / u32::try_from(self.connections.len().max(1)).unwrap_or(u32::MAX);
        let mut workers = JoinSet::new();
        for (delay, mut connection) in (0..).map(|turn| share * turn).zip(std::mem::take(&mut self.connections)) {
            let job = job.clone();
            workers.spawn(async move {
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
                let mut tally = Tally::default();
                let mut made = 0;
                while match until {
                    Until::Elapsed(limit) => started_at.elapsed() < limit,
                    Until::Requests(limit) => made < limit,
                } {
                    made += 1;
                    let result = connection.exchange(&job, Instant::now()).await;
                    let broken = result.is_err();
                    tally.add(result);
                    // After an error the connection may be anywhere in an answer; one error spoils the run anyway.
                    if broken {
                        break;
                    }
                }
                (connection, tally)
            });
        }
        let mut total = Tally::default();
        for (connection, tally) in workers.join_all().await {
            self.connections.push(connection);
            total.merge(tally);
        }
        total
    }
}

/// Sends `rate` requests a second for `duration` and measures each from the moment it was handed out, on a free connection or a new one.
///
/// Requests never wait for earlier answers, so a slow server shows as latency and not as a lower rate.
pub(crate) async fn open_loop(job: &Job, rate: u32, duration: Duration, free: Vec<Connection>) -> Tally {
    let free = Arc::new(Mutex::new(free));
    let interval = Duration::from_secs(1) / rate.max(1);
    let mut running = JoinSet::new();
    let mut tally = Tally::default();
    let started_at = tokio::time::Instant::now();
    let mut due_at = started_at;
    while due_at < started_at + duration {
        tokio::time::sleep_until(due_at).await;
        due_at += interval;
        let job = job.clone();
        let free = Arc::clone(&free);
        let handed_out_at = Instant::now();
        running.spawn(async move {
            let idle = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match idle {
                Some(connection) => connection,
                None => Connection::open(&job).await?,
            };
            let exchange = connection.exchange(&job, handed_out_at).await?;
            free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            Ok(exchange)
        });
        while let Some(Ok(result)) = running.try_join_next() {
            tally.add(result);
        }
    }
    running.join_all().await.into_iter().for_each(|result| tally.add(result));
    tally
}

/// The subcommand: one load, one line.
pub(crate) async fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    let address: SocketAddr = args.value("--target")?.ok_or_else(|| anyhow!("load needs --target HOST:PORT"))?;
    let scenario: Scenario = args.value("--scenario")?.unwrap_or(Scenario::Plain);
    let prefix: String = args.value("--prefix")?.unwrap_or_default();
    let connections: usize = args.value("--connections")?.unwrap_or(16);
    let seconds: f64 = args.value("--seconds")?.unwrap_or(5.0);
    let rate: Option<u32> = args.value("--rate")?;
    let storage = if args.flag("--stored") { Storage::Stored } else { Storage::Unstored };
    let key: Option<String> = args.value("--key")?;
    let wire = match args.value::<String>("--wire")?.as_deref() {
        None | Some("responses") => Wire::Responses,
        Some("assistant") => Wire::Assistant,
        Some("execute") => Wire::Execute,
        Some(other) => bail!("--wire: `{other}` is none of responses, assistant and execute"),
    };
    args.finish()?;
    let duration = Duration::try_from_secs_f64(seconds).context("--seconds")?;
    let mut job = Job::with_storage(address, &prefix, scenario, storage).on(wire);
    if let Some(key) = &key {
        job = job.with_key(key);
    }

    let started_at = Instant::now();
    let tally = match rate {
        Some(rate) => open_loop(&job, rate, duration, Vec::new()).await,
        None => {
            let mut clients = Clients::open(&job, connections).await?;
            if wire == Wire::Execute {
                clients.open_sessions(&job, (seconds * 10_000.0) as usize).await?;
            }
            clients.closed_loop(&job, Until::Elapsed(duration), Duration::ZERO).await
        }
    };
    let took = started_at.elapsed().as_secs_f64();
    let figure = |values: &[f64], percent| stats::percentile(values, percent).unwrap_or(f64::NAN);
    println!(
        "{} requests, {} deltas, {} errors in {took:.2} s ({:.0}/s); p50 {:.2} ms, p99 {:.2} ms",
        tally.requests,
        tally.deltas,
        tally.errors,
        tally.requests as f64 / took,
        figure(&tally.latencies_ms, 50.0),
        figure(&tally.latencies_ms, 99.0),
    );
    if !tally.first_deltas_ms.is_empty() {
        let first = &tally.first_deltas_ms;
        println!("first delta p50 {:.2} ms, p99 {:.2} ms", figure(first, 50.0), figure(first, 99.0));
    }
    tally.checked()?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
