//! Opens the configured store. The only file that names the storage engines.

use std::sync::Arc;

use amalgam_core::{Store, store::StoreMeter};
use amalgam_store::migrate::{MigrationError, MigrationStatus, Migrations};
use amalgam_store_postgres::{Postgres, PostgresOpenError, PostgresOptions};
use amalgam_store_sqlite::{FullDisk, MigrationBackup, Sqlite, SqliteOpenError, SqliteOptions};
use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use amalgam_configuration::{PoolConfig, StoreUrl};

/// The purpose of opening a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorePurpose {
    /// To serve from it: SQLite allows one such process.
    Serving,
    /// For a command that may write while a server runs.
    Command,
    /// To read, without migrating its schema.
    ReadOnly,
}

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<dyn Store>,
    /// Whether no other process serves from it.
    pub(crate) alone: bool,
    /// Counts the store's commits.
    pub(crate) flushes: StoreMeter,
    /// Warnings about the database's durability or access settings.
    pub(crate) warnings: Vec<String>,
}

/// Opens the store and migrates its schema, unless it is opened read-only.
pub(crate) async fn open(url: &StoreUrl, pool: PoolConfig, purpose: StorePurpose) -> anyhow::Result<OpenStore> {
    open_either(url, pool, purpose, MigrationBackup::Make).await.with_context(|| format!("opening the store {url}"))
}

/// Migrates the schema. A database of SQLite that holds something is copied first, unless the operator has a backup.
pub(crate) async fn migrate(url: &StoreUrl, pool: PoolConfig, backup: MigrationBackup) -> anyhow::Result<OpenStore> {
    open_either(url, pool, StorePurpose::Command, backup).await.with_context(|| format!("opening the store {url}"))
}

async fn open_either(
    url: &StoreUrl,
    pool: PoolConfig,
    purpose: StorePurpose,
    migration_backup: MigrationBackup,
) -> anyhow::Result<OpenStore> {
    match url {
        StoreUrl::Sqlite(path) => {
            let migrations = match purpose {
                StorePurpose::Serving | StorePurpose::Command => Migrations::Run,
                StorePurpose::ReadOnly => Migrations::Require,
            };
            let full_disk = match purpose {
                StorePurpose::Serving => FullDisk::Read,
                StorePurpose::Command | StorePurpose::ReadOnly => FullDisk::Refuse,
            };
            let flushes = StoreMeter::default();
            let options = SqliteOptions {
                migrations,
                migration_backup,
                full_disk,
                flushes: flushes.clone(),
                ..SqliteOptions::default()
            };
            let path = path.clone();
            let open = move || Sqlite::open(path, options);
            let store = tokio::task::spawn_blocking(open).await.context("opening the file")??;
            if purpose == StorePurpose::Serving {
                store.lock_for_serving()?;
            }
            let alone = purpose == StorePurpose::Serving;
            Ok(OpenStore { store: Arc::new(store), alone, flushes, warnings: Vec::new() })
        }
        StoreUrl::Postgres(url) => {
            let migrations = match purpose {
                StorePurpose::Serving | StorePurpose::Command => Migrations::Run,
                StorePurpose::ReadOnly => Migrations::Require,
            };
            let options = PostgresOptions { migrations, ..options(pool) };
            let flushes = options.flushes.clone();
            let store = Postgres::open(url.expose_secret(), options).await?;
            let warnings = store.warnings().to_vec();
            Ok(OpenStore { store: Arc::new(store), alone: false, flushes, warnings })
        }
    }
}

/// The settings of PostgreSQL.
pub(crate) fn options(PoolConfig { connections, timeout }: PoolConfig) -> PostgresOptions {
    let fifth = timeout / 5;
    PostgresOptions {
        connections,
        wait: 2 * fifth,
        statement: timeout,
        deadline: 8 * fifth,
        ..PostgresOptions::default()
    }
}

/// The migrations of the store's schema; changes nothing, and creates no file.
pub(crate) async fn status(url: &StoreUrl, pool: PoolConfig) -> anyhow::Result<Vec<MigrationStatus>> {
    let status = match url {
        StoreUrl::Sqlite(path) => {
            let path = path.clone();
            let looked =
                tokio::task::spawn_blocking(move || Sqlite::status(path)).await.context("inspecting the file")?;
            looked.map_err(anyhow::Error::from)
        }
        StoreUrl::Postgres(url) => {
            Postgres::status(url.expose_secret(), &options(pool)).await.map_err(anyhow::Error::from)
        }
    };
    status.with_context(|| format!("inspecting the store {url}"))
}

/// Whether a database with any of this program's tables exists; creates nothing.
pub(crate) async fn exists(url: &StoreUrl, pool: PoolConfig) -> anyhow::Result<bool> {
    Ok(status(url, pool).await?.iter().any(|migration| migration.applied))
}

/// The status of a store.
#[derive(Debug)]
pub(crate) enum StoreStatus {
    /// The store does not exist yet; the first start creates it.
    Absent,
    /// The schema is older than this program; the next start migrates it.
    Outdated { pending: usize },
    /// The store can be used.
    Ready { version: u32, warnings: Vec<String> },
    /// The store cannot be used.
    Unusable(anyhow::Error),
}

/// Inspects the store; changes nothing, and creates no file. Also returns the store if it can be used.
pub(crate) async fn inspect(url: &StoreUrl, pool: PoolConfig) -> (StoreStatus, Option<Arc<dyn Store>>) {
    if let StoreUrl::Sqlite(path) = url
        && !path.exists()
    {
        return (StoreStatus::Absent, None);
    }
    let status = match status(url, pool).await {
        Ok(status) => status,
        Err(error) => return (StoreStatus::Unusable(error), None),
    };
    let pending = status.iter().filter(|migration| !migration.applied).count();
    if pending == status.len() {
        return (StoreStatus::Absent, None);
    }
    // Opening the store refuses an incompatible schema, even if migrations are pending.
    if pending > 0 && status.iter().all(|migration| migration.problem.is_none()) {
        return (StoreStatus::Outdated { pending }, None);
    }
    match open(url, pool, StorePurpose::ReadOnly).await {
        Ok(OpenStore { store, warnings, .. }) => match store.ping().await {
            Ok(()) => {
                let version = status.iter().map(|migration| migration.version).max().unwrap_or_default();
                (StoreStatus::Ready { version, warnings }, Some(store))
            }
            Err(error) => (StoreStatus::Unusable(error.into()), None),
        },
        Err(error) => (StoreStatus::Unusable(error), None),
    }
}

/// The remedy for a store that cannot be used.
pub(crate) fn remedy(error: &anyhow::Error) -> &'static str {
    let sqlite = error.downcast_ref::<SqliteOpenError>();
    let schema = match (sqlite, error.downcast_ref::<PostgresOpenError>()) {
        (Some(SqliteOpenError::Schema { source, .. }), _) | (_, Some(PostgresOpenError::Schema(source))) => {
            Some(source)
        }
        _ => None,
    };
    match schema {
        Some(MigrationError::Newer { .. }) => {
            "a newer amalgam has used this database: run that version, or restore a backup from before the upgrade: \
             'amalgam restore FILE --force', where FILE may be the copy that the migration made beside the database"
        }
        Some(MigrationError::Changed { .. } | MigrationError::Gap { .. }) => {
            "run the amalgam that this schema is from, or restore a backup; 'amalgam migrate --status' lists the migrations"
        }
        Some(MigrationError::Pending { .. }) => {
            "run 'amalgam migrate', which makes a backup of an SQLite database first"
        }
        None if matches!(sqlite, Some(SqliteOpenError::RedoLog { .. })) => {
            "the redo log of an older version has turns that the database lacks: do what the message says, \
             or see 'Upgrading' in docs/durability.md"
        }
        None if matches!(sqlite, Some(SqliteOpenError::MigrationBackup { .. })) => {
            "make room beside the database, or run 'amalgam backup' to another disk and then 'amalgam migrate --no-backup'"
        }
        None if sqlite.is_some_and(SqliteOpenError::is_corrupt) => {
            "the file is damaged or no SQLite database: stop the server, keep a copy, and restore a backup with \
             'amalgam restore FILE --force'; without one, \
             'sqlite3 FILE .recover' may save a part, and moving the file away makes the next start begin with an empty store"
        }
        None => "check store.url and whether the database can be reached",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_usual_settings_are_those_of_the_engine_and_a_longer_time_is_longer_for_all_that_waits() {
        let of = |connections, seconds| options(PoolConfig { connections, timeout: Duration::from_secs(seconds) });
        let limits = |options: PostgresOptions| {
            (options.connections, options.wait.as_secs(), options.statement.as_secs(), options.deadline.as_secs())
        };
        assert_eq!(limits(of(8, 5)), limits(PostgresOptions::default()));
        assert_eq!(limits(of(3, 50)), (3, 20, 50, 80));
    }
}
