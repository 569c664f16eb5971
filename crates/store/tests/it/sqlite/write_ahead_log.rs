//! What is acknowledged is in the database and its write-ahead log, for every reader and every copy; and the log stays
//! short.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::StoreError;
use amalgam_store_sqlite::SqliteOptions;
use rusqlite::{Connection, backup::Backup};
use tokio::task::JoinSet;
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::{Home, runtime};
use crate::given::*;

async fn expect_all(store: &Engine, turns: &[Turn]) {
    for turn in turns {
        assert_eq!(line(store, &anna(), &turn.id).await.last(), line_of(&[turn]).last(), "{} is not there", turn.id);
    }
}

/// Several kinds of writes: in steps with a stream and a call, behind another turn, and at once.
async fn write_turns(store: &Engine, count: usize) -> Vec<Turn> {
    let mut kept: Vec<Turn> = Vec::new();
    for number in 0..count {
        let turn = Turn::new(&format!("{number} {}", "x".repeat(3000)));
        match (number % 4, kept.last()) {
            (0, _) => {
                keep(store, &anna(), turn.beginning(turn.begin())).await;
                keep(store, &anna(), turn.saying(0, 3, "frames")).await;
                let mut end = turn.ending();
                end.transcripts = vec![call(0)];
                keep(store, &anna(), end).await;
            }
            (1, Some(last)) => {
                let parent = place(store, &anna(), &last.id).await;
                keep(store, &anna(), turn.whole(Some(parent))).await;
            }
            _ => keep(store, &anna(), turn.whole(None)).await,
        }
        kept.push(turn);
    }
    kept
}

#[test]
fn other_connections_see_every_acknowledged_turn_at_once() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let other = home.look();
    runtime().block_on(async {
        for number in 1..=50 {
            say(&store, &anna(), None, "hi").await;
            let seen: i64 = other.query_row("SELECT COUNT(*) FROM responses", [], |row| row.get(0)).unwrap();
            assert_eq!(seen, number);
        }
    });
}

#[test]
fn backups_of_every_kind_have_every_acknowledged_turn() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let runtime = runtime();
    let kept = runtime.block_on(write_turns(&store, 40));

    let vacuumed = Home::new();
    fs::create_dir_all(vacuumed.path().parent().unwrap()).unwrap();
    home.look().execute("VACUUM INTO ?1", [vacuumed.path().to_str().unwrap()]).unwrap();

    // What `.backup` of the SQLite shell does.
    let backed_up = Home::new();
    fs::create_dir_all(backed_up.path().parent().unwrap()).unwrap();
    let mut target = Connection::open(backed_up.path()).unwrap();
    let source = home.look();
    Backup::new(&source, &mut target).unwrap().run_to_completion(100, Duration::ZERO, None).unwrap();
    drop(target);

    // The two files, as after a crash; the index of the log is not needed.
    let copied = home.copy_files();
    for (copy, kind) in [(vacuumed, "VACUUM INTO"), (backed_up, ".backup"), (copied, "copies of the files")] {
        runtime.block_on(expect_all(&copy.open(SqliteOptions::default()), &kept));
        let counts = ["responses", "transcripts", "stream_events"].map(|table| copy.count(table));
        assert_eq!(counts, [40, 10, 10], "{kind}");
    }
}

#[test]
fn what_was_acknowledged_survives_whatever_follows_it_in_the_log() {
    // P1, S6: at a power cut the log has every flushed commit, and then perhaps some of what was not flushed.
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let runtime = runtime();
    let wal = home.path().with_file_name("amalgam.db-wal");
    let before = fs::read(&wal).unwrap().len();
    let kept = runtime.block_on(write_turns(&store, 20));
    let flushed = fs::read(&wal).unwrap().len();
    assert!(flushed > before);
    runtime.block_on(say(&store, &anna(), None, "in doubt"));
    let written = fs::read(&wal).unwrap().len();
    assert!(written > flushed);
    for length in [flushed, flushed + 10, flushed.midpoint(written), written - 1, written] {
        let after = home.copy_files();
        let wal = after.path().with_file_name("amalgam.db-wal");
        fs::OpenOptions::new().write(true).open(wal).unwrap().set_len(length as u64).unwrap();
        runtime.block_on(expect_all(&after.open(SqliteOptions::default()), &kept));
        assert_eq!(after.count("responses"), if length == written { 21 } else { 20 });
    }
}

#[test]
fn an_orderly_end_leaves_everything_in_the_database_file() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let kept = runtime().block_on(write_turns(&store, 8));
    drop(store);
    let mut files: Vec<_> =
        home.path().parent().unwrap().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["amalgam.db"]);
    runtime().block_on(expect_all(&home.open(SqliteOptions::default()), &kept));
}

#[test]
fn a_step_that_fails_takes_nothing_with_it_that_was_acknowledged() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
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
fn a_command_reads_and_writes_beside_a_busy_server() {
    let home = Home::new();
    let server = home.open(SqliteOptions::default());
    let command = home.open(SqliteOptions::default());
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
        expect_all(&command, &last).await;
    });
}

#[test]
fn turns_are_acknowledged_while_another_process_reads() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let reader = home.look();
    reader.execute_batch("BEGIN; SELECT COUNT(*) FROM responses").unwrap();
    runtime().block_on(async {
        let turn = say(&store, &anna(), None, "hi").await;
        expect_all(&store, &[turn]).await;
    });
}

#[test]
fn the_log_is_cut_again_when_a_reader_of_another_process_has_left() {
    const KEPT: u64 = 33 << 20;
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let length = || home.path().with_file_name("amalgam.db-wal").metadata().unwrap().len();
    let runtime = runtime();
    let write = |count: usize| {
        runtime.block_on(async {
            for _ in 0..count {
                say(&store, &anna(), None, &"z".repeat(500_000)).await;
            }
        });
    };
    let reader = home.look();
    reader.execute_batch("BEGIN; SELECT COUNT(*) FROM responses").unwrap();
    write(50);
    assert!(length() > KEPT, "the reader needs what it began with");
    reader.execute_batch("COMMIT").unwrap();
    write(20);
    assert!(length() <= KEPT, "{}", length());
    assert_eq!(home.count("responses"), 70);
}

/// Counts warnings about checkpoints.
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().ends_with("sqlite::checkpoint")
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[test]
fn the_log_stays_short_and_no_warning_is_logged_under_sustained_writes_and_reads() {
    const BOUND: u64 = 64 << 20;
    let warnings = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::set_global_default(Warnings(Arc::clone(&warnings))).unwrap();
    let home = Home::new();
    let store = home.open(SqliteOptions { readers: 8, ..SqliteOptions::default() });
    let log = home.path().with_file_name("amalgam.db-wal");
    let (written, longest) = runtime().block_on(async {
        let known = say(&store, &anna(), None, &"k".repeat(200_000)).await;
        let busy = Arc::new(AtomicBool::new(true));
        // More readers than processors, so that there is hardly a moment without one.
        let mut readers = JoinSet::new();
        for _ in 0..12 {
            let (store, busy, known) = (store.clone(), Arc::clone(&busy), known.clone());
            readers.spawn(async move {
                while busy.load(Ordering::Relaxed) {
                    assert!(store.lineage(&anna(), &known.id).await.unwrap().is_some());
                }
            });
        }
        let longest = Arc::new(AtomicU64::new(0));
        let watcher = {
            let (busy, longest) = (Arc::clone(&busy), Arc::clone(&longest));
            tokio::task::spawn_blocking(move || {
                while busy.load(Ordering::Relaxed) {
                    longest.fetch_max(log.metadata().unwrap().len(), Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        };
        // About 320 MiB go through the log.
        let mut writers = JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            writers.spawn(async move {
                for _ in 0..40 {
                    let turn = Turn::new(&"z".repeat(500_000));
                    keep(&store, &anna(), turn.whole(None)).await;
                    assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
                }
                40 * 1_000_000
            });
        }
        let written: u64 = writers.join_all().await.into_iter().sum();
        busy.store(false, Ordering::Relaxed);
        readers.join_all().await;
        watcher.await.unwrap();
        (written, longest.load(Ordering::Relaxed))
    });
    assert!(written > 4 * BOUND);
    assert!(longest < BOUND, "the log had {longest} bytes");
    assert_eq!(warnings.load(Ordering::Relaxed), 0);
}
