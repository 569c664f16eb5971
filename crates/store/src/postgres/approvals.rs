//! Calls that wait for approval.

use amalgam_core::{
    Admin, Decider, Scope, StoreError,
    store::{Approval, Decided, Decision},
};
use tokio_postgres::Row;

use super::{
    connection::{Connection, Failure, Param},
    job::{signed, unsigned},
    pool::{Lease, Pool},
    sql::statements,
};
use crate::bank;

statements! {
    Caller APPROVAL = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Admin APPROVAL_OF_TENANT = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND id = $2";
    Admin APPROVALS = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND (asked_at, id) < ($2, $3)
        ORDER BY asked_at DESC, id DESC LIMIT $4";
    Admin APPROVALS_PENDING = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals
        WHERE tenant_id = $1 AND (asked_at, id) < ($2, $3) AND approve IS NULL AND expires_at > $5
        ORDER BY asked_at DESC, id DESC LIMIT $4";
    /// Locked against other decisions meanwhile.
    Caller HOLD = "SELECT 1 FROM approvals WHERE tenant_id = $1 AND user_id = $2 AND id = $3 FOR UPDATE";
    Admin HOLD_OF_TENANT = "SELECT 1 FROM approvals WHERE tenant_id = $1 AND id = $2 FOR UPDATE";
    Caller DECIDE = "
        UPDATE approvals SET approve = $4, reason = $5, decided_by = $6, decided_at = $7
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    Admin DECIDE_OF_TENANT = "
        UPDATE approvals SET approve = $3, reason = $4, decided_by = $5, decided_at = $6
        WHERE tenant_id = $1 AND id = $2";
    Caller USE_APPROVAL = "
        UPDATE approvals SET used_by = $4
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3 AND approve AND COALESCE(used_by, $4) = $4";
}

/// Who asks about an approval, and so what there is for them.
#[derive(Clone, Copy)]
pub(super) enum Asker<'a> {
    /// A caller: its own.
    Caller(&'a Scope),
    /// An administrator: those of all users of the tenant.
    Admin(Admin<'a>),
}

/// One approval.
pub(super) async fn get(pool: &Pool, asker: Asker<'_>, id: &str) -> Result<Option<Approval>, StoreError> {
    pool.repeatably(move |connection: Lease| async move { find(&connection, asker, id).await }).await
}

async fn find(connection: &Connection, asker: Asker<'_>, id: &str) -> Result<Option<Approval>, Failure> {
    let row = match asker {
        Asker::Caller(scope) => connection.row(&APPROVAL, &[&scope.tenant_id(), &scope.user(), &id]).await?,
        Asker::Admin(admin) => connection.row(&APPROVAL_OF_TENANT, &[&admin.tenant_id(), &id]).await?,
    };
    row.as_ref().map(approval_from).transpose()
}

/// A page of a tenant's, the newest first; of those that are pending at a moment, or of all for none.
pub(super) async fn list(
    pool: &Pool,
    admin: Admin<'_>,
    pending_at_ms: Option<u64>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Approval>, StoreError> {
    pool.repeatably(move |connection: Lease| async move {
        let (asked_at, id) = match after {
            None => (i64::MAX, ""),
            Some(after) => match find(&connection, Asker::Admin(admin), after).await? {
                Some(last) => (signed(last.asked_at_ms), after),
                None => return Ok(Vec::new()),
            },
        };
        let (tenant_id, limit) = (admin.tenant_id(), i64::try_from(limit).unwrap_or(i64::MAX));
        let found = match pending_at_ms {
            None => connection.rows(&APPROVALS, &[&tenant_id, &asked_at, &id, &limit]).await?,
            Some(now_ms) => {
                let params: [Param<'_>; 5] = [&tenant_id, &asked_at, &id, &limit, &signed(now_ms)];
                connection.rows(&APPROVALS_PENDING, &params).await?
            }
        };
        found.iter().map(approval_from).collect()
    })
    .await
}

/// Decides, unless that was done; nothing when the caller has no such approval. The same decision once more stands as
/// the first one did, so that it may be tried again.
pub(super) async fn decide(
    pool: &Pool,
    asker: Asker<'_>,
    id: &str,
    decision: &Decision,
) -> Result<Option<Decided>, StoreError> {
    pool.repeatably(move |mut connection: Lease| async move {
        connection.begin().await?;
        let decided = decide_within(&connection, asker, id, decision).await;
        connection.end(decided).await
    })
    .await
}

async fn decide_within(
    connection: &Connection,
    asker: Asker<'_>,
    id: &str,
    decision: &Decision,
) -> Result<Option<Decided>, Failure> {
    // What is read behind the lock is how things are: a statement that had to wait for it has looked before.
    match asker {
        Asker::Caller(scope) => connection.row(&HOLD, &[&scope.tenant_id(), &scope.user(), &id]).await?,
        Asker::Admin(admin) => connection.row(&HOLD_OF_TENANT, &[&admin.tenant_id(), &id]).await?,
    };
    let Some(mut approval) = find(connection, asker, id).await? else { return Ok(None) };
    let by = match asker {
        Asker::Caller(_) => Decider::Caller,
        Asker::Admin(_) => Decider::Admin,
    };
    if let Some(settled) = bank::settled(&approval, decision, by) {
        return Ok(Some(settled(Box::new(approval))));
    }
    let at = signed(decision.at_ms);
    let columns: [Param<'_>; 5] = [&id, &decision.approve, &decision.reason, &decision.by, &at];
    match asker {
        Asker::Caller(scope) => {
            let (tenant_id, user) = (scope.tenant_id(), scope.user());
            let key: [Param<'_>; 2] = [&tenant_id, &user];
            connection.execute(&DECIDE, &[&key[..], &columns].concat()).await?
        }
        Asker::Admin(admin) => {
            let tenant_id = admin.tenant_id();
            let key: [Param<'_>; 1] = [&tenant_id];
            connection.execute(&DECIDE_OF_TENANT, &[&key[..], &columns].concat()).await?
        }
    };
    approval.decision = Some(decision.clone());
    Ok(Some(Decided::Stands(Box::new(approval))))
}

/// Notes that a response acts on what was granted; whether it may.
pub(super) async fn use_once(pool: &Pool, scope: &Scope, id: &str, response_id: &str) -> Result<bool, StoreError> {
    pool.repeatably(move |connection: Lease| async move {
        let params: [Param<'_>; 4] = [&scope.tenant_id(), &scope.user(), &id, &response_id];
        Ok(connection.execute(&USE_APPROVAL, &params).await? == 1)
    })
    .await
}

fn approval_from(row: &Row) -> Result<Approval, Failure> {
    Ok(Approval {
        id: row.try_get(0)?,
        user: row.try_get(1)?,
        response_id: row.try_get(2)?,
        call_id: row.try_get(3)?,
        label: row.try_get(4)?,
        name: row.try_get(5)?,
        arguments: row.try_get(6)?,
        decider: bank::decider(row.try_get(7)?)?,
        asked_at_ms: unsigned(row.try_get(8)?),
        expires_at_ms: unsigned(row.try_get(9)?),
        decision: match row.try_get(10)? {
            None => None,
            Some(approve) => Some(Decision {
                approve,
                reason: row.try_get(11)?,
                by: row.try_get(12)?,
                at_ms: unsigned(row.try_get(13)?),
            }),
        },
        used_by: row.try_get(14)?,
    })
}
