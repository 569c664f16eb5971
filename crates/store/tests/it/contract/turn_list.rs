//! The list of turns and the usage: every turn once, even if its process dies.

use std::time::Duration;

use amalgam_core::{
    CallSummary, Cost, Scope, StoredPart, TenantState, TraceContext, TurnOrigin, TurnSpan, TurnStep, TurnSummary, Wire,
    store::{
        CancelOutcome, Ending, TurnCursor, TurnFilter, TurnPage, TurnWrite, TurnsOf, UsageGroup, UsageQuery, UsageSums,
        Within,
    },
};
use amalgam_protocol::{Status, Usage};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};
use tokio::task::JoinSet;

use crate::given::*;

const HOUR: u64 = NOW / 3_600_000;

fn used(model: &str, input: u64, output: u64, cost: Option<u64>) -> CallSummary {
    CallSummary {
        upstream: "up".into(),
        model: model.into(),
        asked_at_ms: NOW,
        first_token_ms: Some(3),
        duration_ms: 9,
        retries: 1,
        usage: Some(Usage { input_tokens: input, output_tokens: output, cached_tokens: 1, ..Usage::default() }),
        cost: cost.map(Cost::from_nano_usd),
        failed: false,
    }
}

fn running(turn: &Turn) -> TurnSummary {
    TurnSummary {
        response_id: turn.id.clone(),
        tenant_id: 1,
        user: "anna".into(),
        origin: TurnOrigin {
            wire: Wire::Assistant,
            request_id: Some(format!("req-{}", turn.id).into()),
            key_id: Some("key_1".into()),
            profile: Some("helper".into()),
            session_id: Some("7".into()),
            model: "fast".into(),
            ..TurnOrigin::default()
        },
        status: Status::InProgress,
        error: None,
        created_at_ms: NOW,
        ended_at_ms: None,
        first_token_ms: None,
        calls: Vec::new(),
        tools: Vec::new(),
        spans: Vec::new(),
        losses: 0,
        stored: true,
    }
}

fn ended(turn: &Turn, calls: Vec<CallSummary>) -> TurnSummary {
    TurnSummary {
        status: Status::Completed,
        ended_at_ms: Some(NOW + 40),
        first_token_ms: Some(3),
        calls,
        tools: vec!["search_courses".into(), "get_course_detail".into()],
        losses: 2,
        ..running(turn)
    }
}

async fn turns(store: &Engine, filter: TurnFilter) -> Vec<String> {
    let anna = anna();
    let of = TurnsOf::Tenant(Within::Own(anna.admin().unwrap()));
    let page = store.turns(of, filter, None, 100).await.unwrap();
    page.turns.into_iter().map(|turn| turn.response_id).collect()
}

async fn usage(store: &Engine, group_by: Vec<UsageGroup>) -> Vec<UsageSums> {
    let anna = anna();
    let of = TurnsOf::Tenant(Within::Own(anna.admin().unwrap()));
    let query = UsageQuery { from_hour: HOUR, to_hour: HOUR + 1, group_by, ..UsageQuery::default() };
    store.usage(of, query).await.unwrap()
}

/// Turns, calls, unpriced calls, input and output tokens, cost.
fn counts(sums: &UsageSums) -> (u64, u64, u64, u64, u64, u64) {
    (sums.turns, sums.calls, sums.unpriced_calls, sums.tokens.input, sums.tokens.output, sums.cost.nano_usd())
}

async fn total(store: &Engine) -> (u64, u64, u64, u64, u64, u64) {
    usage(store, Vec::new()).await.first().map(counts).unwrap_or_default()
}

pub(crate) async fn a_turn_is_listed_while_it_runs_and_counted_when_it_ends(store: Engine) {
    let turn = Turn::new("hi");
    let begin = TurnWrite { summary: Some(Box::new(running(&turn))), ..turn.beginning(turn.begin()) };
    keep(&store, &anna(), begin).await;
    let anna = anna();
    let of = TurnsOf::Tenant(Within::Own(anna.admin().unwrap()));
    let TurnPage { turns, next } = store.turns(of, TurnFilter::default(), None, 10).await.unwrap();
    assert_eq!((turns.len(), turns[0].status.as_str(), turns[0].ended_at_ms, next), (1, "in_progress", None, None));
    assert_eq!(total(&store).await, (0, 0, 0, 0, 0, 0));

    let calls = vec![used("a", 5, 7, Some(100)), used("b", 2, 3, None)];
    let end = TurnWrite { summary: Some(Box::new(ended(&turn, calls))), ..turn.ending() };
    keep(&store, &anna, end).await;
    let listed = store.turns(of, TurnFilter::default(), None, 10).await.unwrap().turns.remove(0);
    assert_eq!(
        (listed.wire, listed.status.as_str(), listed.ended_at_ms),
        (Wire::Assistant, "completed", Some(NOW + 40))
    );
    assert_eq!((listed.upstream.as_deref(), listed.model.as_deref()), (Some("up"), Some("b")));
    assert_eq!((listed.requested_model.as_str(), listed.key_id.as_deref()), ("fast", Some("key_1")));
    assert_eq!((listed.profile.as_deref(), listed.session_id.as_deref()), (Some("helper"), Some("7")));
    assert_eq!((listed.tokens.total(), listed.cost, listed.calls, listed.retries), (17, None, 2, 2));
    assert_eq!((listed.losses, listed.first_token_ms, listed.stored), (2, Some(3), true));
    assert_eq!(listed.tools, ["search_courses", "get_course_detail"]);

    let by_model = usage(&store, vec![UsageGroup::Model, UsageGroup::Wire]).await;
    let groups: Vec<_> = by_model.iter().map(|sums| (sums.group.clone(), counts(sums))).collect();
    let group = |model: &str| vec![model.to_owned(), "assistant".to_owned()];
    assert_eq!(groups, [(group("a"), (0, 1, 0, 5, 7, 100)), (group("b"), (1, 1, 1, 2, 3, 0))]);
    let days = usage(&store, vec![UsageGroup::Day, UsageGroup::Hour, UsageGroup::Tenant]).await;
    assert_eq!(days[0].group, [(HOUR / 24).to_string(), HOUR.to_string(), "1".to_owned()]);

    assert!(store.delete_response(&anna, &turn.id).await.unwrap());
    let listed = store.turns(of, TurnFilter::default(), None, 10).await.unwrap().turns.remove(0);
    assert_eq!((listed.status.as_str(), listed.stored), ("completed", false), "listed without content");
    let id = format!("req-{}", turn.id);
    assert_eq!(store.response_of_request(anna.admin().unwrap(), &id).await.unwrap(), Some(turn.id.clone()));
    let foreign = scope(2, "anna");
    assert_eq!(store.response_of_request(foreign.admin().unwrap(), &id).await.unwrap(), None);
    let of = TurnsOf::Tenant(Within::Own(foreign.admin().unwrap()));
    assert_eq!(store.turns(of, TurnFilter::default(), None, 10).await.unwrap().turns, []);
}

pub(crate) async fn spans_are_stored_with_the_end_of_a_turn_and_a_queued_turn_keeps_its_trace(store: Engine) {
    let trace = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let turn = Turn::new("hi");
    let mut begun = running(&turn);
    begun.origin.trace = trace;
    let begin = TurnWrite { summary: Some(Box::new(begun)), ..turn.beginning(turn.queued()) };
    keep(&store, &anna(), begin).await;
    let spans = async |scope: &Scope| {
        let spans = store.spans_of_turn(scope.admin().unwrap(), NOW, &turn.id).await.unwrap();
        spans.map(|spans| spans.raw().text().to_owned())
    };
    assert_eq!(spans(&anna()).await, None, "they are written with the end");
    let taken = store.take_queued(operator(), HERE, 5).await.unwrap();
    assert_eq!(taken.iter().map(|turn| turn.origin.trace).collect::<Vec<_>>(), [trace]);
    keep(&store, &anna(), turn.starting()).await;
    let start = std::time::Instant::now();
    let span = |step, from: u64, to: u64| {
        TurnSpan::ended(step, start + Duration::from_micros(from), start + Duration::from_micros(to))
    };
    let mut summary = ended(&turn, Vec::new());
    summary.spans = vec![span(TurnStep::Write(StoredPart::Begin), 7, 9), span(TurnStep::Prompt, 0, 4)];
    keep(&store, &anna(), TurnWrite { summary: Some(Box::new(summary)), ..turn.ending() }).await;
    let stored = r#"[{"name":"prompt","kind":"prompt","start_us":0,"duration_us":4},{"name":"begin","kind":"store","start_us":7,"duration_us":2}]"#;
    assert_eq!(spans(&anna()).await.as_deref(), Some(stored));
    assert_eq!(spans(&scope(2, "anna")).await, None, "another tenant");
    let anna = anna();
    let of = TurnsOf::Tenant(Within::Own(anna.admin().unwrap()));
    let listed = store.turns(of, TurnFilter::default(), None, 10).await.unwrap().turns.remove(0);
    assert_eq!(listed.trace_id, trace.map(|trace| trace.trace_id));
}

pub(crate) async fn a_turn_that_is_written_twice_is_counted_once(store: Engine) {
    let (stored, unstored) = (Turn::new("hi"), Turn::new("ho"));
    let summary = ended(&stored, vec![used("a", 5, 7, Some(100))]);
    let whole = TurnWrite { summary: Some(Box::new(summary.clone())), ..stored.whole(None) };
    keep(&store, &anna(), whole.clone()).await;
    let _ = store.write(&anna(), whole.clone().into()).await.unwrap();
    store.add_unfinished(&anna(), whole.into()).await.unwrap();
    let other = TurnSummary { stored: false, ..ended(&unstored, vec![used("a", 1, 1, Some(10))]) };
    for _ in 0..2 {
        store.add_summaries(vec![other.clone()]).await.unwrap();
    }
    assert_eq!(total(&store).await, (2, 2, 0, 6, 8, 110));
    assert_eq!(turns(&store, TurnFilter::default()).await.len(), 2);
}

pub(crate) async fn a_turn_that_was_cancelled_from_outside_counts_with_what_it_used(store: Engine) {
    let turn = Turn::new("hi");
    let begin = TurnWrite { summary: Some(Box::new(running(&turn))), ..turn.beginning(turn.queued()) };
    keep(&store, &anna(), begin).await;
    keep(&store, &anna(), turn.starting()).await;
    // The list still says that it waits, so that the test sees whether the cancellation touches only turns that wait.
    let cancelled = store.cancel_response(&anna(), &turn.id, NOW + 1).await.unwrap();
    assert!(matches!(cancelled, Some(CancelOutcome::Ended(_))));
    let summary = ended(&turn, vec![used("a", 5, 7, Some(100))]);
    let lost = TurnWrite { summary: Some(Box::new(summary)), ..turn.ending() };
    store.add_unfinished(&anna(), lost.into()).await.unwrap();
    assert_eq!(total(&store).await, (1, 1, 0, 5, 7, 100));
}

pub(crate) async fn a_turn_of_a_dead_process_is_listed_and_counted_as_failed(store: Engine) {
    store.beat(operator(), HERE, 3).await.unwrap();
    let turn = Turn::new("hi");
    let begin = TurnWrite { summary: Some(Box::new(running(&turn))), ..turn.beginning(turn.begin()) };
    keep(&store, &anna(), begin).await;
    store.end_dead_process(operator(), HERE, 3, |_| "{}".to_owned(), NOW + 9).await.unwrap();
    let failed = TurnFilter { status: Some("failed".into()), ..TurnFilter::default() };
    assert_eq!(turns(&store, failed).await, std::slice::from_ref(&turn.id));
    let sums = usage(&store, Vec::new()).await.remove(0);
    assert_eq!((counts(&sums), sums.failed_turns), ((1, 0, 0, 0, 0, 0), 1));
}

pub(crate) async fn a_turn_that_was_cancelled_while_it_waited_is_listed_and_counted(store: Engine) {
    let turn = Turn::new("hi");
    let waiting = TurnSummary { status: Status::Queued, ..running(&turn) };
    let begin = TurnWrite { summary: Some(Box::new(waiting)), ..turn.beginning(turn.queued()) };
    keep(&store, &anna(), begin).await;
    store.cancel_response(&anna(), &turn.id, NOW + 1).await.unwrap();
    let cancelled = TurnFilter { status: Some("cancelled".into()), ..TurnFilter::default() };
    assert_eq!(turns(&store, cancelled).await, std::slice::from_ref(&turn.id));
    store.cancel_response(&anna(), &turn.id, NOW + 2).await.unwrap();
    let sums = usage(&store, Vec::new()).await.remove(0);
    assert_eq!((counts(&sums), sums.failed_turns), ((1, 0, 0, 0, 0, 0), 0));
}

pub(crate) async fn turns_are_found_by_every_filter(store: Engine) {
    let (one, other) = (Turn::new("the quick \"fox\" 50%"), Turn::new("a lazy dog"));
    let first = ended(&one, vec![used("a", 5, 7, Some(100))]);
    let second = TurnSummary {
        user: "bert".into(),
        origin: TurnOrigin { model: "slow".into(), ..TurnOrigin::default() },
        status: Status::Failed,
        error: Some("server_error".into()),
        created_at_ms: NOW + 5,
        ended_at_ms: Some(NOW + 6),
        calls: vec![CallSummary { upstream: "down".into(), ..used("b", 1, 1, Some(5)) }],
        tools: Vec::new(),
        ..ended(&other, Vec::new())
    };
    keep(&store, &anna(), TurnWrite { summary: Some(Box::new(first)), ..one.whole(None) }).await;
    keep(&store, &anna(), TurnWrite { summary: Some(Box::new(second)), ..other.whole(None) }).await;
    let text = |text: &str| Some(text.to_owned());
    let none = TurnFilter::default;
    let found_first = [
        TurnFilter { key_id: text("key_1"), ..none() },
        TurnFilter { user: text("anna"), ..none() },
        TurnFilter { wire: Some(Wire::Assistant), ..none() },
        TurnFilter { session_id: text("7"), ..none() },
        TurnFilter { profile: text("helper"), ..none() },
        TurnFilter { model: text("fast"), ..none() },
        TurnFilter { model: text("a"), ..none() },
        TurnFilter { upstream: text("up"), ..none() },
        TurnFilter { tool: text("search_courses"), ..none() },
        TurnFilter { status: text("completed"), ..none() },
        TurnFilter { request_id: Some(format!("req-{}", one.id)), ..none() },
        TurnFilter { text: text("QUICK \"fox\" 50%"), ..none() },
        TurnFilter { to_ms: Some(NOW + 5), ..none() },
        TurnFilter { min_duration_ms: Some(40), ..none() },
        TurnFilter { max_duration_ms: Some(40), min_duration_ms: Some(40), ..none() },
        TurnFilter { min_cost: Some(Cost::from_nano_usd(100)), ..none() },
        TurnFilter {
            max_cost: Some(Cost::from_nano_usd(u64::MAX / 4)),
            min_cost: Some(Cost::from_nano_usd(100)),
            ..none()
        },
    ];
    for filter in found_first {
        assert_eq!(turns(&store, filter.clone()).await, std::slice::from_ref(&one.id), "{filter:?}");
    }
    for filter in [
        TurnFilter { error: text("server_error"), ..none() },
        TurnFilter { from_ms: Some(NOW + 1), ..none() },
        TurnFilter { text: text("lazy"), ..none() },
    ] {
        assert_eq!(turns(&store, filter.clone()).await, std::slice::from_ref(&other.id), "{filter:?}");
    }
    for filter in [
        TurnFilter { tool: text("search"), ..none() },
        TurnFilter { text: text("q%k"), ..none() },
        TurnFilter { model: text("f_st"), ..none() },
    ] {
        assert_eq!(turns(&store, filter.clone()).await, [""; 0], "{filter:?}");
    }
    assert_eq!(turns(&store, none()).await, [other.id, one.id], "the newest first");
}

pub(crate) async fn pages_of_turns_have_no_gaps_and_no_repetitions(store: Engine) {
    for (id, name) in [(1, "first"), (2, "second")] {
        store.create_tenant(operator(), Some(id), name, TenantState::Stored, NOW, audit()).await.unwrap();
    }
    let all: Vec<TurnSummary> = (0..25)
        .map(|n| TurnSummary {
            tenant_id: if n % 3 == 0 { 2 } else { 1 },
            created_at_ms: NOW + n / 4,
            ..ended(&Turn::new("hi"), Vec::new())
        })
        .collect();
    store.add_summaries(all.clone()).await.unwrap();
    let mut expected: Vec<_> = all.iter().map(|turn| (turn.created_at_ms, turn.response_id.clone())).collect();
    expected.sort_by(|one, other| other.cmp(one));
    let (mut found, mut after) = (Vec::new(), None::<TurnCursor>);
    loop {
        let page = store.turns(TurnsOf::All(operator()), TurnFilter::default(), after, 4).await.unwrap();
        assert!(page.turns.len() <= 4);
        found.extend(page.turns.into_iter().map(|turn| (turn.created_at_ms, turn.response_id)));
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, expected);
}

pub(crate) async fn the_usage_is_the_sum_of_the_turns_that_were_written_at_once(store: Engine) {
    let mut writes = JoinSet::new();
    let mut runner = TestRunner::deterministic();
    let strategy = (0..3_u64, 0..1000_u64, 0..1000_u64, proptest::option::of(0..10_000_u64));
    let mut expected = (0, 0, 0, 0, 0, 0);
    for number in 0..120 {
        let (model, input, output, cost) = strategy.new_tree(&mut runner).unwrap().current();
        let call = used(&format!("m{model}"), input, output, cost);
        expected.0 += 1;
        expected.1 += 1;
        expected.2 += u64::from(cost.is_none());
        expected.3 += input;
        expected.4 += output;
        expected.5 += cost.unwrap_or_default();
        let (store, turn) = (store.clone(), Turn::new("hi"));
        writes.spawn(async move {
            match number % 3 {
                0 => store.add_summaries(vec![ended(&turn, vec![call])]).await.unwrap(),
                1 => {
                    let whole = TurnWrite { summary: Some(Box::new(ended(&turn, vec![call]))), ..turn.whole(None) };
                    keep(&store, &anna(), whole).await;
                }
                _ => {
                    let begin = TurnWrite { summary: Some(Box::new(running(&turn))), ..turn.beginning(turn.begin()) };
                    keep(&store, &anna(), begin).await;
                    let failed = Ending { state: told(Status::Failed), ..turn.completed() };
                    let summary = TurnSummary { status: Status::Failed, ..ended(&turn, vec![call]) };
                    let end =
                        TurnWrite { end: Some(Box::new(failed)), summary: Some(Box::new(summary)), ..turn.step() };
                    keep(&store, &anna(), end).await;
                }
            }
        });
    }
    writes.join_all().await;
    assert_eq!(total(&store).await, expected);
    assert_eq!(usage(&store, Vec::new()).await[0].failed_turns, 40);
}
