//! Runs migrations, and knows which ones were run.
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use amalgam_store::{
    migrate::{self, Applied, Migration, MigrationError, MigrationStatus, Migrations},
    migrations,
};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use super::{SqliteOpenError, file};

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
    "V015__webhooks"
);

const CREATE_LIST: &str = "CREATE TABLE IF NOT EXISTS migrations (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT";
const HAS_LIST: &str = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migrations'";
const LIST: &str = "SELECT version, name, checksum FROM migrations ORDER BY version";
const ADD: &str = "INSERT INTO migrations (version, name, checksum) VALUES (?1, ?2, ?3)";

/// How long one waits for another process that makes the same database, or brings it up to date, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Brings the database at `path` up to date, or refuses it. SQLite gives up at once where two connections that read both
/// want to be the one that changes the kind of log; so this begins anew until the other one is done.
pub(super) fn prepare(path: &Path, migrations: Migrations) -> Result<(), SqliteOpenError> {
    let begun = Instant::now();
    loop {
        match attempt(path, migrations) {
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

fn attempt(path: &Path, migrations: Migrations) -> Result<(), SqliteOpenError> {
    let database = |source| SqliteOpenError::Database { path: path.to_path_buf(), source };
    let schema = |source| SqliteOpenError::Schema { path: path.to_path_buf(), source };
    let mut connection = file::open_writer(path, None).map_err(database)?;
    // A database that needs nothing is not written to, so that a newer one is refused without a trace.
    let applied = applied(&connection).map_err(database)?;
    let pending = migrate::pending(MIGRATIONS, &applied).map_err(schema)?;
    match (pending, migrations) {
        ([], _) => Ok(()),
        (_, Migrations::Require) => migrate::require_all(MIGRATIONS, &applied).map_err(schema),
        (_, Migrations::Run) => match run(&mut connection).map_err(database)? {
            Ok(()) => Ok(()),
            Err(error) => Err(schema(error)),
        },
    }
}

/// Refuses the database at `path` if it lacks a migration.
pub(super) fn require(path: &Path, connection: &Connection) -> Result<(), SqliteOpenError> {
    let applied =
        applied(connection).map_err(|source| SqliteOpenError::Database { path: path.to_path_buf(), source })?;
    migrate::require_all(MIGRATIONS, &applied)
        .map_err(|source| SqliteOpenError::Schema { path: path.to_path_buf(), source })
}

/// What the database at `path` has and lacks.
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

/// Runs everything that is pending, in one transaction. Another process may have been faster: what is pending is
/// decided behind the lock.
fn run(connection: &mut Connection) -> rusqlite::Result<Result<(), MigrationError>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(CREATE_LIST)?;
    let applied = applied(&transaction)?;
    let pending = match migrate::pending(MIGRATIONS, &applied) {
        Ok(pending) => pending,
        Err(error) => return Ok(Err(error)),
    };
    for migration in pending {
        transaction.execute_batch(migration.sql)?;
        transaction.execute(ADD, (migration.version, migration.name, migration.checksum()))?;
    }
    transaction.commit().map(Ok)
}

fn applied(connection: &Connection) -> rusqlite::Result<Vec<Applied>> {
    if connection.query_row(HAS_LIST, [], |_| Ok(())).optional()?.is_none() {
        return Ok(Vec::new());
    }
    let mut list = connection.prepare(LIST)?;
    let rows =
        list.query_map([], |row| Ok(Applied { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? }))?;
    rows.collect()
}
