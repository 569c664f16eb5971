//! Calls of tools as their turns write them: before each runs, and when it is over.
use amalgam_core::{
    Scope,
    store::{ToolRun, TurnWrite},
};
use amalgam_store::{TenantKey, bank::tool_run, statements};

use super::{
    approvals,
    connection::SqliteRow,
    failure::SqliteFailure,
    query::{Database, int, optional_int},
};

statements! {
    UserSql PUT_RUN = "
        INSERT INTO tool_runs (tenant_id, user_id, response_id, number, label, name, item_id, call_id, idempotent,
            started_at, duration_ms, error, detail, arguments, output)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
        ON CONFLICT (tenant_id, response_id, number) DO UPDATE SET label = excluded.label, name = excluded.name,
            item_id = excluded.item_id, call_id = excluded.call_id, idempotent = excluded.idempotent,
            started_at = excluded.started_at, duration_ms = excluded.duration_ms, error = excluded.error,
            detail = excluded.detail, arguments = excluded.arguments, output = excluded.output";
    UserSql FORGET_RUNS = "DELETE FROM tool_runs WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
    UserSql FORGET_APPROVALS = "DELETE FROM approvals WHERE tenant_id = ?1 AND user_id = ?2 AND response_id = ?3";
    TenantSql RUNS = "
        SELECT number, item_id, call_id, label, name, arguments, idempotent, started_at, output, error, detail,
            duration_ms
        FROM tool_runs WHERE tenant_id = ?1 AND response_id = ?2 ORDER BY number";
    TenantSql UNKNOWN_RUNS = "
        SELECT name FROM tool_runs
        WHERE tenant_id = ?1 AND response_id = ?2 AND output IS NULL AND idempotent = 0 ORDER BY number";
}

/// Writes the tool calls of one step of a turn.
pub(super) fn add(database: Database<'_>, scope: &Scope, write: &TurnWrite) -> Result<(), SqliteFailure> {
    for run in &write.tools {
        put(database, scope, &write.response_id, run)?;
    }
    for approval in &write.approvals {
        approvals::add(database, scope, &write.response_id, approval)?;
    }
    Ok(())
}

fn put(database: Database<'_>, scope: &Scope, response_id: &str, run: &ToolRun) -> Result<(), SqliteFailure> {
    let outcome = run.outcome.as_ref();
    database
        .user(
            scope,
            PUT_RUN,
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
pub(super) fn runs(
    database: Database<'_>,
    tenant: TenantKey,
    response_id: &str,
) -> Result<Vec<ToolRun>, SqliteFailure> {
    database.tenant(tenant, RUNS, &[&response_id])?.all(|row| Ok(tool_run(&SqliteRow(row))?))
}

/// The tools of a response that had begun, are not idempotent, and have no recorded end.
pub(super) fn unknown(
    database: Database<'_>,
    tenant: TenantKey,
    response_id: &str,
) -> Result<Vec<String>, SqliteFailure> {
    let mut names: Vec<String> = Vec::new();
    database.tenant(tenant, UNKNOWN_RUNS, &[&response_id])?.until(|row| {
        let name = row.get(0)?;
        if !names.contains(&name) {
            names.push(name);
        }
        Ok(true)
    })?;
    Ok(names)
}

/// Deletes the tool calls of a deleted response, and their approvals.
pub(super) fn forget(database: Database<'_>, scope: &Scope, response_id: &str) -> Result<(), SqliteFailure> {
    for statement in [FORGET_RUNS, FORGET_APPROVALS] {
        database.user(scope, statement, &[&response_id])?.run()?;
    }
    Ok(())
}
