//! Runs migrations and reads which ones were run.
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use amalgam_store::{
    migrate::{self, Applied, Migration, MigrationStatus, Migrations},
    migrations,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};
use tracing::info;

use super::{MigrationBackup, Sqlite, SqliteCopyError, SqliteOpenError, backup, file};

/// Every version of the schema, oldest first.
pub(super) const MIGRATIONS: &[Migration] = migrations!(
    "V001__state",
    "V002__tools",
    "V003__assistant",
    "V004__execute",
    "V005__knowledge",
    "V006__places",
    "V007__redo",
    "V008__answers",
    "V009__raw_answers",
    "V010__provenance",
    "V011__provider_ids",
    "V012__session_queue",
    "V013__turns",
    "V014__audit",
    "V015__webhooks",
    "V016__limits",
    "V017__spans",
    "V018__cheaper_turns",
    "V019__console",
    "V020__call_lookup",
    "V021__learner_courses",
    "V022__client_messages",
    "V023__console_users"
);

const CREATE_LIST: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT";
const HAS_LIST: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'";
const LIST: &str = "SELECT version, name, checksum FROM migrations ORDER BY version";
const ADD: &str = "INSERT INTO migrations (version, name, checksum) VALUES (?1, ?2, ?3)";

/// The time to wait for another process that creates or migrates the same database, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Brings the database at `path` up to date, or refuses it. SQLite fails at once if two connections that read both try
/// to change the journal mode; so this starts again until the other one is done.
pub(super) fn prepare(path: &Path, migrations: Migrations, backup: MigrationBackup) -> Result<(), SqliteOpenError> {
    let begun = Instant::now();
    loop {
        match attempt(path, migrations, backup) {
            Err(SqliteOpenError::Database { source, .. }) if is_busy(&source) && begun.elapsed() < PATIENCE => {
                thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

fn attempt(path: &Path, migrations: Migrations, backup: MigrationBackup) -> Result<(), SqliteOpenError> {
    let database = |source| SqliteOpenError::Database { path: path.to_path_buf(), source };
    let schema = |source| SqliteOpenError::Schema { path: path.to_path_buf(), source };
    let mut connection = file::open_writer(path, None).map_err(database)?;
    // A database without pending migrations is not written to, so that a newer one is refused unchanged.
    let applied = applied(&connection).map_err(database)?;
    let pending = migrate::pending(MIGRATIONS, &applied).map_err(schema)?;
    match (pending, migrations) {
        ([], _) => Ok(()),
        (_, Migrations::Require) => migrate::require_all(MIGRATIONS, &applied).map_err(schema),
        (_, Migrations::Run) => run(path, &mut connection, backup),
    }
}

/// Refuses the database at `path` if it lacks a migration.
pub(super) fn require(path: &Path, connection: &Connection) -> Result<(), SqliteOpenError> {
    let applied =
        applied(connection).map_err(|source| SqliteOpenError::Database { path: path.to_path_buf(), source })?;
    migrate::require_all(MIGRATIONS, &applied)
        .map_err(|source| SqliteOpenError::Schema { path: path.to_path_buf(), source })
}

/// The state of each migration in the database at `path`.
pub(super) fn status(path: &Path) -> Result<Vec<MigrationStatus>, SqliteOpenError> {
    let database = |source| SqliteOpenError::Database { path: path.to_path_buf(), source };
    let exists = path.try_exists().map_err(|source| SqliteOpenError::File { path: path.to_path_buf(), source })?;
    if !exists {
        return Ok(migrate::status(MIGRATIONS, &[]));
    }
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(database)?;
    connection.busy_timeout(file::LOCK_WAIT).map_err(database)?;
    Ok(migrate::status(MIGRATIONS, &applied(&connection).map_err(database)?))
}

/// Runs all pending migrations, in one transaction. Another process may have run some: what is pending is read after
/// the lock is taken, and the backup is the database that the migrations find.
fn run(path: &Path, connection: &mut Connection, backup: MigrationBackup) -> Result<(), SqliteOpenError> {
    let database = |source| SqliteOpenError::Database { path: path.to_path_buf(), source };
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(database)?;
    transaction.execute_batch(CREATE_LIST).map_err(database)?;
    let applied = applied(&transaction).map_err(database)?;
    let pending = migrate::pending(MIGRATIONS, &applied)
        .map_err(|source| SqliteOpenError::Schema { path: path.to_path_buf(), source })?;
    if let (MigrationBackup::Make, [_, ..], Some(last)) = (backup, pending, applied.last())
        && backup::has_rows(&transaction).map_err(database)?
    {
        copy_before(path, last.version)?;
    }
    for migration in pending {
        transaction.execute_batch(migration.sql).map_err(database)?;
        let ran = (migration.version, migration.name, migration.checksum());
        transaction.execute(ADD, ran).map_err(database)?;
    }
    transaction.commit().map_err(database)
}

/// The path of the copy that is made before the database at `path` is migrated from `version`.
pub(super) fn copy_name(path: &Path, version: u32) -> PathBuf {
    file::beside(path, &format!(".v{version:03}.backup"))
}

/// Copies the database while no other process can change it.
fn copy_before(path: &Path, version: u32) -> Result<(), SqliteOpenError> {
    let target = copy_name(path, version);
    let partial = file::beside(&target, ".partial");
    let copied = Sqlite::copy(path, &partial, &mut |_, _| {}).and_then(|_| {
        fs::rename(&partial, &target)
            .and_then(|()| file::flush_folder(&target))
            .map_err(|source| SqliteCopyError::Open(SqliteOpenError::File { path: target.clone(), source }))
    });
    copied.map_err(|source| SqliteOpenError::MigrationBackup { path: target.clone(), source: Box::new(source) })?;
    info!("copied the database to `{}` before it is migrated", target.display());
    Ok(())
}

pub(super) fn applied(connection: &Connection) -> rusqlite::Result<Vec<Applied>> {
    if connection.query_row(HAS_LIST, [], |_| Ok(())).optional()?.is_none() {
        return Ok(Vec::new());
    }
    let mut list = connection.prepare(LIST)?;
    let rows =
        list.query_map([], |row| Ok(Applied { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? }))?;
    rows.collect()
}
