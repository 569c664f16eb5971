//! Checks which tenants and objects a caller may administer.

use amalgam_app::{is_id, not_found};
use amalgam_core::{Admin, Fault, FaultKind, Operator, Rights, Scope, Store, TenantState, store::Within};

/// The tenant in not-found errors.
pub(super) const TENANT: &str = "Tenant";

/// The caller as an operator, or a 403 fault.
pub fn operator(scope: &Scope) -> Result<Operator, Fault> {
    scope.operator().ok_or_else(|| Fault::new(FaultKind::Forbidden, "Only the operator may do this."))
}

/// The caller as an administrator of its tenant, or a 403 fault.
pub(super) fn admin(scope: &Scope) -> Result<Admin<'_>, Fault> {
    scope.admin().ok_or_else(|| Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may do this."))
}

/// The data of the caller's tenant, for its administrators.
pub(super) fn within(scope: &Scope) -> Result<Within<'_>, Fault> {
    Ok(Within::Own(admin(scope)?))
}

/// The tenant that a request addresses: the named one, or the caller's own if none is named; all tenants for an
/// operator without the scope `admin`. The fault is the same whether the other tenant exists or not.
pub(super) fn target_tenant(scope: &Scope, named: Option<i64>) -> Result<Option<i64>, Fault> {
    match named {
        Some(id) if id == scope.tenant_id() || scope.operator().is_some() => Ok(Some(id)),
        Some(_) => Err(Fault::new(FaultKind::Forbidden, "Only the operator may reach other tenants.")),
        None if scope.admin().is_some() => Ok(Some(scope.tenant_id())),
        None => Ok(None),
    }
}

/// The caller's scope as an administrator of the named tenant, or of its own if none is named.
pub async fn tenant_scope(store: &dyn Store, scope: &Scope, named: Option<i64>) -> Result<Scope, Fault> {
    let id = target_tenant(scope, named)?.unwrap_or(scope.tenant_id());
    if id == scope.tenant_id() && scope.admin().is_some() {
        return Ok(scope.clone());
    }
    let tenant = store.tenant(operator(scope)?, id).await?.ok_or_else(|| no_tenant(id))?;
    Ok(admin_scope_of(scope, tenant.id, tenant.state))
}

#[expect(clippy::disallowed_methods, reason = "an operator may do what the administrator of any tenant may")]
fn admin_scope_of(operator: &Scope, tenant_id: i64, state: TenantState) -> Scope {
    Scope::authenticated(tenant_id, operator.user(), state, Rights::ADMIN).with_key(operator.key_id().cloned())
}

/// The scope of a user of the administrator's tenant, for what the store has of single users.
#[expect(clippy::disallowed_methods, reason = "an administrator may read and delete what its users have")]
pub(super) fn user_scope(admin: Admin<'_>, scope: &Scope, user: &str) -> Scope {
    Scope::authenticated(admin.tenant_id(), user, scope.state(), Rights::USE).with_key(scope.key_id().cloned())
}

pub(super) fn no_tenant(id: i64) -> Fault {
    not_found(TENANT, &id.to_string())
}

/// An id that something can have. Any other is reported as not found, like an unknown one.
pub(super) fn known_id<'a>(what: &'static str, id: &'a str) -> Result<&'a str, Fault> {
    if is_id(id) { Ok(id) } else { Err(not_found(what, id)) }
}

/// An id that is a number. Other text is reported as not found, like an unknown number.
pub(super) fn number_id<T: std::str::FromStr>(what: &'static str, id: &str) -> Result<T, Fault> {
    id.parse().map_err(|_| not_found(what, id))
}

/// The number of a tenant in a path.
pub fn tenant_number(id: &str) -> Result<i64, Fault> {
    number_id(TENANT, id)
}
