//! Several processes on one database: each `Postgres` here represents one.

use std::{collections::HashSet, time::Duration};

use amalgam_core::{
    BoxFuture,
    store::{ProcessId, WriteOutcome},
};
use tokio::{task::JoinSet, time::timeout};

use super::given::{Fresh, runtime};
use crate::given::{NOW, Turn, anna, keep, line, line_of, operator, place, say};

async fn called(waiting: BoxFuture<'static, ()>, what: &str) {
    timeout(Duration::from_secs(30), waiting).await.unwrap_or_else(|_| panic!("no notification when {what}"));
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn another_process_hears_of_what_has_changed() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (one, other) = (database.store().await, database.store().await);
        let turn = Turn::new("hi");
        let queued = other.changed("");
        keep(&one, &anna(), turn.beginning(turn.queued())).await;
        called(queued, "a turn waits").await;
        let started = other.changed(&turn.id);
        keep(&one, &anna(), turn.starting()).await;
        called(started, "it starts").await;
        let said = other.changed(&turn.id);
        keep(&one, &anna(), turn.saying(0, 3, "data: x\n\n")).await;
        called(said, "it says something").await;

        let cancelled = one.changed(&turn.id);
        other.cancel_response(&anna(), &turn.id, NOW).await.unwrap().unwrap();
        called(cancelled, "the other one cancels it").await;
        assert_eq!(one.write(&anna(), turn.ending().into()).await.unwrap(), WriteOutcome::Lost);

        let turn = Turn::new("again");
        keep(&one, &anna(), turn.beginning(turn.begin())).await;
        let ended = other.changed(&turn.id);
        keep(&one, &anna(), turn.ending()).await;
        called(ended, "it ends").await;
        let deleted = other.changed(&turn.id);
        assert!(one.delete_response(&anna(), &turn.id).await.unwrap());
        called(deleted, "it is deleted").await;
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn every_queued_turn_is_taken_by_one_process() {
    let database = Fresh::make();
    runtime().block_on(async {
        let stores = [database.store().await, database.store().await];
        let turns: Vec<Turn> = (0..120).map(|number| Turn::new(&number.to_string())).collect();
        for turn in &turns {
            keep(&stores[0], &anna(), turn.beginning(turn.queued())).await;
        }
        let mut taking = JoinSet::new();
        for number in 0..8_u128 {
            let store = stores[usize::try_from(number % 2).unwrap()].clone();
            taking.spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let some = store.take_queued(operator(), ProcessId(number), 7).await.unwrap();
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some.into_iter().map(|turn| turn.response_id));
                }
            });
        }
        let taken: Vec<String> = taking.join_all().await.into_iter().flatten().collect();
        assert_eq!(taken.len(), turns.len());
        let taken: HashSet<String> = taken.into_iter().collect();
        assert_eq!(taken, turns.iter().map(|turn| turn.id.clone()).collect());
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn children_that_two_processes_make_at_once_all_have_their_own_line() {
    let database = Fresh::make();
    runtime().block_on(async {
        let stores = [database.store().await, database.store().await];
        let mut parents = Vec::new();
        for number in 0..10 {
            parents.push(say(&stores[0], &anna(), None, &format!("parent {number}")).await);
        }
        // Batches of both processes want the same places, in no particular order.
        let mut writing = JoinSet::new();
        for number in 0..200 {
            let parent = parents[number * 7 % parents.len()].clone();
            let store = stores[number % 2].clone();
            writing.spawn(async move {
                let at = place(&store, &anna(), &parent.id).await;
                let turn = Turn::new(&format!("child {number}"));
                keep(&store, &anna(), turn.whole(Some(at))).await;
                (parent, turn)
            });
        }
        let children = writing.join_all().await;
        let mut beside = 0;
        for (parent, child) in &children {
            assert_eq!(line(&stores[1], &anna(), &child.id).await, line_of(&[parent, child]));
            beside += u64::from(place(&stores[1], &anna(), &child.id).await.position == 1);
        }
        assert_eq!(beside, parents.len() as u64, "one child of each parent has the place behind it");
    });
}
