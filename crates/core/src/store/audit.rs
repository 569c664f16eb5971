//! The audit: an append-only list of changes, chained by hash.

use super::Stored;
use crate::{
    audit::{AuditDraft, AuditHead, AuditRow},
    scope::Operator,
};

/// Which rows are listed, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The tenant that the objects belong to; `None` for all tenants.
    pub tenant_id: Option<i64>,
    /// The key, the user or the kind of the actor.
    pub actor: Option<String>,
    /// The kind of object.
    pub object: Option<String>,
    /// The name or id of the object.
    pub object_id: Option<String>,
    /// Not before this time, in milliseconds since 1970.
    pub from_ms: Option<u64>,
    /// Before this time, in milliseconds since 1970.
    pub to_ms: Option<u64>,
    /// Only rows before the one with this id.
    pub after: Option<String>,
}

/// The audit. Changes of the administration append their row themselves, in their own transaction.
pub trait AuditStore: Send + Sync {
    /// Appends a row for work that takes more than one transaction. Appending the same row again has no effect.
    fn append_audit(&self, operator: Operator, draft: AuditDraft) -> Stored<'_, ()>;

    /// Returns at most `limit` matching rows, newest first; `None` if no row has the id `after`.
    fn audit(&self, operator: Operator, filter: AuditFilter, limit: usize) -> Stored<'_, Option<Vec<AuditRow>>>;

    /// Returns at most `limit` rows with a number above `after`, in the order of the chain.
    fn audit_chain(&self, operator: Operator, after: u64, limit: usize) -> Stored<'_, Vec<AuditRow>>;

    /// Returns the end of the chain; `None` if there are no rows.
    fn audit_head(&self, operator: Operator) -> Stored<'_, Option<AuditHead>>;
}
