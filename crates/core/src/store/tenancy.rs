//! Tenants, keys, and named values of the installation.

use super::Stored;
use crate::audit::AuditDraft;
use crate::scope::{Operator, Rights, TenantState};

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    /// The tenant's number.
    pub id: i64,
    /// The name for users.
    pub name: String,
    /// Whether responses are stored.
    pub state: TenantState,
    /// Whether the tenant may use the assistant.
    pub ai_agent_enabled: bool,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

/// A change of a tenant. `None` leaves a field unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// The new name.
    pub name: Option<String>,
    /// The new state.
    pub state: Option<TenantState>,
    /// Whether the tenant may use the assistant.
    pub ai_agent_enabled: Option<bool>,
}

/// The facts about a key. The key itself is not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// `key_…`
    pub id: String,
    /// The tenant.
    pub tenant_id: i64,
    /// The first characters of the key, to tell keys apart.
    pub prefix: String,
    /// The name for users.
    pub label: Option<String>,
    /// The rights.
    pub rights: Rights,
    /// The only user that the key acts for; `None` for a service key, which may name any user.
    pub user: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// Milliseconds since 1970.
    pub revoked_at_ms: Option<u64>,
    /// Milliseconds since 1970, accurate to a minute.
    pub last_used_at_ms: Option<u64>,
}

/// A new key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The facts about the key, which may be shown.
    pub record: KeyRecord,
    /// The keyed hash of the key.
    pub hash: [u8; 32],
}

/// Tenants and keys, for the operator.
pub trait TenancyStore: Send + Sync {
    /// Creates a tenant with the number `id`, or with the next free number for `None`. Returns `None` if `id` is taken
    /// or reserved.
    fn create_tenant<'a>(
        &'a self,
        operator: Operator,
        id: Option<i64>,
        name: &'a str,
        state: TenantState,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>>;

    /// Returns at most `limit` tenants with numbers above `after`, sorted by number.
    fn tenants(&self, operator: Operator, after: Option<i64>, limit: usize) -> Stored<'_, Vec<TenantRecord>>;

    /// Returns a tenant; `None` if it does not exist. May be a cached copy.
    fn tenant(&self, operator: Operator, id: i64) -> Stored<'_, Option<TenantRecord>>;

    /// Changes a tenant and returns it; `None` if it does not exist.
    fn change_tenant(
        &self,
        operator: Operator,
        id: i64,
        change: TenantChange,
        audit: AuditDraft,
    ) -> Stored<'_, Option<TenantRecord>>;

    /// Stores a key. Returns `false` if the tenant does not exist or the key is stored already.
    fn create_key(&self, operator: Operator, key: NewKey, audit: AuditDraft) -> Stored<'_, bool>;

    /// Returns at most `limit` keys with ids above `after`, of one tenant or of all, sorted by id.
    fn keys<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<KeyRecord>>;

    /// Returns the key with this id, also if it is revoked or expired; `None` if there is none.
    fn key<'a>(&'a self, operator: Operator, id: &'a str) -> Stored<'a, Option<KeyRecord>>;

    /// Revokes a key, of one tenant or of any, and returns it; a key that was revoked before keeps its time. `None` if
    /// there is no such key.
    fn revoke_key<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        now_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>>;

    /// Returns the key with this hash and its tenant, also if the key is revoked or expired; `None` if there is none.
    fn key_by_hash(&self, operator: Operator, hash: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>>;

    /// Records when keys were last used, as ids and milliseconds since 1970. Never moves a time back.
    fn touch_keys(&self, operator: Operator, used: Vec<(String, u64)>) -> Stored<'_, ()>;

    /// Returns the value of the installation that is stored under a name; `None` if there is none.
    fn remembered<'a>(&'a self, operator: Operator, name: &'a str) -> Stored<'a, Option<String>>;

    /// Stores a value of the installation under a name and returns the stored value. With `replace` unset, an existing
    /// value is kept and returned.
    fn remember<'a>(&'a self, operator: Operator, name: &'a str, text: &'a str, replace: bool) -> Stored<'a, String>;
}
