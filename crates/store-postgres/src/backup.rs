//! Dumps a database and loads dumps: every table of the store in the text format of `COPY`.
//!
//! A dump is one snapshot (`REPEATABLE READ`), so concurrent writes do not change it. Loading is one transaction:
//! migrations create the schema of the backup, the rows are copied in, and sequences continue where they were.
use amalgam_store::{
    backup::{
        BackupContents, BackupEntry, BackupManifest, BackupReader, BackupSequence, BackupTable, BackupWriter,
        StoreKind, table_file,
    },
    migrate::{self, Applied},
};
use bytes::Bytes;
use futures_util::{SinkExt as _, TryStreamExt as _};
use tokio_postgres::{Client, Transaction};

use super::{
    MigrationConnection, Postgres, PostgresBackupError, PostgresOpenError, PostgresOptions,
    catalog::{self, OwnedSequence, TableColumns, identifier, identifiers},
    schema::{self, MIGRATIONS, failed},
};

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const ROLLBACK: &str = "ROLLBACK";
/// Other sessions of this program on the same database.
const OTHERS: &str = "
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
        AND application_name = current_setting('application_name')";
const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
const SIZE: &str =
    "SELECT COALESCE(sum(pg_table_size(format('%I', name)::regclass)), 0)::bigint FROM unnest($1::text[]) AS name";
/// The names of the schema follow these texts.
const COPY: &str = "COPY ";
const FROM: &str = " FROM ";
const FROM_STDIN: &str = " FROM STDIN";
const TO_STDOUT: &str = ") TO STDOUT";
const READ: &str = "(SELECT ";
const DROP: &str = "DROP TABLE ";
const ANY: &str = "SELECT EXISTS (SELECT FROM ";
const SEQUENCE: &str = "SELECT last_value, is_called FROM ";
const SET_SEQUENCE: &str = "SELECT setval($1::text::regclass, $2::bigint, $3::boolean)";

impl Postgres {
    /// The approximate size of the tables, in bytes.
    pub async fn size(url: &str, options: &PostgresOptions) -> Result<u64, PostgresOpenError> {
        let driven = MigrationConnection::to(url, options).await?;
        let tables = catalog::tables(&driven.client, MIGRATIONS).await?;
        let names: Vec<&str> = tables.iter().map(|one| one.table.as_str()).collect();
        let row = driven.client.query_one(SIZE, &[&names]).await.map_err(failed)?;
        Ok(row.try_get::<_, i64>(0).map_err(failed)?.unsigned_abs())
    }

    /// Writes every table of the store to a backup. Calls `progress` with the number of bytes written since its last
    /// call.
    pub async fn dump(
        url: &str,
        options: &PostgresOptions,
        backup: &mut BackupWriter,
        progress: &mut dyn FnMut(u64),
    ) -> Result<BackupContents, PostgresBackupError> {
        let driven = MigrationConnection::to(url, options).await?;
        let client = &driven.client;
        client.batch_execute(SNAPSHOT).await.map_err(failed)?;
        let migrations = schema::applied(client).await?;
        let known = migrate::pending(MIGRATIONS, &migrations).map_err(PostgresOpenError::Schema)?;
        let ran = MIGRATIONS.get(..MIGRATIONS.len() - known.len()).unwrap_or_default();
        let mut contents =
            BackupContents { store: StoreKind::Postgres, migrations, tables: Vec::new(), sequences: Vec::new() };
        let tables = catalog::tables(client, ran).await?;
        for table in &tables {
            let columns: Vec<String> = table.columns.iter().map(|(name, _)| name.clone()).collect();
            let mut entry = backup.entry(&table_file(&table.table))?;
            let rows = dump_table(client, table, &mut entry, progress).await?;
            entry.finish()?;
            contents.tables.push(BackupTable { name: table.table.clone(), rows, columns });
        }
        for sequence in catalog::sequences(client, &tables).await? {
            contents.sequences.push(sequence_state(client, sequence).await?);
        }
        client.batch_execute(ROLLBACK).await.map_err(failed)?;
        Ok(contents)
    }

    /// Whether this binary can load a backup: it must have the backup's migrations.
    pub fn check_backup(manifest: &BackupManifest) -> Result<(), PostgresOpenError> {
        known(&manifest.migrations).map(drop)
    }

    /// Whether the database has no tables of the store, or no rows in them.
    pub async fn is_empty(url: &str, options: &PostgresOptions) -> Result<bool, PostgresOpenError> {
        let driven = MigrationConnection::to(url, options).await?;
        for TableColumns { table, .. } in catalog::tables(&driven.client, MIGRATIONS).await? {
            let any = [ANY, &identifier(&table), ")"].concat();
            let row = driven.client.query_one(&any, &[]).await.map_err(failed)?;
            if row.try_get(0).map_err(failed)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The clock of the server: milliseconds since 1970.
    pub async fn clock_ms(url: &str, options: &PostgresOptions) -> Result<i64, PostgresOpenError> {
        let driven = MigrationConnection::to(url, options).await?;
        driven.client.query_one(CLOCK, &[]).await.and_then(|row| row.try_get(0)).map_err(failed)
    }

    /// How many other sessions of this program the database has: servers and commands.
    pub async fn other_sessions(url: &str, options: &PostgresOptions) -> Result<u64, PostgresOpenError> {
        let driven = MigrationConnection::to(url, options).await?;
        let row = driven.client.query_one(OTHERS, &[]).await.map_err(failed)?;
        Ok(row.try_get::<_, i64>(0).map_err(failed)?.unsigned_abs())
    }

    /// Replaces the contents of the store by a backup, in one transaction. `progress` as with [`Postgres::dump`].
    pub async fn load(
        url: &str,
        options: &PostgresOptions,
        backup: &BackupReader,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), PostgresBackupError> {
        let mut driven = MigrationConnection::to(url, options).await?;
        let transaction = driven.client.transaction().await.map_err(failed)?;
        schema::lock(&transaction).await?;
        let manifest = backup.manifest();
        schema::rebuild(&transaction, &manifest.migrations).await?;
        let tables = catalog::tables(&transaction, known(&manifest.migrations)?).await?;
        refuse_other_tables(&tables, &manifest.tables)?;
        for TableColumns { table, .. } in &tables {
            // The columns in the order of the backup.
            let Some(saved) = manifest.tables.iter().find(|saved| saved.name == *table) else { continue };
            load_table(&transaction, backup, saved, progress).await?;
        }
        for sequence in catalog::sequences(&transaction, &tables).await? {
            let saved = manifest.sequences.iter();
            let mut saved = saved.filter(|saved| saved.table == sequence.table && saved.column == sequence.column);
            if let Some(saved) = saved.next() {
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                    [&sequence.name, &saved.last_value, &saved.is_called];
                transaction.query_one(SET_SEQUENCE, &params).await.map_err(failed)?;
            }
        }
        Ok(transaction.commit().await.map_err(failed)?)
    }
}

/// The migrations of a backup, or the reason why the backup does not fit this binary.
fn known(applied: &[Applied]) -> Result<&'static [migrate::Migration], PostgresOpenError> {
    let pending = migrate::pending(MIGRATIONS, applied).map_err(PostgresOpenError::Schema)?;
    Ok(MIGRATIONS.get(..MIGRATIONS.len() - pending.len()).unwrap_or_default())
}

async fn dump_table(
    client: &Client,
    table: &TableColumns,
    entry: &mut BackupEntry<'_>,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, PostgresBackupError> {
    let columns = identifiers(table.columns.iter().map(|(name, _)| name.as_str()));
    let statement = [COPY, READ, &columns, FROM, &identifier(&table.table), TO_STDOUT].concat();
    let stream = client.copy_out(&statement).await.map_err(failed)?;
    let mut stream = std::pin::pin!(stream);
    let mut rows = 0;
    while let Some(some) = stream.try_next().await.map_err(failed)? {
        // Line breaks inside values are escaped.
        rows += some.iter().filter(|byte| **byte == b'\n').count() as u64;
        entry.write(&some)?;
        progress(some.len() as u64);
    }
    Ok(rows)
}

async fn sequence_state(client: &Client, sequence: OwnedSequence) -> Result<BackupSequence, PostgresOpenError> {
    let OwnedSequence { table, column, name } = sequence;
    let row = client.query_one(&[SEQUENCE, &name].concat(), &[]).await.map_err(failed)?;
    let (last_value, is_called) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    Ok(BackupSequence { table, column, last_value, is_called })
}

/// The migrations of the backup have created these tables, so a difference is an error of the file.
fn refuse_other_tables(made: &[TableColumns], saved: &[BackupTable]) -> Result<(), PostgresBackupError> {
    let sorted = |mut columns: Vec<String>| {
        columns.sort_unstable();
        columns
    };
    for table in made {
        let columns = sorted(table.columns.iter().map(|(name, _)| name.clone()).collect());
        let same = saved.iter().any(|one| one.name == table.table && sorted(one.columns.clone()) == columns);
        if !same {
            return Err(PostgresBackupError::Table { name: table.table.clone() });
        }
    }
    match saved.iter().find(|saved| !made.iter().any(|one| one.table == saved.name)) {
        Some(unknown) => Err(PostgresBackupError::Table { name: unknown.name.clone() }),
        None => Ok(()),
    }
}

async fn load_table(
    transaction: &Transaction<'_>,
    backup: &BackupReader,
    table: &BackupTable,
    progress: &mut dyn FnMut(u64),
) -> Result<(), PostgresBackupError> {
    let mut data = backup.data(&table.file())?;
    let sink = copy_in(transaction, &table.name, table.columns.iter().map(String::as_str)).await?;
    let mut sink = std::pin::pin!(sink);
    while let Some(block) = data.next()? {
        progress(block.len() as u64);
        sink.send(Bytes::copy_from_slice(block)).await.map_err(failed)?;
    }
    let rows = sink.finish().await.map_err(failed)?;
    match rows == table.rows {
        true => Ok(()),
        false => Err(PostgresBackupError::Rows { table: table.name.clone(), loaded: rows, expected: table.rows }),
    }
}

/// The writer of a table's lines.
pub(super) async fn copy_in<'a>(
    transaction: &Transaction<'_>,
    table: &str,
    columns: impl IntoIterator<Item = &'a str>,
) -> Result<tokio_postgres::CopyInSink<Bytes>, PostgresOpenError> {
    let statement = [COPY, &identifier(table), " (", &identifiers(columns), ")", FROM_STDIN].concat();
    transaction.copy_in(&statement).await.map_err(failed)
}

/// Drops the tables of the store.
pub(super) async fn drop_tables(
    transaction: &Transaction<'_>,
    tables: &[TableColumns],
) -> Result<(), PostgresOpenError> {
    if tables.is_empty() {
        return Ok(());
    }
    let names = identifiers(tables.iter().map(|one| one.table.as_str()));
    transaction.batch_execute(&[DROP, &names].concat()).await.map_err(failed)
}
