//! Who is called when something changes. An engine may call early; here is when it must call at all.

use std::time::Duration;

use amalgam_core::{
    BoxFuture,
    store::{Answer, Claim, IdempotencyKey, TurnWrite},
};
use tokio::time::timeout;

use crate::given::*;

/// The longest that a call may take on a busy machine; nothing here waits for as long when it works.
const PATIENCE: Duration = Duration::from_secs(20);

async fn called(waiting: BoxFuture<'static, ()>, what: &str) {
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("no notification: {what}"));
}

pub(crate) async fn a_request_that_waits_for_a_response_is_notified(store: Engine) {
    let turn = Turn::new("hi");
    keep(&store, &anna(), turn.beginning(turn.queued())).await;
    let steps = [
        ("it starts", turn.starting()),
        ("it says something", turn.saying(0, 1, "a")),
        ("it ends", TurnWrite { transcripts: vec![call(0)], ..turn.ending() }),
    ];
    for (what, step) in steps {
        // Waiting begins at this call, not when it is polled.
        let (one, other) = (store.changed(&turn.id), store.changed(&turn.id));
        keep(&store, &anna(), step).await;
        called(one, what).await;
        called(other, what).await;
    }
    let waiting = store.changed(&turn.id);
    assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
    called(waiting, "it is deleted").await;

    let cancelled = Turn::new("cancelled");
    keep(&store, &anna(), cancelled.beginning(cancelled.queued())).await;
    let waiting = store.changed(&cancelled.id);
    store.cancel_response(&anna(), &cancelled.id, NOW).await.unwrap();
    called(waiting, "it is cancelled").await;

    let orphan = Turn::new("orphan");
    keep(&store, &anna(), orphan.beginning(orphan.begin())).await;
    store.beat(operator(), HERE, 1).await.unwrap();
    let waiting = store.changed(&orphan.id);
    store.end_dead_process(operator(), HERE, 1, |_| "{}".into(), NOW).await.unwrap().unwrap();
    called(waiting, "its process died").await;
}

pub(crate) async fn a_process_that_waits_for_queued_turns_is_notified(store: Engine) {
    let turn = Turn::new("hi");
    let waiting = store.changed("");
    keep(&store, &anna(), turn.beginning(turn.queued())).await;
    called(waiting, "a turn is queued").await;

    assert_eq!(store.take_queued(operator(), HERE, 1).await.unwrap().len(), 1);
    let waiting = store.changed("");
    store.give_back(operator(), HERE, std::slice::from_ref(&turn.id)).await.unwrap();
    called(waiting, "a turn is given back").await;

    assert_eq!(store.take_queued(operator(), HERE, 1).await.unwrap().len(), 1);
    store.beat(operator(), HERE, 1).await.unwrap();
    let waiting = store.changed("");
    store.end_dead_process(operator(), HERE, 1, |_| "{}".into(), NOW).await.unwrap().unwrap();
    called(waiting, "a turn of a dead process waits again").await;
}

pub(crate) async fn a_request_that_waits_for_a_claim_is_notified(store: Engine) {
    for answer in [None, Some(Answer::Stored)] {
        let idempotency_key = IdempotencyKey { route: "r".into(), key: format!("{answer:?}") };
        let id = Turn::new("hi").id;
        assert_eq!(store.claim(&anna(), &idempotency_key, [1; 32], &id, HERE, NOW).await.unwrap(), Claim::First);
        let waiting = store.changed(&id);
        store.settle(&anna(), &idempotency_key, &id, answer).await.unwrap();
        called(waiting, "the claim is settled").await;
    }
}

pub(crate) async fn no_request_is_notified_of_another_change(store: Engine) {
    let (turn, other) = (Turn::new("hi"), Turn::new("other"));
    let (mut waiting, mut dropped) = (store.changed(&turn.id), store.changed(&turn.id));
    assert!(!is_called(&mut dropped));
    drop(dropped);
    let queued = store.changed("");
    // Notifications arrive in order: a request that waits for the last of these would have been notified of the first.
    let last = store.changed(&other.id);
    keep(&store, &anna(), other.beginning(other.begin())).await;
    called(last, "the other begins").await;
    let last = store.changed(&other.id);
    keep(&store, &anna(), other.ending()).await;
    called(last, "the other ends").await;
    assert!(!is_called(&mut waiting));
    let mut queued = queued;
    assert!(!is_called(&mut queued));
}
