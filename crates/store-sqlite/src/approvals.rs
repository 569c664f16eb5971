//! Calls that wait for approval.

use amalgam_core::{Scope, store::Approval};
use amalgam_store::statements;

use super::{
    failure::SqliteFailure,
    query::{Database, int, optional_int},
};

statements! {
    UserSql ADD_APPROVAL = "
        INSERT INTO approvals (tenant_id, user_id, id, response_id, call_id, label, name, arguments, decider, asked_at,
            expires_at, approve, reason, decided_by, decided_at, used_by)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
}

/// Adds the approvals that one step of a turn requests. Their owner is the turn's.
pub(super) fn add(
    database: Database<'_>,
    scope: &Scope,
    response_id: &str,
    approval: &Approval,
) -> Result<(), SqliteFailure> {
    let decision = approval.decision.as_ref();
    database
        .user(
            scope,
            ADD_APPROVAL,
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
