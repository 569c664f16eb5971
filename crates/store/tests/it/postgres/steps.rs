//! Submissions to several processes, and a server that becomes unavailable while they are taken.

use std::{sync::Arc, time::Duration};

use amalgam_core::store::{FileRecord, StepState, TakenStep};
use amalgam_store_postgres::{Postgres, PostgresOptions};
use bytes::Bytes;
use tokio::{task::JoinSet, time::timeout};

use super::{
    given::{Fresh, WAITING, runtime},
    proxy::{Loses, Proxy},
};
use crate::{
    contract::steps::{SESSION, begun, race, submitted},
    given::{Engine, HERE, NOW, Turn, anna, operator},
};

const STEPS: &str = "SELECT count(*) FROM agent_steps";

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn submissions_to_two_processes_have_one_first() {
    // C-11
    let database = Fresh::make();
    runtime().block_on(async {
        race(&[database.store().await, database.store().await]).await;
        let aside = database.aside().await;
        assert_eq!(aside.count(STEPS).await, 0);
        assert_eq!(aside.count("SELECT count(*) FROM agent_sessions").await, 0);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_step_whose_taking_was_not_answered_is_still_the_callers() {
    let database = Fresh::make();
    runtime().block_on(async {
        let proxy = Proxy::to(database.url()).await;
        let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
        let store: Engine = Arc::new(Postgres::open(proxy.url(), options).await.unwrap());
        let aside = database.aside().await;
        begun(&store).await;
        // So that everything is prepared.
        let warm = Turn::new("warm");
        store.take_step(&anna(), submitted("warm", 1, &warm)).await.unwrap();
        store.drop_step(&anna(), SESSION, &warm.id).await.unwrap();

        let (asked, answer) = (store.clone(), Turn::new("hi"));
        let step = submitted("t1", 1, &answer);
        proxy.lose(Loses::AnswersToCommits);
        let mut asking = JoinSet::new();
        asking.spawn(async move { asked.take_step(&anna(), step).await.unwrap() });
        aside.until(STEPS, |count| count == 1).await;
        assert!(asking.try_join_next().is_none(), "the answer must not have come");
        proxy.cut();
        let taken = asking.join_next().await.unwrap().unwrap();
        assert_eq!(taken, TakenStep::First { parent: None });
        let turn = store.agent_turn(&anna(), SESSION, "t1").await.unwrap().unwrap();
        assert_eq!((&turn.steps[0].response_id, turn.steps[0].state), (&answer.id, StepState::Running));
        assert_eq!((aside.count(STEPS).await, turn.steps.len()), (1, 1));
        // Only for this response: the same submission with another response id is a repeated one.
        let other = store.take_step(&anna(), submitted("t1", 1, &Turn::new("other"))).await.unwrap();
        assert!(matches!(other, TakenStep::Already(_)), "{other:?}");
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_caller_that_disconnects_while_the_session_is_locked_does_not_block() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (store, anna) = (database.store().await, anna());
        begun(&store).await;
        let (aside, watch) = (database.aside().await, database.aside().await);
        aside.run("BEGIN; SELECT FROM agent_sessions FOR UPDATE").await;
        let mut taking = store.take_step(&anna, submitted("t1", 1, &Turn::new("hi")));
        while timeout(Duration::from_millis(20), &mut taking).await.is_err() {
            if watch.count(WAITING).await == 1 {
                break;
            }
        }
        drop(taking);
        aside.run("COMMIT").await;
        // A transaction that was left ends with its connection: at the latest the next sign of life sees to it.
        store.beat(operator(), HERE, 2).await.unwrap();
        let taken = store.take_step(&anna, submitted("t2", 1, &Turn::new("hi"))).await.unwrap();
        assert_eq!(taken, TakenStep::First { parent: None });
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_file_whose_keeping_was_not_answered_is_kept_once() {
    let database = Fresh::make();
    runtime().block_on(async {
        let proxy = Proxy::to(database.url()).await;
        let options = PostgresOptions { connections: 1, ..PostgresOptions::default() };
        let store: Engine = Arc::new(Postgres::open(proxy.url(), options).await.unwrap());
        let aside = database.aside().await;
        let file = |id: &str| FileRecord {
            id: id.into(),
            filename: "a.txt".into(),
            purpose: "user_data".into(),
            media_type: "text/plain".into(),
            bytes: 60,
            created_at_ms: NOW,
            expires_at_ms: None,
        };
        let content = || Bytes::from_static(&[7; 60]);
        assert!(store.put_file(&anna(), file("file_0"), content(), 100).await.unwrap());
        assert!(store.delete_file(&anna(), "file_0").await.unwrap());

        let asked = store.clone();
        proxy.lose(Loses::AnswersToCommits);
        let mut asking = JoinSet::new();
        asking.spawn(async move { asked.put_file(&anna(), file("file_1"), content(), 100).await.unwrap() });
        aside.until("SELECT count(*) FROM files", |count| count == 1).await;
        proxy.cut();
        // There is no room for it a second time, and it needs none.
        assert!(asking.join_next().await.unwrap().unwrap());
        assert_eq!(aside.count("SELECT count(*) FROM file_contents").await, 1);
    });
}
