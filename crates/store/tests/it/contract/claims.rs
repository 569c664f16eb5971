//! S1, P4: the same request is done once.

use std::time::Duration;

use amalgam_core::store::{Answer, Claim, Ending, IdempotencyKey, TurnWrite, WriteOutcome};
use amalgam_protocol::Status;
use bytes::Bytes;
use tokio::{task::JoinSet, time::timeout};

use crate::given::*;

const BODY: [u8; 32] = [7; 32];

fn idempotency_key(key: &str) -> IdempotencyKey {
    IdempotencyKey { route: "POST /v1/responses".into(), key: key.into() }
}

async fn claim(store: &Engine, key: &str, id: &str) -> Claim {
    store.claim(&anna(), &idempotency_key(key), BODY, id, HERE, NOW).await.unwrap()
}

pub(crate) async fn a_key_is_worked_on_once_and_answered_the_same(store: Engine) {
    assert_eq!(claim(&store, "k", "resp_1").await, Claim::First);
    assert_eq!(claim(&store, "k", "resp_2").await, Claim::Running { response_id: "resp_1".into() });
    let other = store.claim(&anna(), &idempotency_key("k"), [8; 32], "resp_2", HERE, NOW).await.unwrap();
    assert_eq!(other, Claim::Mismatch);

    let answer =
        Answer::Body { status: 422, content_type: "application/json".into(), body: Bytes::from_static(b"\x00{}") };
    store.settle(&anna(), &idempotency_key("k"), "resp_1", Some(answer.clone())).await.unwrap();
    let done = Claim::Done { response_id: "resp_1".into(), answer };
    assert_eq!(claim(&store, "k", "resp_3").await, done);
    // What was answered stays answered.
    for late in [None, Some(Answer::Stored)] {
        store.settle(&anna(), &idempotency_key("k"), "resp_1", late).await.unwrap();
        assert_eq!(claim(&store, "k", "resp_4").await, done);
    }
    let other = store.claim(&anna(), &idempotency_key("k"), [8; 32], "resp_2", HERE, NOW).await.unwrap();
    assert_eq!(other, Claim::Mismatch);
}

pub(crate) async fn racing_claims_have_one_first(store: Engine) {
    let mut racing = JoinSet::new();
    for number in 0..64 {
        let store = store.clone();
        racing.spawn(async move { (number, claim(&store, "k", &format!("resp_{number}")).await) });
    }
    let claims = racing.join_all().await;
    let first: Vec<_> = claims.iter().filter(|(_, claim)| *claim == Claim::First).map(|(number, _)| number).collect();
    assert_eq!(first.len(), 1, "{claims:?}");
    let running = Claim::Running { response_id: format!("resp_{}", first[0]) };
    assert_eq!(claims.iter().filter(|(_, claim)| *claim == running).count(), 63);
}

pub(crate) async fn a_claim_that_was_given_back_is_free(store: Engine) {
    assert_eq!(claim(&store, "k", "resp_1").await, Claim::First);
    store.settle(&anna(), &idempotency_key("k"), "resp_1", None).await.unwrap();
    let other = store.claim(&anna(), &idempotency_key("k"), [9; 32], "resp_2", THERE, NOW).await.unwrap();
    assert_eq!(other, Claim::First, "also for another body");
    // Releasing a claim that does not exist changes nothing.
    store.settle(&anna(), &idempotency_key("other"), "resp_3", None).await.unwrap();
    store.settle(&anna(), &idempotency_key("other"), "resp_3", Some(Answer::Stored)).await.unwrap();
    assert_eq!(claim(&store, "other", "resp_3").await, Claim::First);
}

pub(crate) async fn a_late_settling_does_not_touch_the_claim_of_another_response(store: Engine) {
    assert_eq!(claim(&store, "k", "resp_1").await, Claim::First);
    store.settle(&anna(), &idempotency_key("k"), "resp_1", None).await.unwrap();
    let second = Turn::new("hi");
    assert_eq!(claim(&store, "k", &second.id).await, Claim::First);
    for late in [None, Some(Answer::Stored)] {
        store.settle(&anna(), &idempotency_key("k"), "resp_1", late.clone()).await.unwrap();
        let other = Turn::new("late");
        let late = TurnWrite { answer: Some((idempotency_key("k"), late)), ..other.whole(None) };
        keep(&store, &anna(), late).await;
        assert_eq!(claim(&store, "k", "resp_3").await, Claim::Running { response_id: second.id.clone() });
    }
}

pub(crate) async fn a_claim_belongs_to_a_user_and_a_route(store: Engine) {
    assert_eq!(claim(&store, "k", "resp_1").await, Claim::First);
    for stranger in strangers() {
        let theirs = store.claim(&stranger, &idempotency_key("k"), BODY, "resp_2", HERE, NOW).await.unwrap();
        assert_eq!(theirs, Claim::First);
    }
    let elsewhere = IdempotencyKey { route: "POST /v1/conversations".into(), key: "k".into() };
    assert_eq!(store.claim(&anna(), &elsewhere, BODY, "resp_3", HERE, NOW).await.unwrap(), Claim::First);
}

pub(crate) async fn the_last_step_of_a_turn_settles_its_claim(store: Engine) {
    // In a step of its own, together with the beginning, and given back by a turn that failed.
    let (stepwise, at_once, failing) = (Turn::new("a"), Turn::new("b"), Turn::new("c"));
    for (key, turn) in [("a", &stepwise), ("b", &at_once), ("c", &failing)] {
        assert_eq!(claim(&store, key, &turn.id).await, Claim::First);
    }
    keep(&store, &anna(), stepwise.beginning(stepwise.begin())).await;
    let running = Claim::Running { response_id: stepwise.id.clone() };
    assert_eq!(claim(&store, "a", "resp_x").await, running);
    let stored = Some((idempotency_key("a"), Some(Answer::Stored)));
    keep(&store, &anna(), TurnWrite { answer: stored, ..stepwise.ending() }).await;
    let stored = Some((idempotency_key("b"), Some(Answer::Stored)));
    keep(&store, &anna(), TurnWrite { answer: stored, ..at_once.whole(None) }).await;
    let failed = Ending { state: told(Status::Failed), output: json("[]"), upstream: None };
    let given_back = TurnWrite {
        end: Some(Box::new(failed)),
        answer: Some((idempotency_key("c"), None)),
        ..failing.beginning(failing.begin())
    };
    keep(&store, &anna(), given_back).await;

    for (key, turn) in [("a", &stepwise), ("b", &at_once)] {
        let done = Claim::Done { response_id: turn.id.clone(), answer: Answer::Stored };
        assert_eq!(claim(&store, key, "resp_x").await, done);
    }
    assert_eq!(claim(&store, "c", "resp_x").await, Claim::First);
}

pub(crate) async fn a_lost_write_settles_nothing(store: Engine) {
    let turn = Turn::new("hi");
    assert_eq!(claim(&store, "k", &turn.id).await, Claim::First);
    let lost = TurnWrite { answer: Some((idempotency_key("k"), Some(Answer::Stored))), ..turn.ending() };
    assert_eq!(store.write(&anna(), lost.into()).await.unwrap(), WriteOutcome::Lost);
    assert_eq!(claim(&store, "k", "resp_x").await, Claim::Running { response_id: turn.id });
}

async fn held(store: &Engine) -> Vec<String> {
    let mut held = store.claims(operator(), HERE).await.unwrap();
    held.sort();
    held
}

pub(crate) async fn claims_of_dead_processes_are_released(store: Engine) {
    let turns = ["unwritten", "failed", "ended", "going"].map(|key| (key, Turn::new(key)));
    for (key, turn) in &turns {
        assert_eq!(claim(&store, key, &turn.id).await, Claim::First);
    }
    let [(_, unwritten), (_, failed), (_, ended), (_, going)] = &turns;
    let theirs = store.claim(&anna(), &idempotency_key("theirs"), BODY, "resp_theirs", THERE, NOW).await.unwrap();
    assert_eq!(theirs, Claim::First);
    let failure = Ending { state: told(Status::Failed), output: json("[]"), upstream: None };
    keep(&store, &anna(), TurnWrite { end: Some(Box::new(failure)), ..failed.beginning(failed.begin()) }).await;
    keep(&store, &anna(), ended.whole(None)).await;
    let mut all: Vec<String> = turns.iter().map(|(_, turn)| turn.id.clone()).collect();
    all.sort();
    assert_eq!(held(&store).await, all);

    let left = [&unwritten.id, &failed.id, &ended.id].map(Clone::clone);
    let changed = store.changed(&unwritten.id);
    store.release(operator(), HERE, &[&left[..], &["resp_theirs".to_owned()]].concat()).await.unwrap();
    timeout(Duration::from_secs(60), changed).await.expect("requests that wait for it are notified");
    assert_eq!(held(&store).await, [going.id.as_str()]);
    let done = Claim::Done { response_id: ended.id.clone(), answer: Answer::Stored };
    assert_eq!(claim(&store, "ended", "resp_x").await, done);
    for (key, id) in [("going", going.id.as_str()), ("theirs", "resp_theirs")] {
        assert_eq!(claim(&store, key, "resp_x").await, Claim::Running { response_id: id.to_owned() });
    }
    for free in ["unwritten", "failed"] {
        assert_eq!(claim(&store, free, &format!("resp_{free}")).await, Claim::First);
    }
    // Another request has claimed the key meanwhile.
    store.release(operator(), HERE, &left).await.unwrap();
    assert_eq!(claim(&store, "failed", "resp_x").await, Claim::Running { response_id: "resp_failed".into() });
}

pub(crate) async fn a_caller_that_disconnects_while_claiming_does_not_block(store: Engine) {
    let (anna, idempotency_key) = (anna(), idempotency_key("k"));
    // At once, and after having looked for a moment whether it is done.
    for (number, patience) in [None, Some(0), Some(50), Some(200)].into_iter().enumerate() {
        let id = format!("resp_{number}");
        let claiming = store.claim(&anna, &idempotency_key, BODY, &id, HERE, NOW);
        if let Some(patience) = patience {
            let _ = timeout(Duration::from_micros(patience), claiming).await;
        }
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let left = held(&store).await;
        store.release(operator(), HERE, &left).await.unwrap();
        if claim(&store, "k", "resp_mine").await == Claim::First {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "a claim without an owner is in the way");
    }
}
