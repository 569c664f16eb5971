//! Calls that wait for approval.

use amalgam_core::{
    Decider, Scope,
    store::{Approval, Decided, Decision},
};
use rusqlite::Row;

use super::{
    failure::Failure,
    query::{Database, Tenant, int, most, optional_int, text, uint},
    sql,
};
use crate::bank;

/// Who asks about an approval, and so what there is for them.
#[derive(Clone)]
pub(super) enum Asker {
    /// A caller: its own.
    Caller(Scope),
    /// An administrator: those of all users of the tenant.
    Admin(Tenant),
}

/// What one step of a turn asks. Whose it is says the turn.
pub(super) fn add(
    database: Database<'_>,
    scope: &Scope,
    response_id: &str,
    approval: &Approval,
) -> Result<(), Failure> {
    let decision = approval.decision.as_ref();
    database
        .user(
            scope,
            sql::ADD_APPROVAL,
            &[
                &approval.id,
                &response_id,
                &approval.call_id,
                &approval.label,
                &approval.name,
                &approval.arguments,
                &approval.decider.name(),
                &int(approval.asked_at_ms)?,
                &int(approval.expires_at_ms)?,
                &decision.map(|decision| decision.approve),
                &decision.and_then(|decision| decision.reason.as_deref()),
                &decision.map(|decision| decision.by.as_str()),
                &optional_int(decision.map(|decision| decision.at_ms))?,
                &approval.used_by,
            ],
        )?
        .run()?;
    Ok(())
}

/// One approval.
pub(super) fn get(database: Database<'_>, asker: &Asker, id: &str) -> Result<Option<Approval>, Failure> {
    match asker {
        Asker::Caller(scope) => database.user(scope, sql::APPROVAL, &[&id])?,
        Asker::Admin(tenant) => database.tenant(*tenant, sql::APPROVAL_OF_TENANT, &[&id])?,
    }
    .first(approval)
}

/// A page of a tenant's, the newest first; of those that are pending at a moment, or of all for none.
pub(super) fn list(
    database: Database<'_>,
    tenant: Tenant,
    pending_at_ms: Option<u64>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Approval>, Failure> {
    let (asked_at, id) = match after {
        None => (i64::MAX, ""),
        Some(after) => match get(database, &Asker::Admin(tenant), after)? {
            Some(last) => (int(last.asked_at_ms)?, after),
            None => return Ok(Vec::new()),
        },
    };
    let limit = most(limit);
    match pending_at_ms {
        None => database.tenant(tenant, sql::APPROVALS, &[&asked_at, &id, &limit])?,
        Some(now_ms) => database.tenant(tenant, sql::APPROVALS_PENDING, &[&asked_at, &id, &limit, &int(now_ms)?])?,
    }
    .all(approval)
}

/// Decides, unless that was done; nothing when the caller has no such approval.
pub(super) fn decide(
    database: Database<'_>,
    asker: &Asker,
    id: &str,
    decision: &Decision,
) -> Result<Option<Decided>, Failure> {
    let Some(mut approval) = get(database, asker, id)? else { return Ok(None) };
    let by = match asker {
        Asker::Caller(_) => Decider::Caller,
        Asker::Admin(_) => Decider::Admin,
    };
    if let Some(settled) = bank::settled(&approval, decision, by) {
        return Ok(Some(settled(Box::new(approval))));
    }
    let at = int(decision.at_ms)?;
    let columns: [&dyn rusqlite::ToSql; 5] = [&id, &decision.approve, &decision.reason, &decision.by, &at];
    match asker {
        Asker::Caller(scope) => database.user(scope, sql::DECIDE, &columns)?,
        Asker::Admin(tenant) => database.tenant(*tenant, sql::DECIDE_OF_TENANT, &columns)?,
    }
    .run()?;
    approval.decision = Some(decision.clone());
    Ok(Some(Decided::Stands(Box::new(approval))))
}

fn approval(row: &Row<'_>) -> Result<Approval, Failure> {
    Ok(Approval {
        id: row.get(0)?,
        user: row.get(1)?,
        response_id: row.get(2)?,
        call_id: row.get(3)?,
        label: row.get(4)?,
        name: row.get(5)?,
        arguments: row.get(6)?,
        decider: bank::decider(text(row, 7)?)?,
        asked_at_ms: uint(row, 8)?,
        expires_at_ms: uint(row, 9)?,
        decision: match row.get(10)? {
            None => None,
            Some(approve) => Some(Decision { approve, reason: row.get(11)?, by: row.get(12)?, at_ms: uint(row, 13)? }),
        },
        used_by: row.get(14)?,
    })
}
