//! `amalgam migrate`: migrates the store's schema, or lists pending migrations. `serve` migrates by itself.

use std::path::PathBuf;
use std::process::ExitCode;

use amalgam_core::{AuditAction, INSTALLATION, Operator};
use amalgam_store::migrate::{MigrationProblem, MigrationStatus};
use amalgam_store_sqlite::{MigrationBackup, Sqlite};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::command_context::{actor, configuration, now_ms};
use crate::storage;
use crate::table::table;
use crate::terminal::{print_json, print_stderr, print_stdout};
use amalgam_configuration::StoreUrl;

const MIGRATE: AuditAction = AuditAction::new("store.migrate");

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only print which migrations are applied and which are pending
    #[arg(long)]
    status: bool,
    /// Do not copy an SQLite database to a file beside it first
    #[arg(long, conflicts_with = "status")]
    no_backup: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: MigrateArgs) -> anyhow::Result<ExitCode> {
    let config = configuration(args.config)?;
    let before = storage::status(&config.store, config.pool).await?;
    if args.status {
        match args.json {
            true => print_json(&as_json(&config.store.to_string(), &before, &[]))?,
            false => {
                print_stderr(format_args!("store: {}", config.store));
                print_stdout(as_table(&before))?;
            }
        }
        // A database that `serve` would refuse makes the command fail.
        let usable = before.iter().all(|migration| migration.problem.is_none());
        return Ok(if usable { ExitCode::SUCCESS } else { ExitCode::from(crate::FAILURE) });
    }
    let backup = if args.no_backup { MigrationBackup::Skip } else { MigrationBackup::Make };
    let opened = storage::migrate(&config.store, config.pool, backup).await?;
    for warning in &opened.warnings {
        print_stderr(format_args!("warning: {warning}"));
    }
    let now: Vec<&str> = before.iter().filter(|one| !one.applied).map(|one| one.name.as_str()).collect();
    let copy = match args.no_backup || now.is_empty() {
        true => None,
        false => copy_before(&config.store, &before),
    };
    if !now.is_empty() {
        let operator = Operator::of_this_process();
        let draft = actor().change(now_ms(), INSTALLATION, MIGRATE, config.store.name());
        let draft = draft.after(Some(json!({"applied": now}).to_string()));
        opened.store.append_audit(operator, draft).await?;
    }
    match (args.json, now.is_empty()) {
        (true, _) => {
            let after = storage::status(&config.store, config.pool).await?;
            let mut report = as_json(&config.store.to_string(), &after, &now);
            report["backup"] = json!(copy);
            print_json(&report)?;
        }
        (false, true) => print_stdout(format_args!("{} is up to date", config.store))?,
        (false, false) => print_stdout(format_args!("{}: applied {}", config.store, now.join(", ")))?,
    }
    if let (false, Some(copy)) = (args.json, copy) {
        print_stdout(format_args!("the database as it was before is in {}", copy.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The copy that the migration has made: of an SQLite database with data.
fn copy_before(store: &StoreUrl, before: &[MigrationStatus]) -> Option<PathBuf> {
    let StoreUrl::Sqlite(path) = store else { return None };
    let version = before.iter().filter(|one| one.applied).map(|one| one.version).max()?;
    Some(Sqlite::migration_backup(path.canonicalize().ok()?, version)).filter(|copy| copy.exists())
}

fn as_table(status: &[MigrationStatus]) -> String {
    let state = |one: &MigrationStatus| match (one.problem, one.applied) {
        (Some(MigrationProblem::Changed), _) => "applied, but its checksum is not that of this binary",
        (Some(MigrationProblem::Unknown), _) => "applied, but unknown to this binary",
        (None, true) => "applied",
        (None, false) => "pending",
    };
    let row = |one: &MigrationStatus| [one.version.to_string(), one.name.clone(), state(one).to_owned()];
    table(["version", "name", "state"], &status.iter().map(row).collect::<Vec<_>>())
}

fn as_json(store: &str, status: &[MigrationStatus], now: &[&str]) -> Value {
    let problem = |problem: MigrationProblem| match problem {
        MigrationProblem::Changed => "checksum",
        MigrationProblem::Unknown => "unknown",
    };
    let one = |one: &MigrationStatus| {
        json!({
            "version": one.version,
            "name": one.name,
            "applied": one.applied,
            "problem": one.problem.map(problem),
        })
    };
    json!({"store": store, "migrations": status.iter().map(one).collect::<Vec<_>>(), "applied_now": now})
}
