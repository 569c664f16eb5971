//! Calls that wait for approval.

use amalgam_core::{
    AuditDraft, Decider, Scope, StoreError,
    store::{Approval, Decision, DecisionOutcome},
};

use crate::{
    audit,
    bank::decider,
    engine::{SqlConnection, TenantKey},
    sql::shared_statements,
    values::{SqlRow, values},
};

shared_statements! {
    UserSql APPROVAL = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    TenantSql APPROVAL_OF_TENANT = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND id = $2";
    TenantSql APPROVALS = "
        SELECT id, user_id, response_id, call_id, label, name, arguments, decider, asked_at, expires_at, approve, reason,
            decided_by, decided_at, used_by
        FROM approvals WHERE tenant_id = $1 AND (asked_at, id) < ($2, $3)
        ORDER BY asked_at DESC, id DESC LIMIT $4";
    UserSql DECIDE = "
        UPDATE approvals SET approve = $4, reason = $5, decided_by = $6, decided_at = $7
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3";
    TenantSql DECIDE_OF_TENANT = "
        UPDATE approvals SET approve = $3, reason = $4, decided_by = $5, decided_at = $6
        WHERE tenant_id = $1 AND id = $2";
    pub(crate) UserSql USE_APPROVAL = "
        UPDATE approvals SET used_by = $4
        WHERE tenant_id = $1 AND user_id = $2 AND id = $3 AND approve AND COALESCE(used_by, $4) = $4";
}

/// The viewer of an approval, which determines the visible ones.
#[derive(Debug, Clone)]
pub(crate) enum ApprovalViewer {
    /// A caller, who sees the approvals of its own turns.
    Caller(Scope),
    /// An administrator, who sees the approvals of all users of the tenant.
    Admin(TenantKey),
}

impl ApprovalViewer {
    /// One approval.
    pub(crate) async fn find<C: SqlConnection>(
        &self,
        connection: &C,
        id: &str,
    ) -> Result<Option<Approval>, C::Failure> {
        match self {
            Self::Caller(scope) => connection.user(scope, APPROVAL, values![id]),
            Self::Admin(tenant) => connection.tenant(*tenant, APPROVAL_OF_TENANT, values![id]),
        }
        .first(approval)
        .await
    }

    fn role(&self) -> Decider {
        match self {
            Self::Caller(_) => Decider::Caller,
            Self::Admin(_) => Decider::Admin,
        }
    }
}

/// A page of a tenant's approvals, the newest first; of those that are pending at a time, or of all.
pub(crate) async fn list<C: SqlConnection>(
    connection: &C,
    tenant: TenantKey,
    pending_at_ms: Option<u64>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Approval>, C::Failure> {
    let (asked_at_ms, id) = match after {
        None => (u64::MAX, ""),
        Some(after) => match ApprovalViewer::Admin(tenant).find(connection, after).await? {
            Some(last) => (last.asked_at_ms, after),
            None => return Ok(Vec::new()),
        },
    };
    match pending_at_ms {
        None => connection.tenant(tenant, APPROVALS, values![asked_at_ms, id, limit]),
        Some(now_ms) => {
            connection.tenant(tenant, connection.sql().approvals_pending, values![asked_at_ms, id, limit, now_ms])
        }
    }
    .all(approval)
    .await
}

/// Records a decision, unless there is one; `None` if the asker has no such approval. Inside a transaction.
pub(crate) async fn decide<C: SqlConnection>(
    connection: &C,
    asker: &ApprovalViewer,
    id: &str,
    decision: &Decision,
    audit: Option<&AuditDraft>,
) -> Result<Option<DecisionOutcome>, C::Failure> {
    let held = match asker {
        ApprovalViewer::Caller(scope) => connection.user(scope, connection.sql().hold_approval, values![id]),
        ApprovalViewer::Admin(tenant) => {
            connection.tenant(*tenant, connection.sql().hold_approval_of_tenant, values![id])
        }
    };
    let Some(mut approval) = held.first(approval).await? else { return Ok(None) };
    if let Some(decided) = decided_before(&approval, decision, asker.role()) {
        return Ok(Some(decided(Box::new(approval))));
    }
    let values = values![id, decision.approve, &decision.reason, &decision.by, decision.at_ms];
    match asker {
        ApprovalViewer::Caller(scope) => connection.user(scope, DECIDE, values),
        ApprovalViewer::Admin(tenant) => connection.tenant(*tenant, DECIDE_OF_TENANT, values),
    }
    .run()
    .await?;
    if let Some(audit) = audit {
        audit::append(connection, audit).await?;
    }
    approval.decision = Some(decision.clone());
    Ok(Some(DecisionOutcome::Stands(Box::new(approval))))
}

/// The outcome of a decision that must not be written; `None` if it must be written. The first decision is final if it
/// comes in time and from a user who may decide.
fn decided_before(
    approval: &Approval,
    decision: &Decision,
    by: Decider,
) -> Option<fn(Box<Approval>) -> DecisionOutcome> {
    match &approval.decision {
        _ if approval.decider == Decider::Admin && by == Decider::Caller => Some(DecisionOutcome::NotYours),
        Some(before) if before.approve == decision.approve => Some(DecisionOutcome::Stands),
        Some(_) => Some(DecisionOutcome::TooLate),
        None if decision.at_ms >= approval.expires_at_ms => Some(DecisionOutcome::TooLate),
        None => None,
    }
}

fn approval(row: &dyn SqlRow) -> Result<Approval, StoreError> {
    let decision = row.optional(10)?.map(|approve| {
        let (reason, by, at_ms) = (row.optional(11)?, row.get(12)?, row.get(13)?);
        Ok::<_, StoreError>(Decision { approve, reason, by, at_ms })
    });
    Ok(Approval {
        id: row.get(0)?,
        user: row.get(1)?,
        response_id: row.get(2)?,
        call_id: row.get(3)?,
        label: row.get(4)?,
        name: row.get(5)?,
        arguments: row.get(6)?,
        decider: decider(row.get(7)?)?,
        asked_at_ms: row.get(8)?,
        expires_at_ms: row.get(9)?,
        decision: decision.transpose()?,
        used_by: row.optional(14)?,
    })
}
