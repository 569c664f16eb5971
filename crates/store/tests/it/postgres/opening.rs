//! Opening a database: migrations, refusals, warnings, and what messages never contain.

use amalgam_core::Store as _;
use amalgam_store::migrate::{MigrationProblem, MigrationStatus, Migrations};
use amalgam_store_postgres::{Postgres, PostgresOpenError, PostgresOptions};

use super::given::{Fresh, runtime};
use crate::{
    contract::sessions::talk,
    given::{HERE, anna, ask, asked, line, line_of, say},
};

fn full(error: &PostgresOpenError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn processes_that_start_together_migrate_once() {
    let database = Fresh::make();
    runtime().block_on(async {
        let mut starting = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let url = database.url().to_owned();
            starting.spawn(async move { Postgres::open(&url, PostgresOptions::default()).await.map(drop) });
        }
        for started in starting.join_all().await {
            started.unwrap();
        }
        let status = Postgres::status(database.url(), &PostgresOptions::default()).await.unwrap();
        assert!(!status.is_empty() && status.iter().all(|migration| migration.applied), "{status:?}");
        let aside = database.aside().await;
        assert_eq!(aside.count("SELECT count(*) FROM amalgam_migrations").await, status.len() as i64);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_database_without_tables_is_told_and_left_alone() {
    let database = Fresh::make();
    runtime().block_on(async {
        let status = Postgres::status(database.url(), &PostgresOptions::default()).await.unwrap();
        assert!(!status.is_empty() && status.iter().all(|migration| !migration.applied), "{status:?}");
        let require = PostgresOptions { migrations: Migrations::Require, ..PostgresOptions::default() };
        let error = Postgres::open(database.url(), require).await.err().unwrap();
        assert!(full(&error).contains("run `amalgam migrate`"), "{}", full(&error));
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'";
        assert_eq!(database.aside().await.count(tables).await, 0);
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_database_from_before_there_were_tools_is_brought_up_to_date_with_what_it_holds() {
    let database = Fresh::make();
    runtime().block_on(async {
        let turn = say(&database.store().await, &anna(), None, "hi").await;
        // Removes what later migrations have added.
        let before = "DO $$ DECLARE later name; BEGIN
                FOR later IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT IN ('responses',
                    'items', 'stream_events', 'transcripts', 'idempotency', 'conversations', 'conversation_items',
                    'tenants', 'api_keys', 'processes', 'memory', 'amalgam_migrations')
                LOOP EXECUTE format('DROP TABLE %I CASCADE', later); END LOOP;
            END $$;
            DROP TRIGGER webhook_response_updated ON responses;
            DROP TRIGGER webhook_response_added ON responses;
            ALTER TABLE responses DROP COLUMN upstream, DROP COLUMN raw_answer, DROP COLUMN provenance;
            DELETE FROM amalgam_migrations WHERE version >= 2";
        database.aside().await.run(before).await;
        let status = Postgres::status(database.url(), &PostgresOptions::default()).await.unwrap();
        let lacking = status.iter().find(|known| !known.applied).map(|first| (first.version, first.name.as_str()));
        assert_eq!(lacking, Some((2, "V002__tools")));

        let store = database.store().await;
        assert_eq!(line(&store, &anna(), &turn.id).await, line_of(&[&turn]));
        let asked = ask(&store, asked(&turn, "mcpr_1")).await;
        assert_eq!(store.approval(&anna(), "mcpr_1").await.unwrap(), Some(asked));
        talk(&store, &anna(), None, HERE, "hi").await;
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_newer_database_is_refused_with_both_versions() {
    let database = Fresh::make();
    runtime().block_on(async {
        drop(database.store().await);
        let later = "INSERT INTO amalgam_migrations (version, name, checksum) VALUES (999, 'V999__later', 'x')";
        database.aside().await.run(later).await;
        let error = Postgres::open(database.url(), PostgresOptions::default()).await.err().unwrap();
        assert!(full(&error).contains("999, this binary knows only"), "{}", full(&error));
        let status = Postgres::status(database.url(), &PostgresOptions::default()).await.unwrap();
        let newest = MigrationStatus {
            version: 999,
            name: "V999__later".into(),
            applied: true,
            problem: Some(MigrationProblem::Unknown),
        };
        assert_eq!(status.last(), Some(&newest));
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_server_that_does_not_flush_is_warned_of() {
    // S6: the server of the tests runs without fsync.
    let database = Fresh::make();
    runtime().block_on(async {
        let aside = database.aside().await;
        let fsync: String = aside.client.query_one("SHOW fsync", &[]).await.unwrap().get(0);
        let store = Postgres::open(database.url(), PostgresOptions::default()).await.unwrap();
        let warned = |store: &Postgres, name: &str| store.warnings().iter().any(|warning| warning.contains(name));
        assert_eq!(warned(&store, "fsync = off"), fsync == "off");
        assert!(!warned(&store, "synchronous_commit"), "{:?}", store.warnings());

        let name: String = aside.client.query_one("SELECT current_database()", &[]).await.unwrap().get(0);
        aside.run(&format!("ALTER DATABASE {name} SET synchronous_commit = off")).await;
        let store = Postgres::open(database.url(), PostgresOptions::default()).await.unwrap();
        assert!(warned(&store, "synchronous_commit = off"), "{:?}", store.warnings());
        store.ping().await.unwrap();
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_wrong_password_is_refused_and_not_repeated() {
    // P12
    let database = Fresh::make();
    runtime().block_on(async {
        let (_, rest) = database.url().split_once('@').unwrap();
        let url = format!("postgres://amalgam:s3cret-p4ss@{rest}");
        let error = Postgres::open(&url, PostgresOptions::default()).await.err().unwrap();
        let text = format!("{} {error:?}", full(&error));
        assert!(text.contains("password authentication failed"), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    });
}

#[test]
#[ignore = "needs a server: scripts/postgres.sh run scripts/rust-tests.sh"]
fn a_server_that_is_not_there_is_refused_at_once_and_not_waited_for() {
    runtime().block_on(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let begun = std::time::Instant::now();
        let url = format!("postgres://ann:s3cret@127.0.0.1:{port}/x");
        // A server that listens and never answers.
        let error = Postgres::open(&url, PostgresOptions::default()).await.err().unwrap();
        assert!(full(&error).contains("does not answer"), "{}", full(&error));
        drop(listener);
        let error = Postgres::open(&url, PostgresOptions::default()).await.err().unwrap();
        assert!(full(&error).contains("refused") && !full(&error).contains("s3cret"), "{}", full(&error));
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    });
}
