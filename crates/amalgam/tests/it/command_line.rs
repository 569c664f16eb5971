//! The command line: what it refuses, what it leaves alone, and what it says about a store that cannot be used.

#![expect(clippy::unwrap_used, reason = "the helpers of a test fail by panicking, as the test does")]

use amalgam_testkit::{Amalgam, Database, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{BINARY, Cli, stores};

#[test]
fn an_unknown_log_level_ends_every_command_with_code_two() {
    // right D
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path()).env("AMALGAM_LOG", "verbose");
    for command in [&["serve"][..], &["check"], &["tenants", "list"]] {
        let output = cli.run(command);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("AMALGAM_LOG") && told.contains("'verbose'"), "{command:?}: {told}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Every command that only reads.
const READING: [&[&str]; 12] = [
    &["tenants", "list"],
    &["keys", "list"],
    &["tools", "list", "--common"],
    &["tools", "show", "x", "--common"],
    &["modes", "list", "--tenant", "1"],
    &["modes", "show", "general", "--tenant", "1"],
    &["approvals", "list", "--tenant", "1"],
    &["courses", "list", "--tenant", "1"],
    &["knowledge", "list", "--tenant", "1"],
    &["knowledge", "search", "x", "--tenant", "1"],
    &["migrate", "--status"],
    &["check"],
];

#[test]
fn commands_that_only_read_create_nothing_and_name_the_store() {
    // right D
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    for command in READING {
        let output = cli.run(command);
        let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(told.contains("amalgam.db") || command == ["check"], "{command:?}: {told}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{command:?} has created something");
    }
    let failure = cli.failure(&["tenants", "list"]);
    assert!(failure.contains("there is no database at sqlite:"), "{failure}");
}

#[tokio::test]
async fn commands_that_only_read_name_the_store_that_they_read_from() {
    // right D
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one"))).await;
        let cli = Cli::beside(&amalgam, &store);
        for command in READING.iter().filter(|command| !matches!(command, ["tools", "show", ..] | ["check"])) {
            let output = cli.run(command);
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{}: {command:?}: {told}", store.name);
            assert!(told.contains(&format!("store: {}", store.name)), "{}: {command:?}: {told}", store.name);
        }
    }
}

#[test]
fn a_store_without_tables_on_postgres_is_left_without_them_by_commands_that_read() {
    // right D
    let Some(database) = Database::fresh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", database.url());
    let failure = cli.failure(&["tenants", "list"]);
    assert!(failure.contains("there is no database at postgres://"), "{failure}");
    assert_eq!(database.ask("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "0");
}

#[tokio::test]
async fn every_command_takes_the_tenant_by_one_word_and_its_alias() {
    // right D
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one"))).await;
        let cli = Cli::beside(&amalgam, &store);
        for flag in ["--tenant", "--company-id"] {
            for command in [
                &["keys", "create"][..],
                &["keys", "list"],
                &["tools", "list"],
                &["modes", "list"],
                &["approvals", "list"],
                &["courses", "list"],
                &["knowledge", "list"],
                &["check"],
                &["seed", "profiles"],
                &["seed_ai_agent_configs"],
                &["reset", "runtime", "--yes"],
            ] {
                cli.text(&[command, &[flag, "1"]].concat());
            }
        }
        let seeded = cli.json(&["seed", "configs", "--all-tenants"]);
        assert_eq!(seeded["data"][0]["tenant_id"], 1, "{seeded}");
        cli.text(&["seed", "configs", "--all-companies"]);
    }
}

#[test]
fn errors_of_postgres_say_a_thing_once() {
    // right D
    let folder = tempfile::tempdir().unwrap();
    let closed = Upstream::unused_address();
    let url = format!("postgres://ann:hush@{closed}/shop");
    let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", &url);
    let told = cli.failure(&["tenants", "create", "--name", "x"]);
    assert!(told.contains("refused"), "{told}");
    for once in [&closed.to_string(), "store", "refused", "opening"] {
        assert_eq!(told.matches(once).count(), 1, "`{once}` in {told}");
    }
    let Some(database) = Database::fresh() else { return };
    let missing = database.url().replace("amalgam_test_", "no_such_");
    let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", &missing);
    let told = cli.failure(&["migrate", "--status"]);
    assert!(told.contains("does not exist"), "{told}");
    assert_eq!((told.matches("store").count(), told.matches("database").count()), (1, 1), "{told}");
}

/// What `doctor` finds out about the store: status, detail, hint.
fn store_finding(cli: &Cli) -> (Value, String, String) {
    let output = cli.run(&["doctor", "--json", "--listen", "127.0.0.1:0"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["check"] == "store").unwrap().clone();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (found["status"].clone(), text("detail"), text("hint"))
}

/// A folder with a database of this binary.
fn migrated() -> (tempfile::TempDir, Cli) {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    cli.text(&["migrate"]);
    (folder, cli)
}

fn change_database(folder: &tempfile::TempDir, statement: &str) {
    let connection = rusqlite::Connection::open(folder.path().join("data/amalgam.db")).unwrap();
    connection.execute_batch(statement).unwrap();
}

#[test]
fn doctor_names_the_remedy_for_corrupt_and_newer_databases() {
    // right D
    let (folder, cli) = migrated();
    change_database(&folder, "INSERT INTO migrations VALUES (999, 'V999__later', 'x')");
    let (status, detail, hint) = store_finding(&cli);
    assert_eq!(status, "fail", "{detail}");
    assert!(hint.contains("newer amalgam") && hint.contains("backup"), "{hint}");

    let (folder, cli) = migrated();
    std::fs::write(folder.path().join("data/amalgam.db"), [b'x'; 20_000]).unwrap();
    let (status, detail, hint) = store_finding(&cli);
    assert_eq!(status, "fail", "{detail}");
    assert!(hint.contains("damaged") && hint.contains("restore a backup"), "{hint}");

    let closed = Upstream::unused_address();
    let away = Cli::within(folder.path()).env("AMALGAM_STORE_URL", &format!("postgres://{closed}/shop"));
    let (_, _, hint) = store_finding(&away);
    assert!(hint.contains("store.url"), "{hint}");
}

#[test]
fn the_status_names_a_migration_whose_checksum_is_wrong() {
    // right D
    let (folder, cli) = migrated();
    change_database(&folder, "UPDATE migrations SET checksum = 'edited' WHERE version = 2");
    let output = cli.run(&["migrate", "--status"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{table}");
    let line = table.lines().find(|line| line.contains("V002__tools")).unwrap();
    assert!(line.contains("checksum"), "{table}");
    assert_eq!(table.matches("checksum").count(), 1, "{table}");
    let output = cli.run(&["migrate", "--status", "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems: Vec<&Value> = status["migrations"].as_array().unwrap().iter().map(|one| &one["problem"]).collect();
    assert_eq!(problems[..3], [&json!(null), &json!("checksum"), &json!(null)]);
    let (_, _, hint) = store_finding(&cli);
    assert!(hint.contains("migrate --status"), "{hint}");

    let Some(database) = Database::fresh() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path()).env("AMALGAM_STORE_URL", database.url()).env("AMALGAM_STORE_TIMEOUT", "50s");
    cli.text(&["migrate"]);
    database.ask("UPDATE amalgam_migrations SET checksum = 'edited' WHERE version = 3");
    let output = cli.run(&["migrate", "--status"]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().any(|line| line.contains("V003__assistant") && line.contains("checksum")), "{table}");
}

#[tokio::test]
async fn an_http_tool_that_egress_refuses_says_how_private_targets_are_allowed() {
    // right D
    let service = Upstream::start();
    for store in stores() {
        let amalgam = Amalgam::start(BINARY, store.setup(Setup::new().tenant_key("am_one"))).await;
        let cli = Cli::beside(&amalgam, &store);
        let file = amalgam.folder().join("tool.json");
        let tool = json!({
            "name": "look", "kind": "http", "description": "Looks.", "parameters": {"type": "object"},
            "settings": {"method": "GET", "url": format!("{}/look", service.url())},
        });
        std::fs::write(&file, tool.to_string()).unwrap();
        cli.text(&["tools", "put", file.to_str().unwrap(), "--tenant", "1"]);
        let failure = cli.failure(&["tools", "try", "look", "--tenant", "1"]);
        assert!(failure.contains("[egress] allow_private"), "{}: {failure}", store.name);
        assert_eq!(service.requests().len(), 0);
    }
}
