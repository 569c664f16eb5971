//! The last 24 hours of a tenant in one answer: usage by hour, errors, latency, what runs, and what is set up.
//!
//! Sums come from the usage, which has a row for each hour. Latency and errors come from the newest turns, of which a bounded
//! number is read, so that the answer costs the same however many turns there are.

use std::time::Duration;

use amalgam_app::Application;
use amalgam_core::{
    Actor, Fault, Operator, Scope, TurnSummary,
    store::{ListedTurn, RecentTurns, UsageGroup, UsageQuery},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::within,
    diagnosis::default_model,
    turn_list::{TurnRow, turns_of},
    usage::{UsageOfGroup, usage_rows},
};

const MS_PER_HOUR: u64 = 3_600_000;
const HOURS: u64 = 24;

/// The newest turns that are read for latency and errors.
const READ: usize = 10_000;

/// Running and failed turns that are listed.
const LISTED: usize = 8;

/// How long the overview waits for an upstream that lists its models.
const MODEL_PATIENCE: Duration = Duration::from_secs(2);

/// The last 24 hours.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Overview")]
pub struct OverviewView {
    #[schemars(extend("const" = "overview"))]
    object: &'static str,
    /// Usage by the hour, in UTC; hours without turns are left out.
    hours: Vec<UsageOfGroup>,
    /// Sums of the hours.
    total: UsageOfGroup,
    latency: OverviewLatency,
    /// Failed turns among those of `latency.turns` by the code of their error, the most frequent first.
    errors: Vec<OverviewError>,
    /// The newest turns that have not ended, at most 8.
    running: Vec<TurnRow>,
    /// The newest failed turns, at most 8.
    failed: Vec<TurnRow>,
    setup: OverviewSetup,
}

/// How long turns took, in milliseconds.
#[derive(Serialize, JsonSchema)]
struct OverviewLatency {
    /// The turns that were read: all of the last 24 hours, or the newest 10,000 of them.
    turns: u64,
    /// Whether older turns of the last 24 hours were left out.
    partial: bool,
    /// From start to end.
    duration_ms: Option<LatencyPercentiles>,
    /// Until the first output.
    first_token_ms: Option<LatencyPercentiles>,
}

/// Percentiles of milliseconds.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct LatencyPercentiles {
    p50: u64,
    p90: u64,
    p95: u64,
    p99: u64,
}

/// Failed turns with one error.
#[derive(Serialize, JsonSchema)]
struct OverviewError {
    /// The code of the error; empty if it is not known.
    code: String,
    turns: u64,
}

/// What is set up.
#[derive(Serialize, JsonSchema)]
struct OverviewSetup {
    /// The model that assistants of the tenant use.
    model: String,
    /// Whether an upstream serves it; null if that cannot be told at once.
    model_known: Option<bool>,
    /// Whether it is the built-in demo model.
    demo_model: bool,
    /// Whether the assistant is enabled for the tenant.
    assistant_enabled: bool,
    /// Whether the tenant has an API key that was created.
    has_key: bool,
    /// Whether the tenant has a profile.
    has_profile: bool,
    /// Whether the tenant has had a turn.
    has_turn: bool,
}

/// The last 24 hours of the caller's tenant, or of the named one. `running` has the turns of this process, which may not be in the
/// store yet.
pub async fn overview(
    app: &Application,
    actor: Actor,
    scope: &Scope,
    running: Vec<TurnSummary>,
) -> Result<OverviewView, Fault> {
    let administration = Administration::new(app, actor);
    let (store, now_ms) = (administration.store, administration.now_ms);
    let from_ms = now_ms.saturating_sub(HOURS * MS_PER_HOUR);
    let (_, of) = turns_of(scope, None)?;
    let query = UsageQuery {
        from_hour: from_ms / MS_PER_HOUR,
        to_hour: now_ms / MS_PER_HOUR + 1,
        group_by: vec![UsageGroup::Hour],
        ..UsageQuery::default()
    };
    let (hours, total) = usage_rows(&query.group_by, store.usage(of, query.clone()).await?);
    let recent = store.recent_turns(of, from_ms, READ, LISTED).await?;
    let has_turn = recent.looked_at > 0 || store.has_turns(of).await?;
    let setup = OverviewSetup { has_turn, ..setup(app, &administration, scope).await? };
    Ok(OverviewView {
        object: "overview",
        hours,
        total,
        latency: OverviewLatency {
            turns: recent.looked_at,
            partial: recent.looked_at >= READ as u64,
            duration_ms: percentiles(&recent.durations_ms),
            first_token_ms: percentiles(&recent.first_tokens_ms),
        },
        errors: errors(&recent),
        running: running_rows(scope, &recent, running),
        failed: recent.failed.into_iter().map(TurnRow::from).collect(),
        setup,
    })
}

fn errors(recent: &RecentTurns) -> Vec<OverviewError> {
    let errors = recent.errors.iter().map(|(code, turns)| OverviewError { code: code.clone(), turns: *turns });
    let mut errors: Vec<OverviewError> = errors.collect();
    errors.sort_by(|one, other| other.turns.cmp(&one.turns).then_with(|| one.code.cmp(&other.code)));
    errors
}

/// The stored turns that run, and those of this process.
fn running_rows(scope: &Scope, recent: &RecentTurns, running: Vec<TurnSummary>) -> Vec<TurnRow> {
    let mut rows: Vec<ListedTurn> = recent.running.clone();
    let own = running.into_iter().filter(|turn| turn.tenant_id == scope.tenant_id() && turn.ended_at_ms.is_none());
    for turn in own {
        if rows.iter().all(|row| row.response_id != turn.response_id) {
            rows.push(ListedTurn::from(turn));
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.created_at_ms));
    rows.into_iter().take(LISTED).map(TurnRow::from).collect()
}

async fn setup(app: &Application, administration: &Administration<'_>, scope: &Scope) -> Result<OverviewSetup, Fault> {
    let store = administration.store;
    let operator = Operator::of_this_process();
    let tenant = store.tenant(operator, scope.tenant_id()).await?;
    let keys = store.keys(operator, Some(scope.tenant_id()), None, 1).await?;
    let profiles = store.profiles_within(within(scope)?, None, 1).await?;
    let (model, known) = default_model(app, scope, MODEL_PATIENCE).await?;
    Ok(OverviewSetup {
        demo_model: model == "demo",
        model,
        model_known: known,
        assistant_enabled: tenant.is_none_or(|tenant| tenant.ai_agent_enabled),
        has_key: !keys.is_empty(),
        has_profile: !profiles.is_empty(),
        has_turn: false,
    })
}

/// Percentiles of sorted numbers, by the nearest rank.
fn percentiles(sorted: &[u64]) -> Option<LatencyPercentiles> {
    let rank = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied();
    Some(LatencyPercentiles { p50: rank(50)?, p90: rank(90)?, p95: rank(95)?, p99: rank(99)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let numbers: Vec<u64> = (1..=200).collect();
        assert_eq!(percentiles(&numbers), Some(LatencyPercentiles { p50: 100, p90: 180, p95: 190, p99: 198 }));
        assert_eq!(percentiles(&[7]), Some(LatencyPercentiles { p50: 7, p90: 7, p95: 7, p99: 7 }));
        assert_eq!(percentiles(&[]), None);
    }
}
