//! What happens when the disk is full, the file is locked, the queue is full, or the caller has disconnected.

use std::{
    task::{Context, Poll, Waker},
    time::Duration,
};

use amalgam_core::{StoreError, store::WriteOutcome};
use amalgam_store_sqlite::SqliteOptions;
use rusqlite::TransactionBehavior;

use super::{Home, runtime};
use crate::given::*;

#[test]
fn a_full_disk_refuses_whole_writes_and_recovers() {
    // S16
    let home = Home::new();
    let store = home.open(SqliteOptions { max_bytes: Some(3 << 19), ..SqliteOptions::default() });
    runtime().block_on(async {
        let (mut kept, refused) = write_until_full(&store).await;
        // Nothing of it is there, everything acknowledged is, and reads go on.
        assert_eq!(store.response(&anna(), &refused.id).await.unwrap(), None);
        assert_eq!(home.count("responses"), kept.len() as i64);
        assert_eq!(home.count("items"), kept.len() as i64);
        for turn in &kept {
            assert_eq!(line(&store, &anna(), &turn.id).await, line_of(&[turn]));
        }
        // As soon as the disk has space, writes succeed without a restart.
        for turn in kept.drain(..3) {
            assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
        }
        keep(&store, &anna(), refused.whole(None)).await;
        store.ping().await.unwrap();
    });
}

/// Writes turns until the disk is full. Returns those that were written, and the one that was not.
pub(super) async fn write_until_full(store: &Engine) -> (Vec<Turn>, Turn) {
    let mut kept = Vec::new();
    loop {
        let turn = Turn::new(&"x".repeat(20_000));
        match store.write(&anna(), turn.whole(None).into()).await {
            Ok(written) => {
                assert_eq!(written, WriteOutcome::Kept);
                kept.push(turn);
            }
            Err(error) => {
                assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("full")), "{error:?}");
                assert!(kept.len() > 5);
                return (kept, turn);
            }
        }
    }
}

#[test]
fn a_write_that_cannot_be_does_not_harm_those_beside_it() {
    let home = Home::new();
    let store = home.open(SqliteOptions { max_bytes: Some(2 << 20), ..SqliteOptions::default() });
    runtime().block_on(async {
        // A group forms while the file is locked: a call is in the queue as soon as it is made, and all of them are
        // made before the lock is released.
        let anna = anna();
        let mut other = home.look();
        let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let turns: Vec<Turn> = (0..40).map(|number| Turn::new(&format!("{number}"))).collect();
        let mut writes = Vec::new();
        for (number, turn) in turns.iter().enumerate() {
            let mut write = turn.whole(None);
            match number % 10 {
                // The same call twice, and a text that is larger than the whole file may be.
                3 => write.transcripts = vec![call(0), call(0)],
                7 => write.begin.as_mut().unwrap().input = Turn::new(&"y".repeat(3 << 20)).input,
                _ => {}
            }
            writes.push(store.write(&anna, write.into()));
        }
        lock.rollback().unwrap();
        for (number, write) in writes.into_iter().enumerate() {
            let outcome = write.await;
            let there = store.response(&anna, &turns[number].id).await.unwrap().is_some();
            match number % 10 {
                3 => assert!(matches!(outcome, Err(StoreError::Broken(_))) && !there, "{number}: {outcome:?}"),
                7 => assert!(matches!(outcome, Err(StoreError::Unavailable(_))) && !there, "{number}: {outcome:?}"),
                _ => assert!(matches!(outcome, Ok(WriteOutcome::Kept)) && there, "{number}: {outcome:?}"),
            }
        }
        assert_eq!(home.count("transcripts"), 0);
        assert_eq!(home.count("items"), 32);
    });
}

#[test]
fn a_lock_of_another_process_passes() {
    let home = Home::new();
    let store = home.open(SqliteOptions { queue: 4, ..SqliteOptions::default() });
    runtime().block_on(async {
        let anna = anna();
        let first = say(&store, &anna, None, "hi").await;
        let mut other = home.look();
        let lock = other.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let held_up = Turn::new("held up");
        let mut waiting = store.write(&anna, held_up.whole(None).into());
        let mut refused = 0;
        // The queue has a bound: a job for a full queue gets an error at once. S16. Four wait, and the writer has
        // taken at most as many, one of which is not of these.
        let mut behind = Vec::new();
        for _ in 0..10 {
            let mut write = store.write(&anna, Turn::new("behind").whole(None).into());
            match write.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Err(StoreError::Busy)) => refused += 1,
                Poll::Ready(other) => panic!("{other:?}"),
                Poll::Pending => behind.push(write),
            }
        }
        assert!(refused >= 3, "{refused} refused");
        // Reads do not wait for writers.
        assert_eq!(line(&store, &anna, &first.id).await, line_of(&[&first]));

        let Err(StoreError::Unavailable(why)) = waiting.as_mut().await else { panic!("it was written past a lock") };
        assert!(why.contains("locked"), "{why}");
        drop(behind);
        lock.rollback().unwrap();
        drop(other);
        let mut tries = 0;
        while let Err(error) = store.write(&anna, held_up.whole(None).into()).await {
            // What was queued behind the lock may still be in the way.
            assert!(matches!(error, StoreError::Busy | StoreError::Unavailable(_)), "{error}");
            tries += 1;
            assert!(tries < 1000);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(line(&store, &anna, &held_up.id).await, line_of(&[&held_up]));
    });
}

#[test]
fn a_caller_that_disconnects_undoes_no_write() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    runtime().block_on(async {
        let anna = anna();
        let left: Vec<Turn> = (0..50).map(|number| Turn::new(&format!("{number}"))).collect();
        for turn in &left {
            let mut write = store.write(&anna, turn.whole(None).into());
            let _ = write.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            drop(write);
            drop(store.response(&anna, &turn.id));
        }
        // The queue is in order: behind this one all of them are done.
        let last = say(&store, &anna, None, "last").await;
        assert_eq!(line(&store, &anna, &last.id).await, line_of(&[&last]));
        for turn in &left {
            assert_eq!(line(&store, &anna, &turn.id).await, line_of(&[turn]));
        }
    });
}

#[test]
fn a_damaged_file_is_told_and_never_answered_from() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    let runtime = runtime();
    let turn = runtime.block_on(say(&store, &anna(), None, "hi"));
    home.look().execute("UPDATE responses SET status = 'odd'", []).unwrap();
    let outcome = runtime.block_on(store.response(&anna(), &turn.id));
    assert!(matches!(&outcome, Err(StoreError::Broken(why)) if why.contains("odd")), "{outcome:?}");
    home.look().execute("UPDATE responses SET status = 'completed'", []).unwrap();
    assert!(runtime.block_on(store.response(&anna(), &turn.id)).unwrap().is_some());
}
