//! What a server adds to the time of an answer, at rates that leave the machine room.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Plan, Route, progress};
use crate::load::{self, Clients, Until};
use crate::requests::Scenario;
use crate::stats;

/// One kind of traffic at one rate on one route.
pub(super) struct LatencyRow {
    pub(super) traffic: &'static str,
    pub(super) label: &'static str,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Beyond the same requests on the route that comes first; `None` for that one.
    pub(super) added_ms: Option<(f64, f64)>,
}

/// One kind of traffic at one rate.
pub(super) struct Traffic {
    pub(super) name: &'static str,
    pub(super) scenario: Scenario,
    pub(super) rate: u32,
}

pub(super) const TRAFFIC: [Traffic; 3] = [
    Traffic { name: "plain, 200/s", scenario: Scenario::Plain, rate: 200 },
    Traffic { name: "plain, 500/s", scenario: Scenario::Plain, rate: 500 },
    Traffic { name: "burst streams, 100/s, first token", scenario: Scenario::Burst, rate: 100 },
];

pub(super) async fn measure(
    plan: &Plan,
    direct: &Route,
    routes: &[Route],
    traffic: &[Traffic],
    started_at: Instant,
) -> anyhow::Result<Vec<LatencyRow>> {
    let routes: Vec<&Route> = std::iter::once(direct).chain(routes).collect();
    let mut rows = Vec::new();
    for traffic in traffic {
        let mut samples: Vec<Vec<(f64, f64)>> = routes.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.latency_rounds {
            for (route, taken) in routes.iter().zip(&mut samples) {
                let sample = sample(plan, route, traffic).await;
                taken.push(sample.with_context(|| format!("{}: {}", route.label, traffic.name))?);
            }
        }
        let mut base = None;
        for (route, taken) in routes.iter().zip(samples) {
            let (p50s, p99s): (Vec<f64>, Vec<f64>) = taken.into_iter().unzip();
            let p50_ms = stats::median(&p50s).context("no round was measured")?;
            let p99_ms = stats::median(&p99s).context("no round was measured")?;
            let added_ms = base.map(|(base_p50, base_p99)| (p50_ms - base_p50, p99_ms - base_p99));
            base = base.or(Some((p50_ms, p99_ms)));
            rows.push(LatencyRow { traffic: traffic.name, label: route.label, p50_ms, p99_ms, added_ms });
        }
        progress(started_at, &format!("latency, {}", traffic.name));
    }
    Ok(rows)
}

/// Median and 99th percentile of one round.
async fn sample(plan: &Plan, route: &Route, traffic: &Traffic) -> anyhow::Result<(f64, f64)> {
    let job = route.job(traffic.scenario);
    let mut clients = Clients::open(&job, plan.connections).await?;
    clients.closed_loop(&job, Until::Requests(2), Duration::ZERO).await.checked()?;
    let tally = load::open_loop(&job, traffic.rate, plan.latency_round, clients.into_connections()).await.checked()?;
    let values = if traffic.scenario.streamed() { &tally.first_deltas_ms } else { &tally.latencies_ms };
    stats::percentile(values, 50.0).zip(stats::percentile(values, 99.0)).context("nothing was answered")
}
