//! `amalgam copy`: copies a store from SQLite to PostgreSQL, and compares both at the end.
//!
//! A thread reads the source; rows arrive here in batches, each of which is one transaction of the target. A copy that
//! was interrupted continues after the last batch that the target has.

use std::process::ExitCode;

use amalgam_core::AuditAction;
use amalgam_store::transfer::{TableDigest, TransferTable};
use amalgam_store_postgres::{CopyTarget, Postgres, PostgresBackupError};
use amalgam_store_sqlite::{Sqlite, SqliteCopyError, SqliteExport};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

use crate::cli::ConfigArgs;
use crate::command_context::{configuration, record};
use crate::progress::Progress;
use crate::storage;
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::StoreUrl;

/// A batch is complete when it has this many bytes or rows.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_ROWS: u64 = 2_000;
/// The number of batches that the reading thread may be ahead; then it waits.
const AHEAD: usize = 2;

const COPY: AuditAction = AuditAction::new("store.copy");

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Store to copy from: sqlite:PATH
    #[arg(long, value_name = "URL", value_parser = store_url)]
    from: StoreUrl,
    /// Empty store to copy into; prefer the environment variable, so that a password does not appear in the process list
    #[arg(long, value_name = "URL", env = "AMALGAM_COPY_TO", hide_env_values = true, value_parser = store_url)]
    to: StoreUrl,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn store_url(text: &str) -> Result<StoreUrl, String> {
    StoreUrl::read(&SecretString::from(text.to_owned()))
}

/// Rows that were read and have to be written.
struct Batch {
    lines: Vec<u8>,
    rows: u64,
}

/// The result of copying a table.
struct CopiedTable {
    name: String,
    digest: TableDigest,
    resumed: u64,
}

pub(crate) async fn run(args: CopyArgs) -> anyhow::Result<ExitCode> {
    let pool = configuration(args.config)?.pool;
    let (StoreUrl::Sqlite(path), StoreUrl::Postgres(url)) = (&args.from, &args.to) else {
        bail!(
            "stores are copied from SQLite to PostgreSQL, not from {} to {}; 'amalgam backup' and 'amalgam restore' move a \
             store of one kind",
            args.from,
            args.to
        );
    };
    print_stderr(format_args!("from: {}\nto: {}", args.from, args.to));
    if !path.exists() {
        bail!("there is no database at {}", args.from);
    }
    let from = || format!("copying from {}", args.from);
    let path = path.canonicalize().with_context(from)?;
    let mut export = Sqlite::export(&path).with_context(from)?;
    let options = storage::options(pool);
    let others = Postgres::other_sessions(url.expose_secret(), &options).await?;
    if others > 0 {
        bail!("{others} other sessions of amalgam use {}; stop the servers first", args.to);
    }
    let to = || format!("copying to {}", args.to);
    let source = format!("sqlite:{}", path.display());
    let mut target = Postgres::copy_target(url.expose_secret(), &options, &source).await.with_context(to)?;
    let tables = target.tables().with_context(to)?;
    let forgotten = export.forgotten(&tables).with_context(from)?;
    if !forgotten.is_empty() {
        bail!("this version does not know how to copy {}", forgotten.join(", "));
    }
    let mut copied = Vec::new();
    let mut progress = Progress::of("tables", tables.len());
    for table in tables {
        let (done, back) = copy_table(export, &mut target, &table).await?;
        export = back;
        let found = target.digest(&table).await.with_context(to)?;
        if found != done.digest {
            bail!(
                "the table {} has {} rows in the source and {} in the target, or others: the source was changed between two \
                 runs; make the target empty and copy again",
                done.name,
                done.digest.rows,
                found.rows
            );
        }
        progress.add(1);
        copied.push(done);
    }
    drop(progress);
    let last = |table: &str| export.last_number(table).map_err(|error| PostgresBackupError::Source(Box::new(error)));
    target.finish(last).await.with_context(to)?;
    let rows: u64 = copied.iter().map(|table| table.digest.rows).sum();
    let details = json!({"from": args.from.to_string(), "rows": rows, "tables": copied.len()});
    record(&args.to, pool, COPY, &details).await?;
    report(&args.from, &args.to, &copied, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Copies the rows of a table that the target lacks; returns the source, which the reading thread used.
async fn copy_table(
    export: SqliteExport,
    target: &mut CopyTarget,
    table: &TransferTable,
) -> anyhow::Result<(CopiedTable, SqliteExport)> {
    let resumed = target.copied(&table.name).await?;
    let (sender, mut batches) = channel(AHEAD);
    let wanted = table.clone();
    let reading = spawn_blocking(move || {
        let digest = read_table(&export, &wanted, resumed, &sender);
        (digest, export)
    });
    let written = write_batches(&mut batches, target, table).await;
    // Ends a thread that waits for space in the channel.
    drop(batches);
    let (digest, export) = reading.await.context("reading the source")?;
    written?;
    let digest = digest.with_context(|| format!("reading the table {}", table.name))?;
    Ok((CopiedTable { name: table.name.clone(), digest, resumed }, export))
}

async fn write_batches(
    batches: &mut Receiver<Batch>,
    target: &mut CopyTarget,
    table: &TransferTable,
) -> anyhow::Result<()> {
    while let Some(Batch { lines, rows }) = batches.recv().await {
        let written = target.write(table, Bytes::from(lines), rows).await;
        written.with_context(|| format!("writing the table {}", table.name))?;
    }
    Ok(())
}

/// Sends all rows after the first `skipped` in batches; the digest is that of all rows.
fn read_table(
    export: &SqliteExport,
    table: &TransferTable,
    skipped: u64,
    batches: &Sender<Batch>,
) -> anyhow::Result<TableDigest> {
    let empty = || Batch { lines: Vec::new(), rows: 0 };
    let (mut batch, mut seen) = (empty(), 0_u64);
    let send = |batch| batches.blocking_send(batch).map_err(|_| ReadError::Stopped);
    let digest = export.rows(table, &mut |line| {
        seen += 1;
        if seen <= skipped {
            return Ok(());
        }
        batch.lines.extend_from_slice(line);
        batch.rows += 1;
        match batch.lines.len() >= BATCH_BYTES || batch.rows >= BATCH_ROWS {
            true => send(std::mem::replace(&mut batch, empty())),
            false => Ok(()),
        }
    });
    match digest {
        Ok(digest) => {
            if batch.rows > 0 {
                batches.blocking_send(batch).map_err(|_| anyhow::anyhow!("the target takes no more rows"))?;
            }
            Ok(digest)
        }
        Err(ReadError::Source(error)) => Err(error.into()),
        Err(ReadError::Stopped) => bail!("the target takes no more rows"),
    }
}

/// Why reading ended early.
enum ReadError {
    Source(SqliteCopyError),
    Stopped,
}

impl From<SqliteCopyError> for ReadError {
    fn from(error: SqliteCopyError) -> Self {
        Self::Source(error)
    }
}

fn report(from: &StoreUrl, to: &StoreUrl, copied: &[CopiedTable], as_json: bool) -> anyhow::Result<()> {
    let rows: u64 = copied.iter().map(|table| table.digest.rows).sum();
    let resumed: u64 = copied.iter().map(|table| table.resumed).sum();
    if as_json {
        let table = |table: &CopiedTable| -> (String, Value) {
            (table.name.clone(), json!({"rows": table.digest.rows, "digest": table.digest.text()}))
        };
        let tables: serde_json::Map<String, Value> = copied.iter().map(table).collect();
        return Ok(print_json(&json!({
            "from": from.to_string(),
            "to": to.to_string(),
            "rows": rows,
            "rows_copied_before": resumed,
            "tables": tables,
        }))?);
    }
    let before = if resumed > 0 { format!(", {resumed} of them by an earlier run") } else { String::new() };
    print_stdout(format_args!(
        "{rows} rows in {} tables copied to {to}{before}; counts and digests agree",
        copied.len()
    ))?;
    print_stdout(
        "the master key is not copied: start the servers of the new store with the same secret.key or AMALGAM_SECRET_KEY",
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_address_without_repeating_a_bad_one() {
        assert!(matches!(store_url("sqlite:a.db"), Ok(StoreUrl::Sqlite(path)) if path.as_os_str() == "a.db"));
        assert!(matches!(store_url("postgres://u:p@h/d"), Ok(StoreUrl::Postgres(_))));
        assert!(!store_url("mysql://hush").unwrap_err().contains("hush"));
    }
}
