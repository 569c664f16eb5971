//! CPU time of the server per request and per token, relative to the pass-through in the same round.

use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Options, Plan, Route, Subject, progress};
use crate::load::{Clients, Until};
use crate::process::CpuSnapshot;
use crate::requests::{Scenario, Wire};
use crate::stats;

/// One scenario on all routes.
pub(super) struct CpuRow {
    pub(super) scenario: &'static str,
    /// The ratio to the pass-through that must not be exceeded, if there is one.
    pub(super) target: Option<f64>,
    /// The only route that the target is meant for, if there is one.
    pub(super) judged: Option<&'static str>,
    /// The pass-through first.
    pub(super) cells: Vec<CpuCell>,
}

pub(super) struct CpuCell {
    pub(super) label: &'static str,
    pub(super) micros_per_request: f64,
    pub(super) micros_per_token: Option<f64>,
    /// CPU time of the database server, where it is one that can be seen.
    pub(super) database_micros: Option<f64>,
    /// Median of the rounds' ratios, with the smallest and the largest of them. `None` for the pass-through.
    pub(super) ratio: Option<Ratio>,
}

#[derive(Clone, Copy)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) smallest: f64,
    pub(super) largest: f64,
}

impl CpuRow {
    pub(super) fn missed(&self) -> impl Iterator<Item = String> {
        let judged = self.cells.iter().filter(|cell| self.judged.is_none_or(|label| label == cell.label));
        judged.filter_map(|cell| {
            let (ratio, target) = (cell.ratio?.median, self.target?);
            (ratio > target).then(|| format!("{} {} {ratio:.2}× > {target}×", cell.label, self.scenario))
        })
    }
}

/// A scenario to measure, and the ratio that it must not exceed.
pub(super) struct Measured {
    pub(super) scenario: Scenario,
    pub(super) name: &'static str,
    pub(super) target: Option<f64>,
}

/// What is measured with nothing stored.
pub(super) fn unstored(options: &Options) -> [Measured; 4] {
    let measured = |scenario, name, target| {
        let target = (options.subject == Subject::Amalgam).then_some(target);
        Measured { scenario, name, target }
    };
    [
        measured(Scenario::Plain, "plain", 1.5),
        measured(Scenario::Large, "100 KB request", 2.0),
        measured(Scenario::Burst, "100-token streams in bursts", 0.6),
        measured(Scenario::Paced, "streams paced at 50 tokens/s", 1.3),
    ]
}

pub(super) async fn measure(
    plan: &Plan,
    routes: &[Route],
    scenarios: &[Measured],
    judged: Option<&'static str>,
    started_at: Instant,
) -> anyhow::Result<Vec<CpuRow>> {
    let mut rows = Vec::new();
    for &Measured { scenario, name, target } in scenarios {
        let mut samples: Vec<Vec<Sample>> = routes.iter().map(|_| Vec::new()).collect();
        let rounds = if scenario == Scenario::Paced { plan.paced_rounds } else { plan.rounds };
        for round in 0..rounds {
            // Another route begins each time, so that none always follows the same one.
            for turn in 0..routes.len() {
                let at = (round + turn) % routes.len();
                let (Some(route), Some(taken)) = (routes.get(at), samples.get_mut(at)) else { continue };
                let sample = sample(plan, route, scenario).await;
                taken.push(sample.with_context(|| format!("{}: {name}", route.label))?);
            }
        }
        let row = CpuRow { judged, ..row(name, target, routes, &samples)? };
        let cells: Vec<String> =
            row.cells.iter().map(|cell| format!("{} {:.0} µs", cell.label, cell.micros_per_request)).collect();
        progress(started_at, &format!("CPU per request, {name}: {}", cells.join(", ")));
        rows.push(row);
    }
    Ok(rows)
}

/// One round on one route.
#[derive(Clone, Copy)]
struct Sample {
    micros_per_request: f64,
    tokens_per_request: f64,
    database_micros: Option<f64>,
}

async fn sample(plan: &Plan, route: &Route, scenario: Scenario) -> anyhow::Result<Sample> {
    let job = route.job(scenario);
    let warm_up = if scenario == Scenario::Paced { route.job(Scenario::Burst) } else { job.clone() };
    let mut clients = Clients::open(&job, plan.connections).await?;
    if route.wire == Wire::Execute {
        // More than a round can use.
        let sessions = plan.connections * 3 + usize::try_from(plan.round.as_millis()).unwrap_or(usize::MAX) * 10;
        clients.open_sessions(&job, sessions).await?;
    }
    clients.closed_loop(&warm_up, Until::Requests(3), Duration::ZERO).await.checked()?;

    let database_before = route.database.as_ref().and_then(|database| database.cpu());
    let before = CpuSnapshot::take(route.pid)?;
    let (until, stagger) = match scenario {
        Scenario::Paced => (Until::Requests(1), Duration::from_millis(20)),
        _ => (Until::Elapsed(plan.round), Duration::ZERO),
    };
    let tally = clients.closed_loop(&job, until, stagger).await.checked()?;
    let used = CpuSnapshot::take(route.pid)?.since(&before);
    let database = route.database.as_ref().zip(database_before);
    let database_used = database.and_then(|(database, before)| database.cpu_since(&before));
    Ok(Sample {
        database_micros: database_used.map(|used| used.as_secs_f64() * 1e6 / tally.requests as f64),
        micros_per_request: used.as_secs_f64() * 1e6 / tally.requests as f64,
        tokens_per_request: tally.deltas as f64 / tally.requests as f64,
    })
}

fn row(
    scenario: &'static str,
    target: Option<f64>,
    routes: &[Route],
    samples: &[Vec<Sample>],
) -> anyhow::Result<CpuRow> {
    let raw = samples.first().context("no route was measured")?;
    let mut cells = Vec::new();
    for (at, (route, taken)) in routes.iter().zip(samples).enumerate() {
        let micros: Vec<f64> = taken.iter().map(|sample| sample.micros_per_request).collect();
        let per_token = taken.iter().filter(|sample| sample.tokens_per_request > 0.0);
        let per_token: Vec<f64> =
            per_token.map(|sample| sample.micros_per_request / sample.tokens_per_request).collect();
        let database: Vec<f64> = taken.iter().filter_map(|sample| sample.database_micros).collect();
        let ratios: Vec<f64> =
            taken.iter().zip(raw).map(|(own, raw)| own.micros_per_request / raw.micros_per_request).collect();
        let ratio = stats::median(&ratios).zip(stats::range(&ratios));
        cells.push(CpuCell {
            label: route.label,
            micros_per_request: stats::median(&micros).context("no round was measured")?,
            micros_per_token: stats::median(&per_token),
            database_micros: stats::median(&database),
            ratio: ratio.filter(|_| at > 0).map(|(median, (smallest, largest))| Ratio { median, smallest, largest }),
        });
    }
    Ok(CpuRow { scenario, target, judged: None, cells })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let route = |label| Route::unstored(label, SocketAddr::from(([127, 0, 0, 1], 1)), "", 1);
        let sample = |micros| Sample { micros_per_request: micros, tokens_per_request: 100.0, database_micros: None };
        // The machine was three times slower in the second round, for both alike.
        let raw = [100.0, 300.0, 100.0].map(sample).to_vec();
        let own = [120.0, 390.0, 140.0].map(sample).to_vec();

        let row = row("plain", Some(1.2), &[route("raw"), route("own")], &[raw, own]).unwrap();

        let ratio = row.cells[1].ratio.unwrap();
        assert_eq!((ratio.smallest, ratio.median, ratio.largest), (1.2, 1.3, 1.4));
        assert_eq!(row.cells[1].micros_per_request, 140.0);
        assert_eq!(row.cells[1].micros_per_token, Some(1.4));
        assert!(row.cells[0].ratio.is_none());
        assert_eq!(row.missed().collect::<Vec<_>>(), ["own plain 1.30× > 1.2×"]);
        assert_eq!(CpuRow { judged: Some("another"), ..row }.missed().count(), 0);
    }
}
