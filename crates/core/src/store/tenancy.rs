//! Tenants, keys, and what the installation itself has to remember.

use super::Stored;
use crate::audit::AuditDraft;
use crate::scope::{Operator, Rights, TenantState};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// Its number.
    pub id: i64,
    /// What people call it.
    pub name: String,
    /// Whether its responses are kept.
    pub state: TenantState,
    /// Whether its assistant answers.
    pub ai_agent_enabled: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

/// What is to be changed about a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// A new name.
    pub name: Option<String>,
    /// Whether its responses are kept.
    pub state: Option<TenantState>,
    /// Whether its assistant answers.
    pub ai_agent_enabled: Option<bool>,
}

/// A key, as far as anybody can know it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// `key_…`
    pub id: String,
    /// Whose it is.
    pub tenant_id: i64,
    /// How the key begins, so that people can tell keys apart.
    pub prefix: String,
    /// What people call it.
    pub label: Option<String>,
    /// What it may do.
    pub rights: Rights,
    /// The only user on whose behalf it acts; none for a service key, which may name any.
    pub user: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Milliseconds since 1970.
    pub revoked_at_ms: Option<u64>,
    /// Milliseconds since 1970, a minute more or less.
    pub last_used_at_ms: Option<u64>,
}

/// A key to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Everything that may be shown.
    pub record: KeyRecord,
    /// The keyed hash of the key.
    pub hash: [u8; 32],
}

/// Tenants and keys, for the operator.
pub trait TenancyStore: Send + Sync {
    /// Makes a tenant; with `id` under that number, unless it is taken (`None`), else under the next free one.
    fn create_tenant<'a>(
        &'a self,
        operator: Operator,
        id: Option<i64>,
        name: &'a str,
        state: TenantState,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>>;

    /// Tenants by number, behind `after`.
    fn tenants(&self, operator: Operator, after: Option<i64>, limit: usize) -> Stored<'_, Vec<TenantRecord>>;

    /// One tenant.
    fn tenant(&self, operator: Operator, id: i64) -> Stored<'_, Option<TenantRecord>>;

    /// Changes a tenant.
    fn change_tenant(
        &self,
        operator: Operator,
        id: i64,
        change: TenantChange,
        audit: AuditDraft,
    ) -> Stored<'_, Option<TenantRecord>>;

    /// Keeps a key; `false` when its tenant is not there, or the same key is.
    fn create_key(&self, operator: Operator, key: NewKey, audit: AuditDraft) -> Stored<'_, bool>;

    /// Keys of one tenant or of all, in the order of their ids, behind `after`.
    fn keys<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<KeyRecord>>;

    /// The key of this id, whatever its state.
    fn key<'a>(&'a self, operator: Operator, id: &'a str) -> Stored<'a, Option<KeyRecord>>;

    /// Revokes a key, of one tenant or of any; nothing when there is none.
    fn revoke_key<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>>;

    /// The key of this hash, whatever its state, with its tenant.
    fn key_by_hash(&self, operator: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>>;

    /// Notes when keys were used.
    fn touch_keys(&self, operator: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()>;

    /// A text that the installation remembers under a name.
    fn remembered<'a>(&'a self, operator: Operator, name: &'a str) -> Stored<'a, Option<String>>;

    /// Remembers a text. Without `replace` one that is there stays; gives back what is remembered now.
    fn remember<'a>(&'a self, operator: Operator, name: &'a str, text: &'a str, replace: bool) -> Stored<'a, String>;
}
