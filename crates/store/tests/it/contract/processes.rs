//! P3: nothing is stuck, and no turn runs twice, whichever process dies when.

use std::collections::HashSet;

use amalgam_core::{
    Rights, TenantState,
    store::{Answer, Begin, Claim, IdempotencyKey, ProcessId, RecoveryCounts, ResponseState, TurnWrite, WriteOutcome},
};
use amalgam_protocol::{ErrorObject, Status};
use tokio::task::JoinSet;

use crate::given::*;

const ERROR: &str = r#"{"message":"the process died","type":"server_error","param":null,"code":"process_died"}"#;

fn error(_: &[String]) -> String {
    ERROR.to_owned()
}

async fn ids_taken(store: &Engine, process: ProcessId, limit: usize) -> Vec<String> {
    let taken = store.take_queued(operator(), process, limit).await.unwrap();
    taken.into_iter().map(|turn| turn.response_id).collect()
}

async fn status(store: &Engine, turn: &Turn) -> Status {
    store.response(&anna(), &turn.id).await.unwrap().unwrap().status.status
}

async fn queue(store: &Engine, text: &str) -> Turn {
    let turn = Turn::new(text);
    keep(store, &anna(), turn.beginning(turn.queued())).await;
    turn
}

pub(crate) async fn processes_are_known_by_their_last_beat(store: Engine) {
    assert_eq!(store.processes(operator()).await.unwrap(), []);
    store.beat(operator(), HERE, 0).await.unwrap();
    store.beat(operator(), THERE, 5).await.unwrap();
    store.beat(operator(), HERE, 9).await.unwrap();
    let known: HashSet<_> = store.processes(operator()).await.unwrap().into_iter().collect();
    assert_eq!(known, HashSet::from([(HERE, 9), (THERE, 5)]));
}

pub(crate) async fn what_a_dead_process_left_is_ended(store: Engine) {
    let (running, started, ended, other) = (Turn::new("r"), Turn::new("s"), Turn::new("e"), Turn::new("o"));
    keep(&store, &anna(), running.beginning(running.begin())).await;
    keep(&store, &anna(), started.beginning(started.queued())).await;
    keep(&store, &anna(), started.starting()).await;
    keep(&store, &anna(), ended.whole(None)).await;
    keep(&store, &anna(), TurnWrite { process: THERE, ..other.beginning(other.begin()) }).await;
    let taken = queue(&store, "taken").await;
    assert_eq!(ids_taken(&store, HERE, 9).await, [taken.id.as_str()]);
    let waiting = queue(&store, "waiting").await;
    store.beat(operator(), HERE, 3).await.unwrap();

    for wrong in [2, 4] {
        assert_eq!(
            store.end_dead_process(operator(), HERE, wrong, error, NOW).await.unwrap(),
            None,
            "it has beaten since"
        );
    }
    assert_eq!(status(&store, &running).await, Status::InProgress);
    let recovered = store.end_dead_process(operator(), HERE, 3, error, NOW).await.unwrap();
    assert_eq!(recovered, Some(RecoveryCounts { failed: 2, queued: 1 }));

    for dead in [&running, &started] {
        let response = store.response(&anna(), &dead.id).await.unwrap().unwrap();
        let error = ErrorObject::read(json(ERROR).raw());
        assert_eq!(response.status, ResponseState { error: Some(error), ..told(Status::Failed) });
        assert_eq!(response.output, json("[]"));
    }
    let statuses = [status(&store, &ended).await, status(&store, &other).await, status(&store, &taken).await];
    assert_eq!(statuses, [Status::Completed, Status::InProgress, Status::Queued]);
    assert_eq!(ids_taken(&store, THERE, 9).await, [taken.id, waiting.id]);
    assert_eq!(store.processes(operator()).await.unwrap(), []);
    assert_eq!(
        store.end_dead_process(operator(), HERE, 3, error, NOW).await.unwrap(),
        None,
        "another process was faster"
    );
}

pub(crate) async fn only_one_buries_a_process(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.begin())).await;
    store.beat(operator(), HERE, 1).await.unwrap();
    let mut racing = JoinSet::new();
    for _ in 0..16 {
        let store = store.clone();
        racing.spawn(async move { store.end_dead_process(operator(), HERE, 1, error, NOW).await.unwrap() });
    }
    let recovered: Vec<_> = racing.join_all().await.into_iter().flatten().collect();
    assert_eq!(recovered, [RecoveryCounts { failed: 1, queued: 0 }]);
}

pub(crate) async fn a_dead_process_writes_nothing_any_more(store: Engine) {
    let running = Turn::new("hi");
    keep(&store, &anna(), running.beginning(running.begin())).await;
    let taken = queue(&store, "taken").await;
    assert_eq!(ids_taken(&store, HERE, 1).await, [taken.id.as_str()]);
    store.beat(operator(), HERE, 1).await.unwrap();
    assert!(store.end_dead_process(operator(), HERE, 1, error, NOW).await.unwrap().is_some());
    assert_eq!(ids_taken(&store, THERE, 1).await, [taken.id.as_str()]);

    for write in [running.saying(0, 1, "x"), running.ending(), taken.starting(), taken.ending()] {
        assert_eq!(store.write(&anna(), write.into()).await.unwrap(), WriteOutcome::Lost);
    }
    assert_eq!(store.events(&anna(), &running.id, None, 9).await.unwrap().unwrap().chunks, []);
    keep(&store, &anna(), TurnWrite { process: THERE, ..taken.starting() }).await;
    keep(&store, &anna(), TurnWrite { process: THERE, ..taken.ending() }).await;
}

pub(crate) async fn claims_of_a_dead_process_are_free_unless_their_response_lives(store: Engine) {
    // P4: a turn that another process runs on is not begun a second time by the same request.
    let (running, handed_over, done) = (Turn::new("r"), Turn::new("h"), Turn::new("d"));
    let idempotency_key = |key: &str| IdempotencyKey { route: "r".into(), key: key.into() };
    let claim = |key: &'static str, id: String, process| {
        let store = store.clone();
        async move { store.claim(&anna(), &idempotency_key(key), [1; 32], &id, process, NOW).await.unwrap() }
    };
    let claims = [("r", &running), ("h", &handed_over), ("d", &done)];
    for (key, turn) in claims {
        assert_eq!(claim(key, turn.id.clone(), HERE).await, Claim::First);
    }
    assert_eq!(claim("unwritten", Turn::new("u").id, HERE).await, Claim::First);
    let elsewhere = Turn::new("e");
    assert_eq!(claim("elsewhere", elsewhere.id.clone(), THERE).await, Claim::First);
    keep(&store, &anna(), running.beginning(running.begin())).await;
    keep(&store, &anna(), handed_over.beginning(handed_over.queued())).await;
    let answer = Some((idempotency_key("d"), Some(Answer::Stored)));
    keep(&store, &anna(), TurnWrite { answer, ..done.whole(None) }).await;
    store.beat(operator(), HERE, 1).await.unwrap();
    assert!(store.end_dead_process(operator(), HERE, 1, error, NOW).await.unwrap().is_some());

    for free in ["r", "unwritten"] {
        assert_eq!(claim(free, "resp_x".into(), THERE).await, Claim::First, "{free}");
    }
    for (key, turn) in [("h", &handed_over), ("d", &done)] {
        let lives = Claim::Done { response_id: turn.id.clone(), answer: Answer::Stored };
        assert_eq!(claim(key, "resp_x".into(), THERE).await, lives, "{key}");
    }
    let theirs = Claim::Running { response_id: elsewhere.id };
    assert_eq!(claim("elsewhere", "resp_x".into(), HERE).await, theirs);
}

pub(crate) async fn queued_turns_are_taken_once_and_oldest_first(store: Engine) {
    store.create_tenant(operator(), Some(1), "t", TenantState::Stateless, NOW, audit()).await.unwrap();
    let mut queued = Vec::new();
    for number in 0..60 {
        queued.push(queue(&store, &format!("turn {number}")).await.id);
    }
    let first = store.take_queued(operator(), HERE, 2).await.unwrap();
    assert_eq!(first.iter().map(|turn| turn.response_id.as_str()).collect::<Vec<_>>(), [&queued[0], &queued[1]]);
    let turn = &first[0];
    assert_eq!((turn.scope.tenant_id(), turn.scope.user()), (1, "anna"));
    assert_eq!((turn.scope.state(), turn.scope.rights()), (TenantState::Stateless, Rights::USE));
    assert_eq!((turn.created_at_ms, &turn.request[..], turn.streamed), (NOW, &br#"{"input":"hi"}"#[..], false));

    let mut racing = JoinSet::new();
    for number in 0..20 {
        let store = store.clone();
        racing.spawn(async move { ids_taken(&store, ProcessId(number), 4).await });
    }
    let mut taken: Vec<String> = racing.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 58, "each goes to one process only");
    taken.sort();
    queued.drain(..2);
    queued.sort();
    assert_eq!(taken, queued);
    assert_eq!(ids_taken(&store, HERE, 9).await, [""; 0]);
}

pub(crate) async fn turns_that_wait_are_counted_for_a_tenant_and_for_all(store: Engine) {
    let count = async |tenant_id| store.count_queued(operator(), tenant_id).await.unwrap();
    assert_eq!(count(1).await, (0, 0));
    let mut queued = Vec::new();
    for number in 0..5 {
        queued.push(queue(&store, &format!("turn {number}")).await);
    }
    let foreign = Turn::new("foreign");
    let [_, stranger] = strangers();
    keep(&store, &stranger, foreign.beginning(foreign.queued())).await;
    keep(&store, &anna(), Turn::new("whole").whole(None)).await;
    assert_eq!((count(1).await, count(stranger.tenant_id()).await, count(77).await), ((5, 6), (1, 6), (0, 6)));
    // Those that a process has taken wait no more, nor do those that have ended.
    assert_eq!(ids_taken(&store, HERE, 2).await, [queued[0].id.as_str(), &queued[1].id]);
    store.cancel_response(&anna(), &queued[2].id, NOW).await.unwrap();
    assert_eq!(count(1).await, (2, 3));
    store.give_back(operator(), HERE, &[queued[0].id.clone()]).await.unwrap();
    assert_eq!(count(1).await, (3, 4));
}

pub(crate) async fn a_queued_turn_starts_once(store: Engine) {
    // By the process that took it, or, before that, by the first process that asks.
    let taken = queue(&store, "taken").await;
    assert_eq!(ids_taken(&store, HERE, 1).await, [taken.id.as_str()]);
    let elsewhere = TurnWrite { process: THERE, ..taken.starting() };
    assert_eq!(store.write(&anna(), elsewhere.into()).await.unwrap(), WriteOutcome::Lost);
    keep(&store, &anna(), taken.starting()).await;
    assert_eq!(store.write(&anna(), taken.starting().into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(status(&store, &taken).await, Status::InProgress);
    keep(&store, &anna(), taken.ending()).await;

    let waiting = queue(&store, "waiting").await;
    assert_eq!(
        store.write(&anna(), waiting.ending().into()).await.unwrap(),
        WriteOutcome::Lost,
        "no process runs it yet"
    );
    keep(&store, &anna(), waiting.starting()).await;
    assert_eq!(ids_taken(&store, THERE, 9).await, [""; 0]);
    keep(&store, &anna(), waiting.ending()).await;
}

pub(crate) async fn a_turn_that_was_given_back_waits_again(store: Engine) {
    let first = queue(&store, "first").await;
    let second = queue(&store, "second").await;
    let third = queue(&store, "third").await;
    assert_eq!(ids_taken(&store, HERE, 2).await, [first.id.as_str(), &second.id]);
    keep(&store, &anna(), second.starting()).await;
    let foreground = Turn::new("foreground");
    keep(&store, &anna(), foreground.beginning(foreground.begin())).await;
    let done = say(&store, &anna(), None, "done").await;

    let all = [&first, &second, &third, &foreground, &done].map(|turn| turn.id.clone());
    store.give_back(operator(), THERE, &all).await.unwrap();
    assert_eq!(ids_taken(&store, THERE, 9).await, [third.id.as_str()], "only what a process has can it give back");
    store.give_back(operator(), HERE, &all).await.unwrap();
    let statuses = [status(&store, &second).await, status(&store, &foreground).await, status(&store, &done).await];
    assert_eq!(statuses, [Status::Queued, Status::InProgress, Status::Completed]);
    assert_eq!(ids_taken(&store, THERE, 9).await, [first.id.as_str(), &second.id]);
    assert_eq!(
        store.write(&anna(), second.ending().into()).await.unwrap(),
        WriteOutcome::Lost,
        "it is another process's now"
    );
}

pub(crate) async fn held_turns_are_those_that_have_not_ended(store: Engine) {
    let (running, background) = (Turn::new("r"), Turn::new("b"));
    keep(&store, &anna(), running.beginning(running.begin())).await;
    let bert = &strangers()[0];
    keep(&store, bert, background.beginning(Begin { background: true, ..background.begin() })).await;
    let taken = queue(&store, "taken").await;
    assert_eq!(ids_taken(&store, HERE, 1).await, [taken.id.as_str()]);
    queue(&store, "waiting").await;
    say(&store, &anna(), None, "done").await;
    let elsewhere = Turn::new("elsewhere");
    keep(&store, &anna(), TurnWrite { process: THERE, ..elsewhere.beginning(elsewhere.begin()) }).await;

    let held = async || {
        let mut held = store.held(operator(), HERE).await.unwrap();
        held.sort_by(|left, right| left.0.cmp(&right.0));
        held.into_iter().map(|(id, scope)| (id, scope.tenant_id(), scope.user().to_owned())).collect::<Vec<_>>()
    };
    let mut expected = vec![
        (running.id.clone(), 1, "anna".to_owned()),
        (background.id, 1, "bert".into()),
        (taken.id, 1, "anna".into()),
    ];
    expected.sort();
    assert_eq!(held().await, expected);
    keep(&store, &anna(), running.ending()).await;
    expected.retain(|(id, _, _)| *id != running.id);
    assert_eq!(held().await, expected);
}
