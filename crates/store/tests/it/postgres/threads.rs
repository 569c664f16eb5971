//! Sessions that several processes write to, and a server that becomes unavailable meanwhile.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture,
    store::{WriteOutcome, session_topic},
};
use amalgam_store_postgres::{Postgres, PostgresOptions};
use tokio::{task::JoinSet, time::timeout};

use super::{
    given::{Aside, Fresh, WAITING, impatient, runtime},
    proxy::{Loses, Proxy},
};
use crate::{
    contract::sessions::{answering, race, said, talk, words},
    given::{Engine, HERE, NOW, THERE, Turn, anna, keep, operator, scope},
};

const PLACES: &str = "SELECT count(*) FROM session_queue";

fn died(_: &[String]) -> String {
    r#"{"message":"the process died","type":"server_error","param":null,"code":null}"#.to_owned()
}

async fn called(waiting: BoxFuture<'static, ()>, what: &str) {
    timeout(Duration::from_secs(60), waiting).await.unwrap_or_else(|_| panic!("no notification when {what}"));
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn callers_of_two_processes_share_one_thread_and_never_interleave() {
    let database = Fresh::make();
    runtime().block_on(async {
        race(&[database.store().await, database.store().await]).await;
        assert_eq!(database.aside().await.count(PLACES).await, 0);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn another_process_hears_when_a_place_goes() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (one, other, anna) = (database.store().await, database.store().await, anna());
        let join_queue = async || one.join_queue(&anna, None, HERE, NOW, None).await.unwrap().ticket;
        let (leaves, ends, deleted, dies) =
            (join_queue().await, join_queue().await, join_queue().await, join_queue().await);
        let behind = other.join_queue(&anna, None, THERE, NOW, None).await.unwrap().ticket;
        let bell = session_topic(behind.session_id);

        let gone = other.changed(&bell);
        one.leave_queue(&anna, leaves, None).await.unwrap();
        called(gone, "a request leaves the queue").await;
        let turn = Turn::new("one");
        let heard = one.append_message(&anna, ends, words(&turn, "one")).await.unwrap().unwrap();
        keep(&one, &anna, turn.beginning(turn.begin())).await;
        let gone = other.changed(&bell);
        keep(&one, &anna, answering(&turn, ends, &heard, "re one")).await;
        called(gone, "a turn ends").await;
        let turn = Turn::new("two");
        one.append_message(&anna, deleted, words(&turn, "two")).await.unwrap().unwrap();
        keep(&one, &anna, turn.beginning(turn.begin())).await;
        let gone = other.changed(&bell);
        assert!(one.delete_response(&anna, &turn.id).await.unwrap());
        called(gone, "a response is deleted").await;
        assert_eq!(other.is_next(&anna, behind).await.unwrap(), Some(false));
        assert_eq!(one.is_next(&anna, dies).await.unwrap(), Some(true));
        one.beat(operator(), HERE, 1).await.unwrap();
        let gone = one.changed(&bell);
        assert!(other.end_dead_process(operator(), HERE, 1, died, NOW).await.unwrap().is_some());
        called(gone, "a process is recovered").await;
        assert_eq!(other.is_next(&anna, behind).await.unwrap(), Some(true));
    });
}

/// Asks while answers are lost, until `arrived` says that the server has done it; then the connections break.
async fn ask_and_lose<T: Send + 'static>(
    proxy: &Proxy,
    loses: Loses,
    aside: &Aside,
    arrived: &str,
    ask: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut asking = JoinSet::new();
    proxy.lose(loses);
    asking.spawn(ask);
    aside.until(arrived, |count| count == 1).await;
    assert!(asking.try_join_next().is_none(), "the answer must not have come");
    proxy.cut();
    asking.join_next().await.unwrap().unwrap()
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn what_was_done_in_a_thread_is_not_done_twice_when_the_answer_is_lost() {
    let database = Fresh::make();
    runtime().block_on(async {
        let proxy = Proxy::to(database.url()).await;
        // One of each, so that everything is prepared once it was used.
        let options = PostgresOptions { writers: 1, connections: 1, ..PostgresOptions::default() };
        let store: Engine = Arc::new(Postgres::open(proxy.url(), options).await.unwrap());
        let aside = database.aside().await;
        talk(&store, &anna(), None, HERE, "warm").await;

        let asked = store.clone();
        let join_queue = async move { asked.join_queue(&anna(), None, HERE, NOW, None).await.unwrap().ticket };
        let ticket = ask_and_lose(&proxy, Loses::Answers, &aside, PLACES, join_queue).await;
        assert_eq!(aside.count(PLACES).await, 1);
        assert_eq!(store.is_next(&anna(), ticket).await.unwrap(), Some(true));

        talk(&store, &scope(2, "warm"), None, HERE, "warm").await;
        let (asked, turn) = (store.clone(), Turn::new("one"));
        let said_words = words(&turn, "one");
        let speak = async move { asked.append_message(&anna(), ticket, said_words).await.unwrap().unwrap() };
        let spoken = "SELECT count(*) FROM messages WHERE content = 'one'";
        let heard = ask_and_lose(&proxy, Loses::Answers, &aside, spoken, speak).await;
        assert_eq!(aside.count(spoken).await, 1);
        keep(&store, &anna(), turn.beginning(turn.begin())).await;
        talk(&store, &scope(2, "warm"), None, HERE, "warm").await;

        let (asked, end) = (store.clone(), answering(&turn, ticket, &heard, "re one"));
        let answer = async move { asked.write(&anna(), end.into()).await.unwrap() };
        let answered = "SELECT count(*) FROM messages WHERE content = 're one'";
        let written = ask_and_lose(&proxy, Loses::AnswersToCommits, &aside, answered, answer).await;
        assert_eq!(written, WriteOutcome::Kept);
        assert_eq!(aside.count(PLACES).await, 0);
        assert_eq!(said(&store, &anna(), ticket.session_id).await.len(), 4);
        assert_eq!(store.sessions(&anna(), None, 1).await.unwrap()[0].messages, 4);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_position_that_no_caller_received_is_released_at_the_next_heartbeat() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (proxy, store) = database.store_behind_a_proxy(PostgresOptions { connections: 1, ..impatient() }).await;
        let (aside, anna) = (database.aside().await, anna());
        let kept = store.join_queue(&anna, None, HERE, NOW, None).await.unwrap().ticket;

        // The server does it, but says nothing, and does not say anything any more.
        proxy.lose(Loses::Answers);
        assert!(store.join_queue(&anna, None, HERE, NOW, None).await.is_err());
        aside.until(PLACES, |count| count == 2).await;
        assert!(store.leave_queue(&anna, kept, None).await.is_err());
        proxy.cut();
        store.beat(operator(), HERE, 1).await.unwrap();
        aside.until(PLACES, |count| count == 0).await;
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_caller_that_disconnects_while_the_thread_is_locked_does_not_block() {
    let database = Fresh::make();
    runtime().block_on(async {
        let (store, anna) = (database.store().await, anna());
        talk(&store, &anna, None, HERE, "first").await;
        let (aside, watch) = (database.aside().await, database.aside().await);
        aside.run("BEGIN; SELECT FROM sessions FOR UPDATE").await;
        let mut getting = store.join_queue(&anna, None, HERE, NOW, None);
        while timeout(Duration::from_millis(20), &mut getting).await.is_err() {
            if watch.count(WAITING).await == 1 {
                break;
            }
        }
        drop(getting);
        // Its place is not there yet, and will be.
        assert_eq!(watch.count(PLACES).await, 0);
        aside.run("COMMIT").await;
        watch.until(PLACES, |count| count == 1).await;
        let ticket = store.join_queue(&anna, None, HERE, NOW, None).await.unwrap().ticket;
        assert_eq!(store.is_next(&anna, ticket).await.unwrap(), Some(true));
    });
}

/// Rows of `messages` that were ever read. Connections tell what they did when they end.
async fn rows_read(aside: &Aside) -> i64 {
    let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
    aside.until(others, |count| count == 0).await;
    let read = "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname = 'messages'";
    aside.count(read).await
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_turn_in_a_long_thread_reads_no_more_than_in_a_short_one() {
    const TURNS: i64 = 25;
    let database = Fresh::make();
    runtime().block_on(async {
        let (anna, aside) = (anna(), database.aside().await);
        let mut read = Vec::new();
        for (profile, messages) in [("long", 10_000_i64), ("short", 20)] {
            let store = database.store().await;
            let ticket = talk(&store, &anna, Some(profile), HERE, "first").await;
            // Far behind the numbers that are in use.
            let fill = "INSERT INTO messages (id, tenant_id, user_id, session_id, role, created_at, content)
                SELECT -($1::bigint * 100000 + value), 1, 'anna', $1, 'user', 0, 'what was said long ago'
                FROM generate_series(1, $2::bigint) AS value";
            aside.client.execute(fill, &[&ticket.session_id, &messages]).await.unwrap();
            aside.run("ANALYZE").await;
            drop(store);
            let before = rows_read(&aside).await;
            let store = database.store().await;
            for _ in 0..TURNS {
                talk(&store, &anna, Some(profile), HERE, "again").await;
            }
            drop(store);
            read.push(rows_read(&aside).await - before);
        }
        assert!(read[1] > 0, "{read:?} are counted");
        assert!(read[0] < 2 * read[1], "{read:?} in the long one and in the short one");
    });
}
