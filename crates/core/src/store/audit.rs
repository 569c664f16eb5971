//! The audit: an append-only list of changes, chained by hash.

use super::Stored;
use crate::{
    audit::{AuditDraft, AuditHead, AuditRow},
    scope::Operator,
};

/// Which rows are listed, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The tenant that the objects belong to; all of them for none.
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
    /// Appends a row for work that is more than one transaction. The same row is appended once.
    fn append_audit(&self, operator: Operator, draft: AuditDraft) -> Stored<'_, ()>;

    /// Rows, newest first; none if there is no row with the id `after`.
    fn audit(&self, operator: Operator, filter: AuditFilter, limit: usize) -> Stored<'_, Option<Vec<AuditRow>>>;

    /// Rows in the order of the chain, behind the one with this number.
    fn audit_chain(&self, operator: Operator, after: u64, limit: usize) -> Stored<'_, Vec<AuditRow>>;

    /// The end of the chain; none while there is no row.
    fn audit_head(&self, operator: Operator) -> Stored<'_, Option<AuditHead>>;
}
