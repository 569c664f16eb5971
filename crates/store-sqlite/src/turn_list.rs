//! The list of turns and the usage, as turns write them.

use amalgam_core::{Operator, Scope, TurnSummary};
use amalgam_store::{
    TenantKey, statements,
    turn_list::{ADD_USAGE, COUNT_ENDED, PUT_TURN, UsageRow, turn_values, usage_rows},
};

use super::{
    failure::SqliteFailure,
    job::Transaction,
    query::{Database, int},
};

statements! {
    /// A turn of a dead process.
    TenantSql FAIL_TURN = "
        UPDATE turns SET status = 'failed', error = 'server_error', ended_at = ?4
        WHERE tenant_id = ?1 AND created_at = ?2 AND response_id = ?3 AND ended_at IS NULL";
    /// A turn that was cancelled before a process ran it.
    UserSql CANCEL_QUEUED_TURN = "
        UPDATE turns SET status = 'cancelled', ended_at = ?5
        WHERE tenant_id = ?1 AND user_id = ?2 AND created_at = ?3 AND response_id = ?4 AND status = 'queued'
            AND ended_at IS NULL";
    /// The content of a turn was deleted.
    UserSql FORGET_CONTENT = "
        UPDATE turns SET stored = 0 WHERE tenant_id = ?1 AND user_id = ?2 AND created_at = ?3 AND response_id = ?4";
    OperatorSql OLD_TURNS = "
        DELETE FROM turns WHERE (tenant_id, created_at, response_id) IN (
            SELECT tenant_id, created_at, response_id FROM turns
            WHERE tenant_id = ?1 AND created_at < ?2 AND ended_at IS NOT NULL LIMIT ?3
        )";
    OperatorSql TENANTS = "SELECT id FROM tenants";
}

/// Adds a turn to the list, or ends it there. When it ends, it is counted in the usage.
pub(super) fn put(transaction: &Transaction<'_>, turn: &TurnSummary) -> Result<(), SqliteFailure> {
    let changed = transaction.database.bind_values(PUT_TURN.into(), &turn_values(turn), &[])?.run()?;
    if changed == 1 && turn.ended_at_ms.is_some() {
        transaction.count_turn(turn.clone());
    }
    Ok(())
}

/// Adds ended turns to the usage, with one statement for all turns of a row.
pub(super) fn add_usage(database: Database<'_>, turns: &[TurnSummary]) -> Result<(), SqliteFailure> {
    let mut rows: Vec<UsageRow<'_>> = Vec::new();
    for row in turns.iter().flat_map(usage_rows) {
        match rows.iter_mut().find(|known| known.is_same(&row)) {
            Some(known) => known.sums.add(&row.sums),
            None => rows.push(row),
        }
    }
    rows.iter().try_for_each(|row| database.bind_values(ADD_USAGE.into(), &row.values(), &[])?.run().map(drop))
}

/// Ends a turn whose process is gone. What the call used that it was waiting for is not known.
pub(super) fn fail(
    database: Database<'_>,
    tenant: TenantKey,
    created_at: i64,
    response_id: &str,
    now_ms: u64,
) -> Result<(), SqliteFailure> {
    let ended = database.tenant(tenant, FAIL_TURN, &[&created_at, &response_id, &int(now_ms)?])?.run()?;
    if ended == 1 { count(database, tenant, created_at, response_id) } else { Ok(()) }
}

/// Counts a turn in the usage that was ended by another process.
fn count(database: Database<'_>, tenant: TenantKey, created_at: i64, response_id: &str) -> Result<(), SqliteFailure> {
    database.tenant(tenant, COUNT_ENDED, &[&created_at, &response_id])?.run().map(drop)
}

/// Ends a turn that was cancelled while it waited in the queue. A process that runs a turn ends it itself, with its usage.
pub(super) fn cancel_queued(
    database: Database<'_>,
    scope: &Scope,
    created_at_ms: u64,
    response_id: &str,
    now_ms: u64,
) -> Result<(), SqliteFailure> {
    let created_at = int(created_at_ms)?;
    let params: [&dyn rusqlite::ToSql; 3] = [&created_at, &response_id, &int(now_ms)?];
    let ended = database.user(scope, CANCEL_QUEUED_TURN, &params)?.run()?;
    if ended == 1 { count(database, TenantKey::of_caller(scope), created_at, response_id) } else { Ok(()) }
}

/// Records that the content of a turn was deleted. The turn stays in the list until the retention ends.
pub(super) fn forget_content(
    database: Database<'_>,
    scope: &Scope,
    created_at: i64,
    response_id: &str,
) -> Result<(), SqliteFailure> {
    database.user(scope, FORGET_CONTENT, &[&created_at, &response_id])?.run().map(drop)
}

/// Deletes old turns from the list, a bounded number for each tenant. The usage stays.
pub(super) fn prune(
    database: Database<'_>,
    operator: Operator,
    before: i64,
    at_once: i64,
) -> Result<u64, SqliteFailure> {
    let tenants: Vec<i64> = database.operator(operator, TENANTS, &[])?.all(|row| Ok(row.get(0)?))?;
    let mut rows = 0;
    for tenant_id in tenants {
        rows += database.operator(operator, OLD_TURNS, &[&tenant_id, &before, &at_once])?.run()?;
    }
    Ok(rows)
}
