//! S6, P1: what was acknowledged is there after `kill -9`, whole and readable.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use tokio::task::JoinSet;

use super::{Home, runtime};
use crate::given::*;

const DATABASE: &str = "AMALGAM_TEST_KILLED_DATABASE";
const ROUNDS: usize = 5;

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let home = Home::new();
    drop(home.open(SqliteOptions::default()));
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sqlite::crash::writes_until_it_is_killed", "--ignored", "--nocapture"])
            .env(DATABASE, home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let before = acknowledged.len();
        // Killed at another moment each time, with eight turns under way.
        while acknowledged.len() < before + 40 + round * 7 {
            let line = lines.next().expect("the child writes until it is killed").unwrap();
            acknowledged.extend(line.strip_prefix("kept ").map(str::to_owned));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // What the child said before it died counts, too; a line that was cut does not.
        acknowledged.extend(lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("kept ").filter(|id| amalgam_core::Stem::of(id).is_some()).map(str::to_owned)
        }));

        let store = home.open(SqliteOptions::default());
        runtime().block_on(async {
            for id in &acknowledged {
                let lineage = store.lineage(&anna(), id).await.unwrap();
                let turns = lineage.unwrap_or_else(|| panic!("{id} was acknowledged and is not there")).turns;
                assert!(turns.iter().all(|turn| turn.output.raw().elements().count() == 1), "{id} is not whole");
            }
        });
        let sound: String = home.look().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
        assert_eq!(home.count("responses"), home.count("items"), "heads and items belong together");
    }
    assert!(acknowledged.len() >= ROUNDS * 40);
}

/// Run by the test above, in a process that is killed: eight chains, an acknowledgement on each line.
#[test]
#[ignore = "run by the test above"]
fn writes_until_it_is_killed() {
    #[expect(clippy::disallowed_methods, reason = "the test above says where the database is")]
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let store: Engine = Arc::new(Sqlite::open(path, SqliteOptions::default()).unwrap());
    let output = Arc::new(Mutex::new(std::io::stdout()));
    runtime().block_on(async {
        let mut writers = JoinSet::new();
        for _ in 0..8 {
            let (store, output) = (store.clone(), Arc::clone(&output));
            writers.spawn(async move {
                let mut last = say(&store, &anna(), None, "first").await;
                for number in 0..10_000 {
                    let next = say(&store, &anna(), Some(&last), &format!("{number} {}", "x".repeat(3000))).await;
                    writeln!(output.lock().unwrap(), "kept {}", next.id).unwrap();
                    last = next;
                }
            });
        }
        writers.join_all().await;
    });
}
