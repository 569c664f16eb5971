//! On whose behalf something happens. Made by authentication, carried by everything.

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant's number.
    pub tenant_id: i64,
    /// Whether the tenant's responses are kept.
    pub state: TenantState,
}

impl Scope {
    /// What sealed content of this caller is bound to.
    pub fn seal_context(&self) -> String {
        format!("tenant:{}", self.tenant_id)
    }
}

/// Whether a tenant's responses are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TenantState {
    /// Ids of earlier responses may be named.
    #[default]
    Stored,
    /// The whole history is sent every time.
    Stateless,
}
