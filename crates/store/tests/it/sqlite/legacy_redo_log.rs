//! The redo log of an older server: applied once, then removed; refused if a part of it is missing.
//!
//! The fixture was written by the last version that had such a log; its `README.md` describes how.

use std::{error::Error as _, fs, fs::OpenOptions, io::Write as _, path::PathBuf, thread};

use amalgam_store_sqlite::{MigrationBackup, RedoLogError, Sqlite, SqliteOpenError, SqliteOptions};

use super::{Home, runtime};
use crate::given::*;

const BLOCK_BYTES: usize = 4096;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/redo_log").join(name)
}

/// A database and its log, as the crash of an older server left them.
fn crashed() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    fs::copy(fixture("amalgam.db"), home.path()).unwrap();
    fs::copy(fixture("amalgam.db-redo"), log(&home)).unwrap();
    home
}

fn log(home: &Home) -> PathBuf {
    home.path().with_file_name("amalgam.db-redo")
}

/// The ids of the responses in the database (`database`), or of those only in the log (`log`).
fn responses(place: &str) -> Vec<String> {
    let list = fs::read_to_string(fixture("responses.txt")).unwrap();
    list.lines().filter_map(|line| line.strip_prefix(place)?.strip_prefix(' ')).map(str::to_owned).collect()
}

async fn are_whole(store: &Engine, ids: &[String]) -> Vec<bool> {
    let mut all = Vec::new();
    for id in ids {
        let lineage = store.lineage(&anna(), id).await.unwrap();
        all.push(
            lineage.is_some_and(|lineage| lineage.turns.iter().all(|turn| turn.output.raw().elements().count() == 1)),
        );
    }
    all
}

/// Changes the log, opens the database, and expects to be refused with the log left as it is.
fn refused(home: &Home, change: impl FnOnce(&mut Vec<u8>)) -> RedoLogError {
    let mut bytes = fs::read(log(home)).unwrap();
    change(&mut bytes);
    fs::write(log(home), &bytes).unwrap();
    let opened = Sqlite::open(home.path(), SqliteOptions::default());
    let Err(SqliteOpenError::RedoLog { path, source }) = opened else { panic!("it was opened: {opened:?}") };
    assert_eq!(path, log(home));
    assert_eq!(fs::read(log(home)).unwrap(), bytes, "the log was changed");
    assert_eq!(home.count("responses"), responses("database").len() as i64, "a part was applied");
    source
}

#[test]
fn a_redo_log_of_an_older_server_is_applied_once_and_removed() {
    let home = crashed();
    let (settled, late) = (responses("database"), responses("log"));
    assert_eq!((settled.len(), late.len()), (11, 6));
    let runtime = runtime();
    for round in 0..3 {
        let store = home.open(SqliteOptions::default());
        assert!(!log(&home).exists(), "round {round}");
        let all = [&settled[..], &late].concat();
        assert_eq!(runtime.block_on(are_whole(&store, &all)), [true; 17], "round {round}");
        assert_eq!((home.count("responses"), home.count("transcripts"), home.count("stream_events")), (17, 1, 1));
    }
    // It is not made again by what is written later.
    let store = home.open(SqliteOptions::default());
    runtime.block_on(say(&store, &anna(), None, "hi"));
    assert!(!log(&home).exists());
}

#[test]
fn what_the_log_had_is_in_the_database_and_its_write_ahead_log_before_the_log_is_removed() {
    let home = crashed();
    let store = home.open(SqliteOptions::default());
    let after = home.copy_files();
    drop(store);
    assert_eq!(runtime().block_on(are_whole(&after.open(SqliteOptions::default()), &responses("log"))), [true; 6]);
}

#[test]
fn a_log_that_the_database_has_already_is_removed() {
    let home = crashed();
    drop(home.open(SqliteOptions::default()));
    fs::copy(fixture("amalgam.db-redo"), log(&home)).unwrap();
    let store = home.open(SqliteOptions::default());
    assert!(!log(&home).exists());
    assert_eq!(home.count("responses"), 17);
    runtime().block_on(say(&store, &anna(), None, "hi"));
}

#[test]
fn an_empty_log_is_removed() {
    // After an orderly end of an older server.
    let home = crashed();
    fs::write(log(&home), "").unwrap();
    drop(home.open(SqliteOptions::default()));
    assert!(!log(&home).exists());
    assert_eq!(home.count("responses"), 11);
}

#[test]
fn processes_that_start_at_once_apply_a_log_once() {
    let home = crashed();
    thread::scope(|scope| {
        let opening: Vec<_> = (0..4).map(|_| scope.spawn(|| home.open(SqliteOptions::default()))).collect();
        for store in opening {
            let store = store.join().unwrap();
            assert_eq!(runtime().block_on(are_whole(&store, &responses("log"))), [true; 6]);
        }
    });
    assert_eq!(home.count("responses"), 17);
}

#[test]
fn a_log_that_an_older_server_uses_is_left_alone() {
    let home = crashed();
    let held = OpenOptions::new().write(true).open(log(&home)).unwrap();
    held.lock().unwrap();
    // A copy before the migration would lack the turns of the log, and is refused.
    let store = home.open(SqliteOptions { migration_backup: MigrationBackup::Skip, ..SqliteOptions::default() });
    assert!(log(&home).exists());
    assert_eq!(runtime().block_on(are_whole(&store, &responses("database"))), [true; 11]);
}

#[test]
fn a_damaged_batch_keeps_the_store_from_opening_and_says_what_to_do() {
    // The log has one block for each batch. In the middle, and the last one.
    for block in [3, 7] {
        let home = crashed();
        let error = refused(&home, |log| log[block * BLOCK_BYTES + 700] ^= 1);
        assert!(matches!(error, RedoLogError::Damaged { .. }), "{error:?}");
        assert!(error.to_string().contains("restore the file from a copy, or move it away"), "{error}");
        // The first advice helps.
        fs::copy(fixture("amalgam.db-redo"), log(&home)).unwrap();
        drop(home.open(SqliteOptions::default()));
        assert_eq!(home.count("responses"), 17);
    }
    // And so does the second.
    let home = crashed();
    refused(&home, |log| log[3 * BLOCK_BYTES..4 * BLOCK_BYTES].fill(0));
    fs::rename(log(&home), home.path().with_file_name("moved")).unwrap();
    assert_eq!(runtime().block_on(are_whole(&home.open(SqliteOptions::default()), &responses("database"))), [true; 11]);
}

#[test]
fn a_last_batch_that_was_not_written_in_full_was_not_acknowledged() {
    let home = crashed();
    let bytes = fs::read(log(&home)).unwrap();
    let torn = &bytes[..7 * BLOCK_BYTES + 100];
    OpenOptions::new().write(true).truncate(true).open(log(&home)).unwrap().write_all(torn).unwrap();
    let store = home.open(SqliteOptions::default());
    let late = runtime().block_on(are_whole(&store, &responses("log")));
    assert_eq!(late, [true, true, true, true, true, false]);
    assert!(!log(&home).exists());
}

#[test]
fn a_log_that_does_not_continue_the_database_is_refused() {
    // A backup was put back: the database is older than the log begins.
    let home = crashed();
    home.look().execute("UPDATE redo SET applied = applied - 2", []).unwrap();
    let error = refused(&home, |_| {});
    assert!(matches!(error, RedoLogError::Gap { .. }), "{error:?}");
    assert!(error.to_string().contains("move the log away"), "{error}");
}

#[test]
fn the_log_of_another_database_is_refused() {
    let home = crashed();
    home.look().execute("UPDATE redo SET identity = 0", []).unwrap();
    assert!(matches!(refused(&home, |_| {}), RedoLogError::Foreign));
    // Nor does it belong to a database that was just made.
    let home = Home::new();
    fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    fs::copy(fixture("amalgam.db-redo"), log(&home)).unwrap();
    let opened = Sqlite::open(home.path(), SqliteOptions::default());
    assert!(matches!(&opened, Err(SqliteOpenError::RedoLog { source: RedoLogError::Foreign, .. })), "{opened:?}");
}

#[test]
fn a_log_that_does_not_fit_the_tables_is_refused() {
    let home = crashed();
    home.look().execute("ALTER TABLE items RENAME TO things", []).unwrap();
    let error = refused(&home, |_| {});
    assert!(matches!(error, RedoLogError::DoesNotFit { .. }), "{error:?}");
    assert!(error.source().unwrap().to_string().contains("items"), "{error:?}");
}
