//! A database that is slow: nothing waits without a bound, and nothing is left behind.

use std::time::{Duration, Instant};

use amalgam_core::StoreError;
use amalgam_store_postgres::PostgresOptions;
use tokio::task::JoinSet;

use super::given::{Fresh, WAITING, runtime};
use crate::given::{Engine, Turn, anna, keep};

const LOCK: &str = "BEGIN; LOCK TABLE responses, conversations IN ACCESS EXCLUSIVE MODE";
const ONE: Duration = Duration::from_secs(15);

/// Writes many turns at once, and counts how many were written and how many were refused as too many.
async fn write_all(store: &Engine, turns: usize) -> JoinSet<Result<(), StoreError>> {
    let mut writing = JoinSet::new();
    for _ in 0..turns {
        let store = store.clone();
        writing.spawn(async move { store.write(&anna(), Turn::new("x").whole(None).into()).await.map(drop) });
    }
    writing
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn writes_beyond_the_line_are_refused_at_once() {
    // S16
    let database = Fresh::make();
    runtime().block_on(async {
        let store = database.store_with(PostgresOptions { writers: 1, queue: 4, ..PostgresOptions::default() }).await;
        keep(&store, &anna(), Turn::new("warm").whole(None)).await;
        let aside = database.aside().await;
        aside.run(LOCK).await;
        let first = write_all(&store, 1).await;
        database.aside().await.until(WAITING, |count| count == 1).await;

        let mut rest = write_all(&store, 20).await;
        let begun = Instant::now();
        let mut refused = 0;
        while refused < 16 {
            match rest.join_next().await.unwrap().unwrap() {
                Err(StoreError::Busy) => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(begun.elapsed() < ONE, "{:?}", begun.elapsed());
        aside.run("COMMIT").await;
        for written in first.join_all().await.into_iter().chain(rest.join_all().await) {
            written.unwrap();
        }
        assert_eq!(database.aside().await.count("SELECT count(*) FROM responses").await, 6);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn bytes_that_wait_are_bounded_and_a_large_write_still_goes_through() {
    // S16
    let database = Fresh::make();
    runtime().block_on(async {
        let store =
            database.store_with(PostgresOptions { writers: 1, queue_bytes: 4000, ..PostgresOptions::default() }).await;
        keep(&store, &anna(), Turn::new(&"x".repeat(100_000)).whole(None)).await;
        let aside = database.aside().await;
        aside.run(LOCK).await;
        let first = write_all(&store, 1).await;
        database.aside().await.until(WAITING, |count| count == 1).await;
        let large = Turn::new(&"y".repeat(10_000)).whole(None);
        assert!(matches!(store.write(&anna(), large.into()).await, Err(StoreError::Busy)));
        aside.run("COMMIT").await;
        first.join_all().await.into_iter().for_each(|written| written.unwrap());
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_request_that_waits_too_long_for_a_connection_gets_an_error() {
    let database = Fresh::make();
    runtime().block_on(async {
        let options =
            PostgresOptions { connections: 1, wait: Duration::from_millis(200), ..PostgresOptions::default() };
        let store = database.store_with(options).await;
        let aside = database.aside().await;
        aside.run(LOCK).await;
        let mut reading = JoinSet::new();
        let reader = store.clone();
        reading.spawn(async move { reader.conversation(&anna(), "conv_x").await });
        database.aside().await.until(WAITING, |count| count == 1).await;
        let begun = Instant::now();
        let error = store.conversation(&anna(), "conv_x").await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(begun.elapsed() < 2 * ONE, "{:?}", begun.elapsed());
        aside.run("COMMIT").await;
        assert_eq!(reading.join_all().await.remove(0).unwrap(), None);
        assert_eq!(store.conversation(&anna(), "conv_x").await.unwrap(), None);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_statement_that_takes_too_long_ends_and_leaves_nothing() {
    let database = Fresh::make();
    runtime().block_on(async {
        let options = PostgresOptions { statement: Duration::from_millis(300), ..PostgresOptions::default() };
        let store = database.store_with(options).await;
        let aside = database.aside().await;
        aside.run(LOCK).await;
        let turn = Turn::new("late");
        let begun = Instant::now();
        let written = store.write(&anna(), turn.whole(None).into()).await;
        assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
        let read = store.response(&anna(), &turn.id).await;
        assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
        assert!(begun.elapsed() < 3 * ONE, "{:?}", begun.elapsed());
        aside.run("COMMIT").await;
        assert_eq!(store.response(&anna(), &turn.id).await.unwrap(), None);
        keep(&store, &anna(), turn.whole(None)).await;
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn callers_who_leave_do_not_use_connections_up() {
    let database = Fresh::make();
    runtime().block_on(async {
        let store = database.store_with(PostgresOptions { connections: 2, ..PostgresOptions::default() }).await;
        let aside = database.aside().await;
        for _ in 0..5 {
            aside.run(LOCK).await;
            let mut leaving = JoinSet::new();
            for number in 0..4 {
                let store = store.clone();
                leaving.spawn(async move {
                    match number % 2 {
                        0 => store.conversation(&anna(), "conv_x").await.map(drop),
                        _ => store.delete_conversation(&anna(), "conv_x").await.map(drop),
                    }
                });
            }
            database.aside().await.until(WAITING, |count| count == 2).await;
            leaving.shutdown().await;
            aside.run("COMMIT").await;
            assert_eq!(store.conversation(&anna(), "conv_x").await.unwrap(), None);
        }
        // Transactions that were left in the middle are not open any more.
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
            AND application_name = 'amalgam' AND state LIKE 'idle in transaction%'";
        database.aside().await.until(open, |count| count == 0).await;
    });
}
