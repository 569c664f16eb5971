//! Calls of tools as their turns write them: before each runs, and when it is over.

use amalgam_core::{
    Scope,
    store::{ToolRun, TurnWrite},
};
use rusqlite::Row;

use super::{
    approvals,
    failure::Failure,
    query::{Database, Tenant, int, optional_int, optional_text, optional_uint, uint},
    sql,
};
use crate::bank;

/// What one step of a turn says about its tools.
pub(super) fn add(database: Database<'_>, scope: &Scope, write: &TurnWrite) -> Result<(), Failure> {
    for run in &write.tools {
        put(database, scope, &write.response_id, run)?;
    }
    for approval in &write.approvals {
        approvals::add(database, scope, &write.response_id, approval)?;
    }
    Ok(())
}

fn put(database: Database<'_>, scope: &Scope, response_id: &str, run: &ToolRun) -> Result<(), Failure> {
    let outcome = run.outcome.as_ref();
    database
        .user(
            scope,
            sql::PUT_RUN,
            &[
                &response_id,
                &run.number,
                &run.label,
                &run.name,
                &run.item_id,
                &run.call_id,
                &run.idempotent,
                &int(run.started_at_ms)?,
                &optional_int(outcome.map(|outcome| outcome.duration_ms))?,
                &outcome.and_then(|outcome| outcome.error.as_deref()),
                &outcome.and_then(|outcome| outcome.detail.as_deref()),
                &run.arguments,
                &outcome.map(|outcome| outcome.output.raw().text()),
            ],
        )?
        .run()?;
    Ok(())
}

/// The calls of a response, in order.
pub(super) fn runs(database: Database<'_>, tenant: Tenant, response_id: &str) -> Result<Vec<ToolRun>, Failure> {
    database.tenant(tenant, sql::RUNS, &[&response_id])?.all(run)
}

/// The tools of a response that had begun, must not be run again, and whose outcome is not known.
pub(super) fn unknown(database: Database<'_>, tenant: Tenant, response_id: &str) -> Result<Vec<String>, Failure> {
    let mut names: Vec<String> = Vec::new();
    database.tenant(tenant, sql::UNKNOWN_RUNS, &[&response_id])?.until(|row| {
        let name = row.get(0)?;
        if !names.contains(&name) {
            names.push(name);
        }
        Ok(true)
    })?;
    Ok(names)
}

/// Forgets the calls of a response that is gone, and what was asked about them.
pub(super) fn forget(database: Database<'_>, scope: &Scope, response_id: &str) -> Result<(), Failure> {
    for statement in [sql::FORGET_RUNS, sql::FORGET_APPROVALS] {
        database.user(scope, statement, &[&response_id])?.run()?;
    }
    Ok(())
}

fn run(row: &Row<'_>) -> Result<ToolRun, Failure> {
    Ok(ToolRun {
        number: row.get(0)?,
        item_id: row.get(1)?,
        call_id: row.get(2)?,
        label: row.get(3)?,
        name: row.get(4)?,
        arguments: row.get(5)?,
        idempotent: row.get(6)?,
        started_at_ms: uint(row, 7)?,
        outcome: bank::outcome(optional_text(row, 8)?, row.get(9)?, row.get(10)?, optional_uint(row, 11)?),
    })
}
