//! `amalgam migrate`: migrates the store's schema, or lists pending migrations. `serve` migrates by itself.

use std::process::ExitCode;

use amalgam_core::{AuditAction, INSTALLATION, Operator};
use amalgam_store::migrate::{MigrationProblem, MigrationStatus};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::ConfigArgs;
use crate::command_context::{actor, configuration, now_ms};
use crate::storage::{self, StorePurpose};
use crate::table::table;
use crate::terminal::{print_json, print_stderr, print_stdout};

const MIGRATE: AuditAction = AuditAction::new("store.migrate");

#[derive(Debug, Args)]
pub(crate) struct MigrateArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only print which migrations are applied and which are pending
    #[arg(long)]
    status: bool,
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
    let opened = storage::open(&config.store, config.pool, StorePurpose::Command).await?;
    for warning in &opened.warnings {
        print_stderr(format_args!("warning: {warning}"));
    }
    let now: Vec<&str> = before.iter().filter(|one| !one.applied).map(|one| one.name.as_str()).collect();
    if !now.is_empty() {
        let operator = Operator::of_this_process();
        let draft = actor().change(now_ms(), INSTALLATION, MIGRATE, config.store.name());
        let draft = draft.after(Some(json!({"applied": now}).to_string()));
        opened.store.append_audit(operator, draft).await?;
    }
    match (args.json, now.is_empty()) {
        (true, _) => {
            print_json(&as_json(&config.store.to_string(), &storage::status(&config.store, config.pool).await?, &now))?
        }
        (false, true) => print_stdout(format_args!("{} is up to date", config.store))?,
        (false, false) => print_stdout(format_args!("{}: applied {}", config.store, now.join(", ")))?,
    }
    Ok(ExitCode::SUCCESS)
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
