//! S2, S3: a tool's call is written before it runs, and one whose end is not known is named.

use amalgam_core::{
    BANK_LABEL, Scope,
    store::{Begin, RecoveryCounts, ToolOutcome, ToolRun, ToolStatistics, TurnWrite, WriteOutcome},
};
use amalgam_protocol::Status;

use crate::given::*;

async fn runs(store: &Engine, turn: &Turn) -> Vec<ToolRun> {
    let boss = scope(1, "boss");
    store.turn(boss.admin().unwrap(), &turn.id).await.unwrap().unwrap().tools
}

fn telling(turn: &Turn, tools: Vec<ToolRun>) -> TurnWrite {
    TurnWrite { tools, ..turn.step() }
}

pub(crate) async fn calls_of_tools_are_read_back_as_they_were_written(store: Engine) {
    // S2
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    assert_eq!(runs(&store, &turn).await, []);
    keep(&store, &anna(), telling(&turn, vec![run(1), run(0)])).await;
    assert_eq!(runs(&store, &turn).await, [run(0), run(1)]);

    let outcome = ToolOutcome {
        output: json(r#"{"error": "no \u00e9lan"}"#),
        error: Some("timed_out".into()),
        detail: Some("5 s; „nichts“".into()),
        duration_ms: 5000,
    };
    let failed = ToolRun { outcome: Some(outcome), ..run(1) };
    let other = ToolRun { label: "calendar".into(), name: "list".into(), idempotent: true, ..run(2) };
    keep(&store, &anna(), telling(&turn, vec![failed.clone(), other.clone()])).await;
    assert_eq!(runs(&store, &turn).await, [run(0), failed.clone(), other.clone()]);
    // With the last step, and beside everything else that a step writes.
    let ending = TurnWrite { tools: vec![ran(0)], transcripts: vec![call(0)], ..turn.ending() };
    keep(&store, &anna(), ending).await;
    assert_eq!(runs(&store, &turn).await, [ran(0), failed, other]);

    let elsewhere = scope(2, "anna");
    assert_eq!(store.turn(elsewhere.admin().unwrap(), &turn.id).await.unwrap(), None);
}

pub(crate) async fn a_step_that_also_says_something_keeps_its_tools(store: Engine) {
    // Steps with events alone may be written in a cheaper way; these are not such.
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(Begin { streamed: true, ..turn.begin() })).await;
    keep(&store, &anna(), TurnWrite { tools: vec![run(0)], ..turn.saying(0, 1, "a") }).await;
    let approval = asked(&turn, "mcpr_1");
    keep(&store, &anna(), TurnWrite { approvals: vec![approval.clone()], ..turn.saying(2, 3, "b") }).await;
    assert_eq!(runs(&store, &turn).await, [run(0)]);
    assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(approval));
    let tail = store.events(&anna(), &turn.id, None, 99).await.unwrap().unwrap();
    assert_eq!((tail.chunks.len(), tail.last), (2, Some(3)));
}

pub(crate) async fn a_call_that_begins_and_ends_in_one_step_is_kept_as_it_ended(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), TurnWrite { tools: vec![run(0), run(1), ran(0)], ..turn.whole(None) }).await;
    assert_eq!(runs(&store, &turn).await, [ran(0), run(1)]);
}

pub(crate) async fn a_lost_write_leaves_no_trace_of_its_tools(store: Engine) {
    let (running, ended) = (Turn::new("running"), Turn::new("ended"));
    keep(&store, &anna(), running.beginning(running.begin())).await;
    keep(&store, &anna(), telling(&running, vec![run(0)])).await;
    keep(&store, &anna(), ended.whole(None)).await;
    let step =
        |turn: &Turn| TurnWrite { tools: vec![ran(0), run(1)], approvals: vec![asked(turn, "mcpr_1")], ..turn.step() };
    let lost = async |scope: &Scope, write| assert_eq!(store.write(scope, write).await.unwrap(), WriteOutcome::Lost);
    lost(&anna(), TurnWrite { process: THERE, ..step(&running) }.into()).await;
    lost(&anna(), step(&ended).into()).await;
    lost(&anna(), step(&Turn::new("never")).into()).await;
    // The second beginning of a response.
    lost(&anna(), TurnWrite { begin: Some(Box::new(running.begin())), ..step(&running) }.into()).await;
    for stranger in strangers() {
        lost(&stranger, step(&running).into()).await;
    }
    assert_eq!((runs(&store, &running).await, runs(&store, &ended).await), (vec![run(0)], vec![]));
    for scope in [anna()].into_iter().chain(strangers()) {
        assert_eq!(store.approvals(scope.admin().unwrap(), false, None, 9, NOW).await.unwrap(), []);
    }
}

pub(crate) async fn a_deleted_response_takes_its_tool_calls_along(store: Engine) {
    let (turn, other) = (Turn::new("hi"), Turn::new("other"));
    for (turn, id) in [(&turn, "mcpr_1"), (&other, "mcpr_2")] {
        let approvals = vec![asked(turn, id)];
        keep(&store, &anna(), TurnWrite { tools: vec![ran(0)], approvals, ..turn.whole(None) }).await;
    }
    // Another response continues it: its items stay, its calls do not.
    say(&store, &anna(), Some(&turn), "on").await;
    assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
    let admin = anna();
    let admin = admin.admin().unwrap();
    assert_eq!(store.approval_of_tenant(admin, "mcpr_1").await.unwrap(), None);
    assert_eq!(store.tool_statistics(admin, BANK_LABEL, "book_room", 0).await.unwrap().calls, 1);
    assert_eq!(runs(&store, &other).await, [ran(0)]);
    assert!(store.approval_of_tenant(admin, "mcpr_2").await.unwrap().is_some());
}

pub(crate) async fn a_dead_process_leaves_the_names_of_tools_of_unknown_end(store: Engine) {
    // S3
    fn error(tools: &[String]) -> String {
        format!(r#"{{"message":"stopped [{}]","type":"x","param":null,"code":"server_error"}}"#, tools.join(" "))
    }
    let named = |number, name: &str| ToolRun { name: name.into(), ..run(number) };
    let safe = ToolRun { idempotent: true, ..named(0, "read") };
    let cases = [
        (vec![], ""),
        (vec![ran(0), safe.clone()], ""),
        (vec![named(0, "pay")], "pay"),
        (vec![named(2, "pay"), named(0, "mail"), ran(3), named(4, "pay"), ToolRun { number: 1, ..safe }], "mail pay"),
    ];
    let mut turns = Vec::new();
    for (tools, expected) in cases {
        let turn = Turn::new("hi");
        keep(&store, &anna(), TurnWrite { tools, ..turn.beginning(turn.begin()) }).await;
        turns.push((turn, expected));
    }
    // Neither what another process runs nor what has ended is touched.
    let (elsewhere, ended) = (Turn::new("elsewhere"), Turn::new("ended"));
    let running = TurnWrite { process: THERE, ..elsewhere.beginning(elsewhere.begin()) };
    keep(&store, &anna(), TurnWrite { tools: vec![run(0)], ..running }).await;
    keep(&store, &anna(), TurnWrite { tools: vec![run(0)], ..ended.whole(None) }).await;
    let theirs = Turn::new("theirs");
    let bob = scope(2, "bob");
    keep(&store, &bob, TurnWrite { tools: vec![named(0, "pay")], ..theirs.beginning(theirs.begin()) }).await;

    store.beat(operator(), HERE, 1).await.unwrap();
    let recovered = store.end_dead_process(operator(), HERE, 1, error, NOW).await.unwrap();
    assert_eq!(recovered, Some(RecoveryCounts { failed: 5, queued: 0 }));

    let told = async |scope: &Scope, turn: &Turn| {
        let status = store.response(scope, &turn.id).await.unwrap().unwrap().status;
        (status.status, status.error.map(|error| error.message))
    };
    for (turn, expected) in &turns {
        assert_eq!(told(&anna(), turn).await, (Status::Failed, Some(format!("stopped [{expected}]"))));
    }
    assert_eq!(told(&bob, &theirs).await, (Status::Failed, Some("stopped [pay]".into())));
    assert_eq!(told(&anna(), &elsewhere).await, (Status::InProgress, None));
    assert_eq!(told(&anna(), &ended).await, (Status::Completed, None));
    // The journal still says that it began.
    assert_eq!(runs(&store, &turns[2].0).await, [named(0, "pay")]);
}

pub(crate) async fn statistics_tell_what_came_of_a_tools_calls(store: Engine) {
    let outcome = |error: Option<&str>, duration_ms| {
        Some(ToolOutcome { output: json("1"), error: error.map(str::to_owned), detail: None, duration_ms })
    };
    let at = |number, started_at_ms, outcome| ToolRun { started_at_ms, outcome, ..run(number) };
    let tools = vec![
        at(0, NOW, outcome(None, 10)),
        at(1, NOW + 10, outcome(None, 30)),
        at(2, NOW + 20, outcome(Some("timed_out"), 500)),
        at(3, NOW + 30, None),
        // Of the same name elsewhere, and of another name here.
        ToolRun { label: "calendar".into(), ..ran(4) },
        ToolRun { name: "book_table".into(), ..ran(5) },
    ];
    for (scope, turn) in [(anna(), Turn::new("hi")), (scope(1, "bert"), Turn::new("hi"))] {
        keep(&store, &scope, TurnWrite { tools: tools.clone(), ..turn.whole(None) }).await;
    }
    let statistics = async |tenant_id, label, since_ms| {
        let boss = scope(tenant_id, "boss");
        store.tool_statistics(boss.admin().unwrap(), label, "book_room", since_ms).await.unwrap()
    };
    let all = ToolStatistics {
        calls: 8,
        failed: 2,
        unknown: 2,
        duration_ms: 1080,
        longest_ms: 500,
        last_called_at_ms: Some(NOW + 30),
    };
    assert_eq!(statistics(1, BANK_LABEL, 0).await, all);
    let later = ToolStatistics { calls: 6, duration_ms: 1060, ..all };
    assert_eq!(statistics(1, BANK_LABEL, NOW + 10).await, later);
    let one = ToolStatistics {
        calls: 2,
        duration_ms: 80,
        longest_ms: 40,
        last_called_at_ms: Some(NOW),
        failed: 0,
        unknown: 0,
    };
    assert_eq!(statistics(1, "calendar", 0).await, one);
    assert_eq!(statistics(1, BANK_LABEL, NOW + 31).await, ToolStatistics::default());
    assert_eq!(statistics(2, BANK_LABEL, 0).await, ToolStatistics::default());
}
