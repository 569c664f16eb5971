//! The file: who may read it, what schema it has, who serves from it, what is left in it.

use std::os::unix::fs::PermissionsExt as _;

use amalgam_store::migrate::{MigrationError, MigrationProblem, MigrationStatus, Migrations};
use amalgam_store_sqlite::{LockError, Sqlite, SqliteOpenError, SqliteOptions};

use super::{Home, runtime};
use crate::{contract::sessions::talk, given::*};

#[test]
fn files_are_for_their_owner_alone() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    runtime().block_on(say(&store, &anna(), None, "hi"));
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(home.path().parent().unwrap()), 0o700);
    for name in ["amalgam.db", "amalgam.db-wal", "amalgam.db-shm"] {
        assert_eq!(mode(&home.path().with_file_name(name)), 0o600, "{name}");
    }
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let home = Home::new();
    let runtime = runtime();
    let turn = runtime.block_on(say(&home.open(SqliteOptions::default()), &anna(), None, "hi"));
    let store = home.open(SqliteOptions { migrations: Migrations::Require, ..SqliteOptions::default() });
    assert_eq!(runtime.block_on(line(&store, &anna(), &turn.id)), line_of(&[&turn]));
}

#[test]
fn a_database_that_is_newer_than_the_binary_is_refused_and_left_alone() {
    let home = Home::new();
    drop(home.open(SqliteOptions::default()));
    home.look().execute("INSERT INTO migrations VALUES (999, 'V999__later', '?')", []).unwrap();
    let before = std::fs::read(home.path()).unwrap();
    let Err(SqliteOpenError::Schema { source: MigrationError::Newer { database: 999, binary }, .. }) =
        Sqlite::open(home.path(), SqliteOptions::default())
    else {
        panic!("it was not refused for being newer");
    };
    assert!(binary < 999);
    assert_eq!(std::fs::read(home.path()).unwrap(), before);
    let last = Sqlite::status(home.path()).unwrap().pop();
    assert_eq!(
        last,
        Some(MigrationStatus {
            version: 999,
            name: "V999__later".into(),
            applied: true,
            problem: Some(MigrationProblem::Unknown)
        })
    );
}

#[test]
fn the_status_names_what_is_pending_and_changes_nothing() {
    let home = Home::new();
    let pending = Sqlite::status(home.path()).unwrap();
    assert!(!pending.is_empty() && pending.iter().all(|migration| !migration.applied), "{pending:?}");
    assert!(!home.path().exists());
    let refused =
        Sqlite::open(home.path(), SqliteOptions { migrations: Migrations::Require, ..SqliteOptions::default() });
    let Err(SqliteOpenError::Schema { source: MigrationError::Pending { database: 0, .. }, .. }) = refused else {
        panic!("a database without a schema was taken: {refused:?}");
    };
    drop(home.open(SqliteOptions::default()));
    let done = Sqlite::status(home.path()).unwrap();
    assert!(done.len() == pending.len() && done.iter().all(|migration| migration.applied), "{done:?}");
}

/// Makes responses and items as they were at first: found by the text of a chain and a position.
const BEFORE: &str = "
    CREATE TABLE rows (chain TEXT NOT NULL, position INTEGER NOT NULL, tenant_id INTEGER NOT NULL, user_id TEXT NOT NULL,
        response_id TEXT NOT NULL, parent_chain TEXT, parent_position INTEGER, forgotten INTEGER NOT NULL DEFAULT 0,
        input TEXT NOT NULL, output TEXT, PRIMARY KEY (chain, position)) STRICT, WITHOUT ROWID;
    INSERT INTO rows SELECT first.response_id, items.place & 1048575, items.tenant_id, items.user_id, items.response_id,
        earlier.response_id, items.parent & 1048575, items.forgotten, items.input, items.output
    FROM items JOIN items AS first ON first.place = (items.place >> 20) << 20
        LEFT JOIN items AS earlier ON earlier.place = (items.parent >> 20) << 20;
    ALTER TABLE responses ADD COLUMN chain TEXT NOT NULL DEFAULT '';
    ALTER TABLE responses ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
    UPDATE responses SET (chain, position) = (SELECT chain, position FROM rows WHERE rows.response_id = responses.id);
    ALTER TABLE responses DROP COLUMN place;
    ALTER TABLE responses DROP COLUMN upstream;
    DROP TABLE items;
    ALTER TABLE rows RENAME TO items;
    CREATE INDEX items_of_forks ON items (parent_chain, parent_position) WHERE parent_chain IS NOT NULL;
    DELETE FROM migrations WHERE version >= 2";

#[test]
fn a_database_from_before_there_were_tools_is_brought_up_to_date_with_what_it_holds() {
    let home = Home::new();
    let runtime = runtime();
    let (turn, next, fork, on) = runtime.block_on(async {
        let store = home.open(SqliteOptions::default());
        let turn = say(&store, &anna(), None, "hi").await;
        let next = say(&store, &anna(), Some(&turn), "next").await;
        let fork = say(&store, &anna(), Some(&turn), "fork").await;
        let on = say(&store, &anna(), Some(&fork), "on").await;
        (turn, next, fork, on)
    });
    // Removes what later migrations have added, also from the full-text indexes.
    const TRIGGERS: &str = "DROP TRIGGER webhook_response_updated;";
    let later = "SELECT 'DROP TABLE IF EXISTS ' || name FROM sqlite_schema
        WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT IN ('responses', 'items', 'stream_events',
            'transcripts', 'idempotency', 'conversations', 'conversation_items', 'tenants', 'api_keys', 'processes',
            'memory', 'migrations')
        ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'";
    let later: Vec<String> = {
        let database = home.look();
        let mut later = database.prepare(later).unwrap();
        later.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    home.look().execute_batch(&[TRIGGERS, &later.join(";"), ";", BEFORE].concat()).unwrap();
    let lacking: Vec<_> = Sqlite::status(home.path()).unwrap().into_iter().filter(|known| !known.applied).collect();
    assert_eq!(lacking.first().map(|first| (first.version, first.name.as_str())), Some((2, "V002__tools")));

    let store = home.open(SqliteOptions::default());
    runtime.block_on(async {
        assert_eq!(line(&store, &anna(), &next.id).await, line_of(&[&turn, &next]));
        assert_eq!(line(&store, &anna(), &on.id).await, line_of(&[&turn, &fork, &on]));
        let end = say(&store, &anna(), Some(&on), "end").await;
        assert_eq!(line(&store, &anna(), &end.id).await, line_of(&[&turn, &fork, &on, &end]));
        let alone = say(&store, &anna(), None, "alone").await;
        assert_eq!(line(&store, &anna(), &alone.id).await, line_of(&[&alone]));
        assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
        assert_eq!(line(&store, &anna(), &next.id).await, line_of(&[&turn, &next]));
        let asked = ask(&store, asked(&turn, "mcpr_1")).await;
        assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(asked));
        talk(&store, &anna(), None, HERE, "hi").await;
    });
}

#[test]
fn a_run_that_is_full_is_continued_in_another() {
    let home = Home::new();
    let runtime = runtime();
    let full = runtime.block_on(say(&home.open(SqliteOptions::default()), &anna(), None, "full"));
    // Its items move to the last place of their run; the first one belongs to another response.
    let moved = "UPDATE items SET place = (2 << 20) - 1; UPDATE responses SET place = (2 << 20) - 1;
        INSERT INTO items (place, tenant_id, user_id, response_id, input) VALUES (1 << 20, 1, 'anna', 'resp_first', '[]')";
    home.look().execute_batch(moved).unwrap();
    let store = home.open(SqliteOptions::default());
    runtime.block_on(async {
        let next = say(&store, &anna(), Some(&full), "next").await;
        let on = say(&store, &anna(), Some(&next), "on").await;
        let told = line(&store, &anna(), &on.id).await;
        assert_eq!(told.get(1..), Some(&line_of(&[&full, &next, &on])[..]));
    });
    let place = "SELECT place FROM responses ORDER BY number LIMIT 1 OFFSET 1";
    let place: i64 = home.look().query_row(place, [], |row| row.get(0)).unwrap();
    assert_eq!(place, 2 << 20);
}

#[test]
fn many_processes_may_open_a_new_database_at_once() {
    let home = Home::new();
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..6).map(|_| scope.spawn(|| home.open(SqliteOptions::default()))).collect();
        let stores: Vec<Engine> = opening.into_iter().map(|thread| thread.join().unwrap()).collect();
        let runtime = runtime();
        let turn = runtime.block_on(say(&stores[0], &anna(), None, "hi"));
        for store in &stores {
            assert_eq!(runtime.block_on(line(store, &anna(), &turn.id)), line_of(&[&turn]));
        }
    });
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().parent().unwrap()).unwrap();
    std::fs::write(home.path(), "this is a text of mine, and not a database at all".repeat(100)).unwrap();
    assert!(matches!(Sqlite::open(home.path(), SqliteOptions::default()), Err(SqliteOpenError::Database { .. })));
    assert!(std::fs::read_to_string(home.path()).unwrap().starts_with("this is a text of mine"));
}

#[test]
fn one_server_at_a_time_serves_from_a_database() {
    let home = Home::new();
    let open = || Sqlite::open(home.path(), SqliteOptions::default()).unwrap();
    let (first, second) = (open(), open());
    first.lock_for_serving().unwrap();
    first.lock_for_serving().unwrap();
    assert!(matches!(second.lock_for_serving(), Err(LockError::Taken { .. })));
    drop(first);
    second.lock_for_serving().unwrap();
}

#[test]
fn items_are_deleted_with_the_last_response_that_builds_on_them() {
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    runtime().block_on(async {
        let a = say(&store, &anna(), None, "a").await;
        let b = say(&store, &anna(), Some(&a), "b").await;
        let c = say(&store, &anna(), Some(&b), "c").await;
        let fork = say(&store, &anna(), Some(&b), "fork").await;
        let on = say(&store, &anna(), Some(&fork), "on").await;
        let delete = async |turn: &Turn| assert!(store.delete_response(&anna(), &turn.id).await.unwrap());
        let mut left = Vec::new();
        for turn in [&b, &a, &c, &fork] {
            delete(turn).await;
            left.push((home.count("responses"), home.count("items WHERE input <> '[]'")));
        }
        // Only `c` was at the end of its line; everything else is below `on`.
        assert_eq!(left, [(4, 5), (3, 5), (2, 4), (1, 4)]);
        delete(&on).await;
        assert_eq!((home.count("responses"), home.count("items")), (0, 0));
    });
}

#[test]
fn calls_are_deleted_with_the_last_response_that_builds_on_them() {
    use amalgam_core::store::{Base, Transcript, TurnWrite};
    let home = Home::new();
    let store = home.open(SqliteOptions::default());
    runtime().block_on(async {
        let mut turns: Vec<Turn> = Vec::new();
        for number in 0..4 {
            let turn = Turn::new("hi");
            let base = turns.last().map(|last| Base { response_id: last.id.clone(), number: 1, shared: 1 });
            let own = Some(Base { response_id: turn.id.clone(), number: 0, shared: 1 });
            let calls = vec![Transcript { base, ..call(0) }, Transcript { base: own, ..call(1) }];
            let parent = match turns.last() {
                Some(last) => Some(place(&store, &anna(), &last.id).await),
                None => None,
            };
            keep(&store, &anna(), TurnWrite { transcripts: calls, ..turn.whole(parent) }).await;
            assert_eq!(home.count("transcripts"), 2 * (number + 1));
            turns.push(turn);
        }
        let mut left = Vec::new();
        for gone in [0, 2, 3, 1] {
            assert!(store.delete_response(&anna(), &turns[gone].id).await.unwrap());
            left.push(home.count("transcripts"));
        }
        assert_eq!(left, [8, 8, 4, 0]);
    });
}
