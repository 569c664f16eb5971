//! The target of `amalgam copy`: rows arrive in batches, and each batch records the progress in the same transaction.
//!
//! The progress is in the table `amalgam_copy`, which exists while a copy is not finished. A server refuses such a
//! database.
use amalgam_store::transfer::{ColumnForm, TableDigest, TransferColumn, TransferTable};
use bytes::Bytes;
use futures_util::{SinkExt as _, TryStreamExt as _};

use super::{
    MigrationConnection, Postgres, PostgresBackupError, PostgresOptions,
    backup::copy_in,
    catalog::{self, TableColumns, identifier},
    schema::{self, MIGRATIONS, failed},
};

const CREATE_NOTES: &str = "CREATE TABLE amalgam_copy (source text NOT NULL, name text NOT NULL, rows bigint NOT NULL, PRIMARY KEY (source, name))";
const DROP_NOTES: &str = "DROP TABLE amalgam_copy";
const SOURCE: &str = "SELECT source FROM amalgam_copy WHERE name = ''";
const NOTE: &str = "
    INSERT INTO amalgam_copy (source, name, rows) VALUES ($1, $2, $3)
    ON CONFLICT (source, name) DO UPDATE SET rows = amalgam_copy.rows + excluded.rows";
const NOTED: &str = "SELECT rows FROM amalgam_copy WHERE source = $1 AND name = $2";
const SET_SEQUENCE: &str = "SELECT setval($1::text::regclass, GREATEST($2::bigint, 1), $2::bigint > 0)";
/// The names of the schema are inserted between these texts.
const COPY: &str = "COPY (SELECT ";
const FROM: &str = " FROM ";
const TO_STDOUT: &str = ") TO STDOUT";
const MAX: &str = "SELECT COALESCE(max(";
const MAX_FROM: &str = "), 0) FROM ";

/// A database that rows are copied into.
pub struct CopyTarget {
    driven: MigrationConnection,
    tables: Vec<TableColumns>,
    source: String,
}

impl Postgres {
    /// Prepares a database that is empty, or that has an unfinished copy from the same source.
    pub async fn copy_target(
        url: &str,
        options: &PostgresOptions,
        source: &str,
    ) -> Result<CopyTarget, PostgresBackupError> {
        let mut driven = MigrationConnection::to(url, options).await?;
        schema::migrate(&mut driven.client).await?;
        let source = source.to_owned();
        match schema::has_unfinished_copy(&driven.client).await? {
            true => {
                let row = driven.client.query_one(SOURCE, &[]).await.map_err(failed)?;
                let begun: String = row.try_get(0).map_err(failed)?;
                if begun != source {
                    return Err(PostgresBackupError::OtherCopy { source_name: begun });
                }
            }
            false => {
                if !Self::is_empty(url, options).await? {
                    return Err(PostgresBackupError::NotEmpty);
                }
                let transaction = driven.client.transaction().await.map_err(failed)?;
                transaction.batch_execute(CREATE_NOTES).await.map_err(failed)?;
                transaction.execute(NOTE, &[&source, &"", &0_i64]).await.map_err(failed)?;
                transaction.commit().await.map_err(failed)?;
            }
        }
        let tables = catalog::tables(&driven.client, MIGRATIONS).await?;
        Ok(CopyTarget { driven, tables, source })
    }
}

impl CopyTarget {
    /// The tables to fill, in this order.
    pub fn tables(&self) -> Result<Vec<TransferTable>, PostgresBackupError> {
        let table = |known: &TableColumns| {
            let columns = known.columns.iter().map(|(name, kind)| match form(kind) {
                Some(form) => Ok(TransferColumn { name: name.clone(), form }),
                None => Err(PostgresBackupError::ColumnType {
                    column: format!("{}.{name}", known.table),
                    kind: kind.clone(),
                }),
            });
            Ok(TransferTable { name: known.table.clone(), columns: columns.collect::<Result<_, _>>()? })
        };
        self.tables.iter().map(table).collect()
    }

    /// The number of rows of a table that were copied before.
    pub async fn copied(&self, table: &str) -> Result<u64, PostgresBackupError> {
        let row = self.driven.client.query_opt(NOTED, &[&self.source, &table]).await.map_err(failed)?;
        let rows: i64 = row.map(|row| row.try_get(0)).transpose().map_err(failed)?.unwrap_or_default();
        Ok(rows.unsigned_abs())
    }

    /// Adds rows to a table, and records the progress.
    pub async fn write(&mut self, table: &TransferTable, lines: Bytes, rows: u64) -> Result<(), PostgresBackupError> {
        let transaction = self.driven.client.transaction().await.map_err(failed)?;
        {
            let columns = table.columns.iter().map(|column| column.name.as_str());
            let mut sink = std::pin::pin!(copy_in(&transaction, &table.name, columns).await?);
            sink.send(lines).await.map_err(failed)?;
            sink.finish().await.map_err(failed)?;
        }
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        transaction.execute(NOTE, &[&self.source, &table.name, &rows]).await.map_err(failed)?;
        Ok(transaction.commit().await.map_err(failed)?)
    }

    /// The digest of a table's current rows.
    pub async fn digest(&self, table: &TransferTable) -> Result<TableDigest, PostgresBackupError> {
        let read = |column: &TransferColumn| match column.form {
            ColumnForm::Words => None,
            ColumnForm::Real => Some(["float8send(", &identifier(&column.name), ")"].concat()),
            _ => Some(identifier(&column.name)),
        };
        let columns: Vec<String> = table.columns.iter().filter_map(read).collect();
        let statement = [COPY, &columns.join(", "), FROM, &identifier(&table.name), TO_STDOUT].concat();
        let mut stream = std::pin::pin!(self.driven.client.copy_out(&statement).await.map_err(failed)?);
        let mut digest = TableDigest::default();
        // Each message of the server is one row.
        while let Some(line) = stream.try_next().await.map_err(failed)? {
            digest.add(line.strip_suffix(b"\n").unwrap_or(&line));
        }
        Ok(digest)
    }

    /// Sets the sequences after the numbers of the rows, or after those in `last`, which were drawn before, and ends
    /// the copy.
    pub async fn finish(
        mut self,
        mut last: impl FnMut(&str) -> Result<Option<i64>, PostgresBackupError>,
    ) -> Result<(), PostgresBackupError> {
        let transaction = self.driven.client.transaction().await.map_err(failed)?;
        for sequence in catalog::sequences(&transaction, &self.tables).await? {
            let most = [MAX, &identifier(&sequence.column), MAX_FROM, &identifier(&sequence.table)].concat();
            let row = transaction.query_one(&most, &[]).await.map_err(failed)?;
            let most: i64 = row.try_get(0).map_err(failed)?;
            let most = most.max(last(&sequence.table)?.unwrap_or_default());
            transaction.query_one(SET_SEQUENCE, &[&sequence.name, &most]).await.map_err(failed)?;
        }
        transaction.batch_execute(DROP_NOTES).await.map_err(failed)?;
        Ok(transaction.commit().await.map_err(failed)?)
    }
}

/// The form of a type's values; `None` for a type that no table has had yet.
fn form(kind: &str) -> Option<ColumnForm> {
    Some(match kind {
        "bigint" | "integer" | "smallint" => ColumnForm::Integer,
        "boolean" => ColumnForm::Boolean,
        "double precision" => ColumnForm::Real,
        "text" | "character varying" => ColumnForm::Text,
        "bytea" => ColumnForm::Bytes,
        "tsvector" => ColumnForm::Words,
        _ => return None,
    })
}
