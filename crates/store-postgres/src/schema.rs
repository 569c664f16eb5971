//! Migrations of a database, and checks of the server's version and settings.
use std::time::Duration;

use amalgam_core::StoreError;
use amalgam_store::{
    migrate::{self, Applied, Migration, MigrationError, MigrationStatus},
    migrations,
};
use tokio::time;
use tokio_postgres::{Client, GenericClient, Transaction};

use super::{
    PostgresOpenError,
    address::{Address, Trust},
    backup, catalog,
    connection::PostgresFailure,
};

/// Every migration, in order.
pub(super) const MIGRATIONS: &[Migration] = migrations!(
    "V001__state",
    "V002__tools",
    "V003__assistant",
    "V004__execute",
    "V005__knowledge",
    "V006__answers",
    "V007__raw_answers",
    "V008__provenance",
    "V009__provider_ids",
    "V010__session_queue",
    "V011__turns",
    "V012__audit",
    "V013__webhooks",
    "V014__limits",
    "V015__spans",
    "V016__console",
    "V017__call_lookup",
    "V018__learner_courses",
    "V019__client_messages",
    "V020__console_users"
);

/// The oldest server that is supported, as the server writes its version.
const OLDEST: i32 = 150_000;

/// A large database may take long, and other processes wait for the one that migrates; this limits the time.
const LONGEST: Duration = Duration::from_secs(3600);

const VERSION: &str = "SELECT current_setting('server_version_num')::integer, current_setting('server_version')";
const HISTORY: &str = "
    CREATE TABLE IF NOT EXISTS amalgam_migrations (
        version  integer PRIMARY KEY,
        name     text NOT NULL,
        checksum text NOT NULL
    )";
const FORGET_HISTORY: &str = "DELETE FROM amalgam_migrations";
/// Exists while a copy into the database is not finished: `copy.rs`.
const HAS_COPY: &str = "SELECT to_regclass('amalgam_copy') IS NOT NULL";
const FORGET_COPY: &str = "DROP TABLE IF EXISTS amalgam_copy";
const HAS_HISTORY: &str = "SELECT to_regclass('amalgam_migrations') IS NOT NULL";
const APPLIED: &str = "SELECT version, name, checksum FROM amalgam_migrations ORDER BY version";
const NOTE: &str = "INSERT INTO amalgam_migrations (version, name, checksum) VALUES ($1, $2, $3)";
/// An arbitrary constant: the process that has this lock is the only one that migrates the database.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7310864153278205291)";
const DURABILITY: &str = "
    SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'),
        COALESCE((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)";

/// Refuses a server that is too old.
pub(super) async fn check_version(client: &Client) -> Result<(), PostgresOpenError> {
    let row = client.query_one(VERSION, &[]).await.map_err(failed)?;
    let number: i32 = row.try_get(0).map_err(failed)?;
    refuse_old(number, row.try_get(1).map_err(failed)?)
}

fn refuse_old(number: i32, version: String) -> Result<(), PostgresOpenError> {
    match number < OLDEST {
        true => Err(PostgresOpenError::TooOld { version }),
        false => Ok(()),
    }
}

/// Settings of the server under which acknowledged writes may be lost or read by others. Empty if all settings are
/// right.
pub(super) async fn warnings(client: &Client, address: &Address) -> Result<Vec<String>, PostgresOpenError> {
    let row = client.query_one(DURABILITY, &[]).await.map_err(failed)?;
    let setting = |at: usize| row.try_get::<_, String>(at).map_err(failed);
    let mut warnings = Vec::new();
    for (at, name, loses) in [
        (0, "fsync", "what was acknowledged can be lost, and the database broken, when the machine stops"),
        (1, "synchronous_commit", "what was acknowledged can be lost when the server stops"),
        (2, "full_page_writes", "the database can be broken when the machine stops"),
    ] {
        if setting(at)? == "off" {
            warnings.push(format!("the PostgreSQL server at {address} runs with {name} = off: {loses}"));
        }
    }
    let encrypted: bool = row.try_get(3).map_err(failed)?;
    if !address.is_local() {
        let missing = match (encrypted, address.trust) {
            (false, _) => Some("is not encrypted"),
            (true, Trust::Any) => Some("is encrypted, but the certificate of the server is not checked"),
            (true, Trust::Authority | Trust::Host) => None,
        };
        let advice = "say sslmode=verify-full in the address";
        warnings.extend(missing.map(|missing| format!("the connection to {address} {missing}: {advice}")));
    }
    Ok(warnings)
}

/// Runs the missing migrations. A second process waits for the first, and finds nothing to do.
pub(super) async fn migrate(client: &mut Client) -> Result<(), PostgresOpenError> {
    match time::timeout(LONGEST, run_pending(client)).await {
        Ok(done) => done,
        Err(_) => Err(PostgresOpenError::Database(PostgresFailure::timed_out().into())),
    }
}

async fn run_pending(client: &mut Client) -> Result<(), PostgresOpenError> {
    // A database without pending migrations is not written to, so that it can be read even if its disk is full.
    if migrate::pending(MIGRATIONS, &applied(client).await?)?.is_empty() {
        return Ok(());
    }
    // Also in one transaction: a script that fails changes nothing.
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.batch_execute(LOCK).await.map_err(failed)?;
    transaction.batch_execute(HISTORY).await.map_err(failed)?;
    let applied = applied_from(&transaction.query(APPLIED, &[]).await.map_err(failed)?)?;
    run_scripts(&transaction, migrate::pending(MIGRATIONS, &applied)?).await?;
    transaction.commit().await.map_err(failed)
}

async fn run_scripts(transaction: &Transaction<'_>, migrations: &[Migration]) -> Result<(), PostgresOpenError> {
    for migration in migrations {
        let script_failed = |reason| PostgresOpenError::Migration { name: migration.name, reason };
        transaction.batch_execute(migration.sql).await.map_err(|error| script_failed(unavailable(error)))?;
        let version = i32::try_from(migration.version).expect("migrations have three digits");
        let checksum = migration.checksum();
        transaction.execute(NOTE, &[&version, &migration.name, &checksum]).await.map_err(failed)?;
    }
    Ok(())
}

/// Makes other processes that migrate the database wait until the transaction ends.
pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(), PostgresOpenError> {
    transaction.batch_execute(LOCK).await.map_err(failed)
}

/// Drops the tables of the store and creates them again, empty, with the schema of these migrations.
pub(super) async fn rebuild(transaction: &Transaction<'_>, wanted: &[Applied]) -> Result<(), PostgresOpenError> {
    let later = migrate::pending(MIGRATIONS, wanted)?.len();
    // A database of a newer binary may have tables that this binary does not have.
    migrate::pending(MIGRATIONS, &applied(transaction).await?)?;
    let old = catalog::tables(transaction, MIGRATIONS).await?;
    backup::drop_tables(transaction, &old).await?;
    transaction.batch_execute(HISTORY).await.map_err(failed)?;
    transaction.batch_execute(FORGET_HISTORY).await.map_err(failed)?;
    transaction.batch_execute(FORGET_COPY).await.map_err(failed)?;
    run_scripts(transaction, MIGRATIONS.get(..MIGRATIONS.len() - later).unwrap_or_default()).await
}

/// Whether the database has an unfinished copy.
pub(super) async fn has_unfinished_copy(client: &Client) -> Result<bool, PostgresOpenError> {
    client.query_one(HAS_COPY, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)
}

/// Refuses a database that lacks migrations.
pub(super) async fn require(client: &Client) -> Result<(), PostgresOpenError> {
    Ok(migrate::require_all(MIGRATIONS, &applied(client).await?)?)
}

/// The state of each migration in the database; changes nothing.
pub(super) async fn status(client: &Client) -> Result<Vec<MigrationStatus>, PostgresOpenError> {
    Ok(migrate::status(MIGRATIONS, &applied(client).await?))
}

pub(super) async fn applied(client: &impl GenericClient) -> Result<Vec<Applied>, PostgresOpenError> {
    let has_history: bool = client.query_one(HAS_HISTORY, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)?;
    match has_history {
        true => applied_from(&client.query(APPLIED, &[]).await.map_err(failed)?),
        false => Ok(Vec::new()),
    }
}

fn applied_from(rows: &[tokio_postgres::Row]) -> Result<Vec<Applied>, PostgresOpenError> {
    let applied = rows.iter().map(|row| {
        let version = u32::try_from(row.try_get::<_, i32>(0)?).unwrap_or_default();
        Ok(Applied { version, name: row.try_get(1)?, checksum: row.try_get(2)? })
    });
    applied.collect::<Result<_, tokio_postgres::Error>>().map_err(failed)
}

pub(super) fn failed(error: tokio_postgres::Error) -> PostgresOpenError {
    PostgresOpenError::Database(unavailable(error))
}

fn unavailable(error: tokio_postgres::Error) -> StoreError {
    PostgresFailure::from(error).into()
}

impl From<MigrationError> for PostgresOpenError {
    fn from(error: MigrationError) -> Self {
        Self::Schema(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_before_15_is_refused_by_its_version() {
        let refused = refuse_old(140_012, "14.12 (Debian)".to_owned()).unwrap_err();
        assert_eq!(refused.to_string(), "the PostgreSQL server is version 14.12 (Debian), which is older than 15");
        refuse_old(150_000, "15.0".to_owned()).unwrap();
        refuse_old(180_001, "18.1".to_owned()).unwrap();
    }
}
