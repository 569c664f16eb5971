//! The server becomes unavailable, or its answers are lost: no acknowledged write is lost, and none is written twice.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use amalgam_core::{
    StoreError,
    store::{TurnWrite, WriteOutcome},
};
use amalgam_store_postgres::{Postgres, PostgresOptions};
use tokio::{task::JoinSet, time::timeout};

use super::{
    given::{Aside, Cluster, Fresh, impatient, patient, runtime},
    proxy::{Loses, Proxy},
};
use crate::given::{Engine, HERE, Turn, anna, asked, call, keep, operator, ran, run};

const SOON: Duration = Duration::from_secs(30);

/// The outcomes of continuous writes.
#[derive(Default)]
struct Log {
    kept: Mutex<Vec<String>>,
    refused: Mutex<Vec<String>>,
    over: AtomicBool,
}

impl Log {
    fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    fn refused(&self) -> usize {
        self.refused.lock().unwrap().len()
    }
}

fn write_on(store: &Engine, log: &Arc<Log>, writing: &mut JoinSet<()>) {
    let (store, log) = (store.clone(), Arc::clone(log));
    writing.spawn(async move {
        while !log.over.load(Ordering::SeqCst) {
            let turn = Turn::new("on and on");
            let write = TurnWrite { transcripts: vec![call(0)], ..turn.whole(None) };
            match store.write(&anna(), write.into()).await {
                Ok(WriteOutcome::Kept) => log.kept.lock().unwrap().push(turn.id),
                Err(StoreError::Unavailable(_) | StoreError::Busy) => {
                    log.refused.lock().unwrap().push(turn.id);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

async fn until(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < within, "not within {within:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_server_that_goes_down_and_comes_back_loses_nothing_acknowledged() {
    // P1, S16; recovery within 5 s without a restart of this process.
    let cluster = Cluster::start();
    runtime().block_on(async {
        let store: Engine = Arc::new(Postgres::open(cluster.url(), PostgresOptions::default()).await.unwrap());
        let log = Arc::new(Log::default());
        let mut writing = JoinSet::new();
        (0..8).for_each(|_| write_on(&store, &log, &mut writing));
        until("writes are kept", SOON, || log.kept() > 100).await;

        tokio::task::block_in_place(|| cluster.down());
        until("writes are refused", SOON, || log.refused() > 8).await;
        let begun = Instant::now();
        assert!(matches!(store.response(&anna(), &Turn::new("x").id).await, Err(StoreError::Unavailable(_))));
        assert!(matches!(store.ping().await, Err(StoreError::Unavailable(_))));
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());

        let waiting = store.changed("resp_x");
        tokio::task::block_in_place(|| cluster.up());
        let (back, before) = (Instant::now(), log.kept());
        until("writes are kept again", SOON, || log.kept() > before + 50).await;
        store.ping().await.unwrap();
        timeout(SOON.saturating_sub(back.elapsed()), waiting)
            .await
            .expect("all waiting requests are woken: notifications may have been missed");
        log.over.store(true, Ordering::SeqCst);
        writing.join_all().await;

        let kept = std::mem::take(&mut *log.kept.lock().unwrap());
        for id in &kept {
            let response = store.response(&anna(), id).await.unwrap();
            assert!(response.is_some_and(|response| response.output.raw().elements().count() == 1), "{id} is lost");
        }
        // What was refused is there as a whole or not at all.
        let aside = Aside::connect(cluster.url()).await;
        let halves = "SELECT count(*) FROM responses r
            FULL JOIN items i ON i.response_id = r.id FULL JOIN transcripts t ON t.response_id = r.id
            WHERE r.id IS NULL OR i.response_id IS NULL OR t.response_id IS NULL OR i.output IS NULL";
        assert_eq!(aside.count(halves).await, 0);
        let all = aside.count("SELECT count(*) FROM responses").await;
        let refused = log.refused() as i64;
        assert!(
            (kept.len() as i64..=kept.len() as i64 + refused).contains(&all),
            "{all} of {} + {refused}",
            kept.len()
        );
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn sessions_that_the_server_ends_are_replaced_and_no_write_is_lost_or_doubled() {
    let database = Fresh::make();
    runtime().block_on(async {
        let store = database.store().await;
        let log = Arc::new(Log::default());
        let mut writing = JoinSet::new();
        (0..8).for_each(|_| write_on(&store, &log, &mut writing));
        let aside = database.aside().await;
        for _ in 0..10 {
            let before = log.kept();
            until("writes are kept", SOON, || log.kept() > before + 20).await;
            let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND application_name = 'amalgam'";
            assert!(aside.count(end_all).await > 0);
        }
        log.over.store(true, Ordering::SeqCst);
        writing.join_all().await;
        assert_eq!(log.refused(), 0, "each was settled and tried again");
        assert_eq!(aside.count("SELECT count(*) FROM responses").await, log.kept() as i64);
        assert_eq!(aside.count("SELECT count(*) FROM transcripts").await, log.kept() as i64);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_session_that_is_ended_while_it_is_set_up_is_made_anew() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (proxy, store) = database.store_behind_a_proxy(PostgresOptions { writers: 1, ..patient() }).await;
        let aside = database.aside().await;
        let listens = "SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'amalgam' AND query LIKE 'LISTEN%'";
        aside.until(listens, |count| count == 1).await;

        // The writer has had no reason to connect yet.
        proxy.lose(Loses::Requests);
        let mut writing = JoinSet::new();
        let writer = store.clone();
        writing.spawn(async move { writer.write(&anna(), Turn::new("one").whole(None).into()).await });
        until("the session is being set up", SOON, || proxy.lost() > 0).await;
        proxy.cut();
        assert_eq!(writing.join_next().await.unwrap().unwrap().unwrap(), WriteOutcome::Kept);
        assert_eq!(aside.count("SELECT count(*) FROM responses").await, 1);
    });
}

/// Has everything prepared on the writer's connection, so that only the write itself is on its way when something is lost.
async fn warm_up(store: &Engine) {
    let warm = Turn::new("warm");
    let end = TurnWrite { transcripts: vec![call(0)], ..warm.ending() };
    let tools = TurnWrite { tools: vec![run(0)], approvals: vec![asked(&warm, "mcpr_warm")], ..warm.step() };
    for write in [warm.beginning(warm.queued()), warm.starting(), warm.saying(0, 1, "x"), tools, end] {
        keep(store, &anna(), write).await;
    }
    assert!(store.delete_response(&anna(), &warm.id).await.unwrap());
}

/// Writes while something is lost; `arrived` counts what it left in the database.
async fn write_through(proxy: &Proxy, loses: Loses, store: &Engine, write: TurnWrite, aside: &Aside, arrived: &str) {
    warm_up(store).await;
    let mut writing = JoinSet::new();
    let lost = proxy.lost();
    proxy.lose(loses);
    let writer = store.clone();
    writing.spawn(async move { writer.write(&anna(), write.into()).await });
    match loses {
        Loses::AnswersToCommits => aside.until(arrived, |count| count == 1).await,
        _ => until("the request is lost", SOON, || proxy.lost() > lost).await,
    }
    assert!(writing.try_join_next().is_none(), "the answer must not have come");
    proxy.cut();
    assert_eq!(writing.join_next().await.unwrap().unwrap().unwrap(), WriteOutcome::Kept);
    assert_eq!(aside.count(arrived).await, 1);
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_commit_whose_answer_is_lost_is_looked_up_and_not_repeated() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (proxy, store) = database.store_behind_a_proxy(PostgresOptions { writers: 1, ..patient() }).await;
        let aside = database.aside().await;
        for loses in [Loses::AnswersToCommits, Loses::Commits, Loses::Requests] {
            aside.run("TRUNCATE responses, items, stream_events, transcripts, tool_runs, approvals").await;
            let turn = Turn::new("one");
            let begin = turn.beginning(turn.queued());
            write_through(&proxy, loses, &store, begin, &aside, "SELECT count(*) FROM responses").await;
            let running = "SELECT count(*) FROM responses WHERE status = 'in_progress'";
            write_through(&proxy, loses, &store, turn.starting(), &aside, running).await;
            let events = "SELECT count(*) FROM stream_events";
            write_through(&proxy, loses, &store, turn.saying(0, 4, "frames"), &aside, events).await;
            let began = TurnWrite { tools: vec![run(0)], approvals: vec![asked(&turn, "mcpr_1")], ..turn.step() };
            let begun = "SELECT count(*) FROM tool_runs JOIN approvals USING (response_id)";
            write_through(&proxy, loses, &store, began, &aside, begun).await;
            let over = TurnWrite { tools: vec![ran(0)], ..turn.step() };
            let ran = "SELECT count(*) FROM tool_runs WHERE output IS NOT NULL";
            write_through(&proxy, loses, &store, over, &aside, ran).await;
            let end = TurnWrite { transcripts: vec![call(0)], ..turn.ending() };
            let ended = "SELECT count(*) FROM responses r JOIN transcripts t ON t.response_id = r.id
                WHERE r.status = 'completed'";
            write_through(&proxy, loses, &store, end, &aside, ended).await;
            assert_eq!(aside.count("SELECT count(*) FROM items").await, 1);
        }
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_write_that_comes_again_after_an_unknown_outcome_is_known() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (proxy, store) = database.store_behind_a_proxy(PostgresOptions { writers: 1, ..impatient() }).await;
        let aside = database.aside().await;
        let turn = Turn::new("one");
        keep(&store, &anna(), turn.beginning(turn.begin())).await;
        warm_up(&store).await;

        // The answer is lost, and so is every other one for a while.
        proxy.lose(Loses::AnswersToCommits);
        let blind = async {
            until("the answer is lost", SOON, || proxy.lost() > 0).await;
            proxy.lose(Loses::Answers);
        };
        let (scope, ending) = (anna(), turn.ending());
        let (written, ()) = tokio::join!(store.write(&scope, ending.into()), blind);
        assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
        aside.until("SELECT count(*) FROM responses WHERE status = 'completed'", |count| count == 1).await;
        proxy.cut();
        keep(&store, &anna(), turn.ending()).await;
        // Only once: from then on it is a response that has ended.
        assert_eq!(store.write(&anna(), turn.ending().into()).await.unwrap(), WriteOutcome::Lost);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn turns_that_were_taken_without_an_answer_are_handed_out_later() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (proxy, store) = database.store_behind_a_proxy(PostgresOptions { writers: 1, ..impatient() }).await;
        let aside = database.aside().await;
        assert_eq!(store.take_queued(operator(), HERE, 5).await.unwrap(), []);
        let turn = Turn::new("one");
        keep(&store, &anna(), turn.beginning(turn.queued())).await;

        proxy.lose(Loses::Answers);
        let taken = store.take_queued(operator(), HERE, 5).await;
        assert!(matches!(taken, Err(StoreError::Unavailable(_))), "{taken:?}");
        aside.until("SELECT count(*) FROM responses WHERE process IS NOT NULL", |count| count == 1).await;
        proxy.cut();
        let taken = store.take_queued(operator(), HERE, 5).await.unwrap();
        assert_eq!(taken.iter().map(|turn| turn.response_id.as_str()).collect::<Vec<_>>(), [turn.id.as_str()]);
        assert_eq!(store.take_queued(operator(), HERE, 5).await.unwrap(), []);
        keep(&store, &anna(), turn.starting()).await;
    });
}
