//! The copy that is made before a database is migrated.

use std::path::Path;

use super::text;
use crate::support::Cli;

/// A folder with the database of an older version, which has responses.
fn older() -> (tempfile::TempDir, Cli) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/redo_log/amalgam.db");
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::copy(fixture, folder.path().join("data/amalgam.db")).unwrap();
    let cli = Cli::within(folder.path());
    (folder, cli)
}

#[test]
fn a_migration_copies_the_database_first_and_the_copy_can_be_restored() {
    let (folder, cli) = older();
    let before = cli.json(&["migrate", "--status"]);
    let version = before["migrations"].as_array().unwrap().iter().filter(|one| one["applied"] == true).count();
    let migrated = cli.json(&["migrate"]);
    let copy = folder.path().join(format!("data/amalgam.db.v{version:03}.backup")).canonicalize().unwrap();
    assert_eq!(migrated["backup"].as_str(), Some(text(&copy)), "{migrated}");
    let verified = cli.json(&["backup", "verify", text(&copy)]);
    assert_eq!(verified["schema_version"], version, "{verified}");
    assert!(verified["rows"].as_u64().unwrap() > 10, "{verified}");

    let restored = cli.json(&["restore", text(&copy), "--force"]);
    assert!(restored["pending_migrations"].as_u64().unwrap() > 0, "{restored}");
    assert_eq!(cli.json(&["migrate", "--status"]), before);
    // Nothing is to be done the second time, and nothing is copied.
    cli.text(&["migrate"]);
    std::fs::remove_file(&copy).unwrap();
    cli.text(&["migrate"]);
    assert!(!copy.exists());
}

#[test]
fn a_new_database_is_not_copied_and_an_operator_can_do_without_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let cli = Cli::within(folder.path());
    assert!(cli.json(&["migrate"])["backup"].is_null());
    let (older, cli) = older();
    assert!(cli.json(&["migrate", "--no-backup"])["backup"].is_null());
    for data in [folder.path().join("data"), older.path().join("data")] {
        let names: Vec<String> = std::fs::read_dir(data)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.contains("backup"))
            .collect();
        assert_eq!(names, [""; 0]);
    }
}

#[test]
fn a_database_that_cannot_be_copied_is_not_migrated() {
    let (folder, cli) = older();
    let before = cli.json(&["migrate", "--status"]);
    let version = before["migrations"].as_array().unwrap().iter().filter(|one| one["applied"] == true).count();
    // A folder has the name of the copy.
    std::fs::create_dir_all(folder.path().join(format!("data/amalgam.db.v{version:03}.backup/x"))).unwrap();
    let refused = cli.failure(&["migrate"]);
    assert!(refused.contains("before migrating it"), "{refused}");
    assert_eq!(cli.json(&["migrate", "--status"]), before);
}
