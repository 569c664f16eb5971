//! Steps that are acknowledged when the redo log has them: the contract holds, and so does what was acknowledged.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use amalgam_core::{BoxFuture, StoreError};
use amalgam_store::sqlite::{Acknowledge, Migrations, OpenError, Options, Sqlite};
use tokio::task::JoinSet;

use super::{Home, faults::write_until_full, runtime};
use crate::given::*;

mod contract {
    use super::run;

    contract!(run);
}

const AHEAD: Options =
    Options { readers: 2, queue: 1024, max_bytes: None, migrations: Migrations::Run, acknowledge: Acknowledge::Ahead };

fn run(check: impl FnOnce(Engine) -> BoxFuture<'static, ()>) {
    let home = Home::new();
    runtime().block_on(check(home.open(AHEAD)));
}

/// What would be on disk if the power failed now: the log of the database up to `flushed` bytes, and everything else.
fn cut_power(home: &Home, flushed: usize) -> Home {
    let after = Home::new();
    fs::create_dir_all(after.path().parent().unwrap()).unwrap();
    for ending in ["", "-redo", "-wal"] {
        let name = format!("amalgam.db{ending}");
        let mut bytes = fs::read(home.path().with_file_name(&name)).unwrap();
        if ending == "-wal" {
            bytes.truncate(flushed);
        }
        fs::write(after.path().with_file_name(&name), bytes).unwrap();
    }
    after
}

/// Puts everything into the database file itself, so that its log begins anew.
fn fold(home: &Home) {
    let folded: i64 = home.look().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(folded, 0);
}

fn redo_bytes(home: &Home) -> u64 {
    fs::metadata(home.path().with_file_name("amalgam.db-redo")).unwrap().len()
}

async fn expect_all(store: &Engine, turns: &[Turn]) {
    for turn in turns {
        assert_eq!(line(store, &anna(), &turn.id).await.last(), line_of(&[turn]).last(), "{} is not there", turn.id);
    }
}

#[test]
fn what_was_acknowledged_survives_the_loss_of_everything_that_was_not_flushed() {
    // P1, S6: nothing asks the database's own log to be flushed here, so that all of it may be gone.
    let home = Home::new();
    let store = home.open(AHEAD);
    fold(&home);
    let runtime = runtime();
    let kept = runtime.block_on(async {
        let mut kept = Vec::new();
        for number in 0..40 {
            let turn = Turn::new(&format!("{number} {}", "x".repeat(3000)));
            match number % 4 {
                // In several steps, with a stream and a call.
                0 => {
                    keep(&store, &anna(), turn.beginning(turn.begin())).await;
                    keep(&store, &anna(), turn.saying(0, 3, "frames")).await;
                    let mut end = turn.ending();
                    end.transcripts = vec![call(0)];
                    keep(&store, &anna(), end).await;
                }
                // Behind another one. To find its place is to read, which lets the database catch up.
                1 => {
                    let parent = place(&store, &anna(), &kept.last().map(|last: &Turn| last.id.clone()).unwrap()).await;
                    keep(&store, &anna(), turn.whole(Some(parent))).await;
                }
                _ => keep(&store, &anna(), turn.whole(None)).await,
            }
            kept.push(turn);
        }
        kept
    });
    let length = fs::metadata(home.path().with_file_name("amalgam.db-wal")).unwrap().len() as usize;
    for flushed in [0, length / 5, length / 2, length - 1, length] {
        let after = cut_power(&home, flushed);
        let store = after.open(Options::default());
        runtime.block_on(expect_all(&store, &kept));
        assert_eq!(after.count("responses"), 40);
        assert_eq!(after.count("transcripts"), 10);
        assert_eq!(after.count("stream_events"), 10);
        assert_eq!(redo_bytes(&after), 0, "it was run, and would be run again");
    }
}

#[test]
fn a_change_that_the_redo_log_is_not_for_is_flushed_with_everything_before_it() {
    // S6: the deletion is acknowledged, so that it must be on disk, and no log may bring the response back.
    let home = Home::new();
    let store = home.open(AHEAD);
    let runtime = runtime();
    let (kept, gone) = runtime.block_on(async {
        let (kept, gone) = (Turn::new("kept"), Turn::new("gone"));
        keep(&store, &anna(), kept.whole(None)).await;
        keep(&store, &anna(), gone.whole(None)).await;
        assert!(store.delete_response(&anna(), &gone.id).await.unwrap());
        (kept, gone)
    });
    let after = cut_power(&home, usize::MAX);
    let store = after.open(AHEAD);
    runtime.block_on(async {
        expect_all(&store, &[kept]).await;
        assert_eq!(store.response(&anna(), &gone.id).await.unwrap(), None);
    });
}

#[test]
fn a_step_that_fails_takes_nothing_with_it_that_was_acknowledged() {
    let home = Home::new();
    let store = home.open(AHEAD);
    runtime().block_on(async {
        let mut kept = Vec::new();
        for number in 0..30 {
            let turn = Turn::new(&format!("{number}"));
            keep(&store, &anna(), turn.whole(None)).await;
            kept.push(turn);
            // The same call twice: refused, and everything in its transaction with it.
            let mut broken = Turn::new("broken").whole(None);
            broken.transcripts = vec![call(0), call(0)];
            let outcome = store.write(&anna(), broken.into()).await;
            assert!(matches!(outcome, Err(StoreError::Broken(_))), "{outcome:?}");
        }
        expect_all(&store, &kept).await;
    });
    assert_eq!(home.count("responses"), 30);
}

#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged_ahead() {
    // S16
    let home = Home::new();
    let store = home.open(Options { max_bytes: Some(1 << 20), ..AHEAD });
    runtime().block_on(async {
        let (mut kept, refused) = write_until_full(&store).await;
        expect_all(&store, &kept).await;
        assert_eq!(store.response(&anna(), &refused.id).await.unwrap(), None);
        for turn in kept.drain(..3) {
            assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
        }
        keep(&store, &anna(), refused.whole(None)).await;
        expect_all(&store, &kept).await;
        store.ping().await.unwrap();
    });
}

#[test]
fn whoever_opens_the_file_beside_a_busy_server_reads_and_writes() {
    let home = Home::new();
    let server = home.open(AHEAD);
    let command = home.open(Options::default());
    runtime().block_on(async {
        let busy = Arc::new(AtomicBool::new(true));
        let mut writers = JoinSet::new();
        for _ in 0..4 {
            let (server, busy) = (server.clone(), Arc::clone(&busy));
            writers.spawn(async move {
                let mut last = None;
                while busy.load(Ordering::Relaxed) {
                    let turn = Turn::new("hi");
                    keep(&server, &anna(), turn.whole(None)).await;
                    last = Some(turn);
                }
                last
            });
        }
        for number in 0..10 {
            let turn = say(&command, &anna(), None, &format!("{number}")).await;
            expect_all(&server, &[turn]).await;
        }
        busy.store(false, Ordering::Relaxed);
        let last: Vec<Turn> = writers.join_all().await.into_iter().flatten().collect();
        assert_eq!(last.len(), 4);
        // Whoever reads through the server's own store lets the database catch up.
        expect_all(&server, &last).await;
        expect_all(&command, &last).await;
    });
}

#[test]
fn the_database_follows_by_itself() {
    let home = Home::new();
    let server = home.open(AHEAD);
    runtime().block_on(keep(&server, &anna(), Turn::new("hi").whole(None)));
    for _ in 0..500 {
        if home.count("responses") == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nobody reads, and the database never got it");
}

#[test]
fn an_orderly_end_leaves_everything_in_the_database() {
    let home = Home::new();
    let store = home.open(AHEAD);
    let turn = Turn::new("hi");
    runtime().block_on(keep(&store, &anna(), turn.whole(None)));
    assert!(redo_bytes(&home) > 0);
    drop(store);
    assert_eq!(redo_bytes(&home), 0);
    assert_eq!(home.count("responses"), 1);
}

#[test]
fn a_redo_log_is_for_its_owner_alone_and_in_one_hand() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = Home::new();
    let store = home.open(AHEAD);
    let turn = Turn::new("hi");
    runtime().block_on(keep(&store, &anna(), turn.whole(None)));
    let mode = fs::metadata(home.path().with_file_name("amalgam.db-redo")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Neither runs what is in it, nor writes to it; both do without.
    for options in [AHEAD, Options::default()] {
        let other = home.open(options);
        let second = runtime().block_on(say(&other, &anna(), None, "second"));
        runtime().block_on(expect_all(&store, &[second, turn.clone()]));
    }
}

/// A database as it was and its redo log as it became, with one turn in each that the other lacks.
fn older_database_with_a_later_log() -> (Home, Turn, Turn) {
    let home = Home::new();
    let runtime = runtime();
    let (before, after) = (Turn::new("before"), Turn::new("after"));
    let store = home.open(AHEAD);
    runtime.block_on(keep(&store, &anna(), before.whole(None)));
    drop(store);
    let backup = fs::read(home.path()).unwrap();
    let store = home.open(AHEAD);
    runtime.block_on(async {
        keep(&store, &anna(), Turn::new("settled").whole(None)).await;
        store.ping().await.unwrap();
        keep(&store, &anna(), after.whole(None)).await;
    });
    let log = fs::read(home.path().with_file_name("amalgam.db-redo")).unwrap();
    drop(store);
    let other = Home::new();
    fs::create_dir_all(other.path().parent().unwrap()).unwrap();
    fs::write(other.path(), backup).unwrap();
    fs::write(other.path().with_file_name("amalgam.db-redo"), log).unwrap();
    (other, before, after)
}

#[test]
fn a_log_that_does_not_continue_the_database_is_set_aside() {
    let (home, before, after) = older_database_with_a_later_log();
    let log = fs::read(home.path().with_file_name("amalgam.db-redo")).unwrap();
    let store = home.open(AHEAD);
    runtime().block_on(async {
        expect_all(&store, &[before]).await;
        assert_eq!(store.response(&anna(), &after.id).await.unwrap(), None);
    });
    assert_eq!(fs::read(home.path().with_file_name("amalgam.db-redo.left")).unwrap(), log);
    assert_eq!(redo_bytes(&home), 0);
}

#[test]
fn the_log_of_another_database_is_not_run() {
    let (home, other) = (Home::new(), Home::new());
    let foreign = Turn::new("foreign");
    let store = other.open(AHEAD);
    runtime().block_on(keep(&store, &anna(), foreign.whole(None)));
    drop(home.open(Options::default()));
    fs::copy(other.path().with_file_name("amalgam.db-redo"), home.path().with_file_name("amalgam.db-redo")).unwrap();
    let store = home.open(Options::default());
    runtime().block_on(async {
        assert_eq!(store.response(&anna(), &foreign.id).await.unwrap(), None);
        say(&store, &anna(), None, "own").await;
    });
}

#[test]
fn what_cannot_be_run_again_is_told_and_kept() {
    let home = Home::new();
    let store = home.open(AHEAD);
    fold(&home);
    runtime().block_on(keep(&store, &anna(), Turn::new("hi").whole(None)));
    let after = cut_power(&home, 0);
    // Somebody was at the database.
    after.look().execute("DROP TABLE items", []).unwrap();
    let opened = Sqlite::open(after.path(), Options::default());
    assert!(matches!(opened, Err(OpenError::Database { .. })), "{opened:?}");
    assert!(redo_bytes(&after) > 0);
}

#[test]
fn statements_that_do_something_else_the_second_time_are_told() {
    let home = Home::new();
    let store = home.open(AHEAD);
    fold(&home);
    let turn = Turn::new("hi");
    runtime().block_on(keep(&store, &anna(), turn.whole(None)));
    let after = cut_power(&home, 0);
    // The response is there already, though the database says that it is not.
    let response = "INSERT INTO responses (number, tenant_id, user_id, stem, id, place, status, background, streamed,
        created_at, settings) VALUES (1, 1, 'anna', ?1, ?2, 7, 'completed', 0, 0, 0, '')";
    let stem = amalgam_core::Stem::of(&turn.id).unwrap();
    after.look().execute(response, (stem.as_str(), &turn.id)).unwrap();
    let opened = Sqlite::open(after.path(), Options::default());
    let Err(OpenError::Redo { path, .. }) = opened else { panic!("it was run: {opened:?}") };
    assert_eq!(path, after.path().with_file_name("amalgam.db-redo"));
}

#[test]
fn more_than_the_log_holds_goes_round_and_round() {
    let home = Home::new();
    let store = home.open(AHEAD);
    let kept = runtime().block_on(async {
        let mut racing = JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            racing.spawn(async move {
                let mut kept = Vec::new();
                // Some are too large for the log, and all of them together are several times its size.
                for number in 0..60 {
                    let turn = Turn::new(&"z".repeat(if number % 20 == 7 { 600_000 } else { 30_000 }));
                    keep(&store, &anna(), turn.whole(None)).await;
                    kept.push(turn);
                }
                kept
            });
        }
        racing.join_all().await.into_iter().flatten().collect::<Vec<Turn>>()
    });
    assert!(redo_bytes(&home) <= 8 << 20);
    let after = cut_power(&home, usize::MAX);
    let store = after.open(Options::default());
    runtime().block_on(expect_all(&store, &kept));
}

#[test]
fn steps_are_acknowledged_while_the_database_is_locked_by_a_reader() {
    let home = Home::new();
    let store = home.open(AHEAD);
    let reader = home.look();
    reader.execute_batch("BEGIN; SELECT COUNT(*) FROM responses").unwrap();
    runtime().block_on(async {
        let turn = say(&store, &anna(), None, "hi").await;
        expect_all(&store, &[turn]).await;
    });
}
