//! `/admin/tenants`, for operators.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope, TenantState,
    store::{TenantChange, TenantRecord},
};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    answer,
    fields::{Line, Positive, TenantKind, UnixSeconds, Word},
    list_page, operator, request,
};
use crate::{
    app::App,
    wires::{WireError, query::Query, query::missing},
};

/// The tenant in not-found errors.
const TENANT: &str = "Tenant";

type TenantName = Line<200>;

/// A tenant: an isolated customer of the installation.
#[derive(Serialize, JsonSchema)]
pub(super) struct Tenant<'a> {
    #[schemars(range(min = 1))]
    id: i64,
    object: TenantKind,
    /// A display name.
    name: &'a str,
    /// Whether the tenant's responses are stored.
    state: Word<TenantState>,
    /// Whether the tenant's assistant is enabled.
    ai_agent_enabled: bool,
    created_at: UnixSeconds,
}

/// A tenant to create. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateTenant {
    /// A display name.
    name: TenantName,
    /// The tenant's number; the next free one by default.
    id: Option<Positive>,
    /// Whether the tenant's responses are stored.
    state: Option<Word<TenantState>>,
    #[schemars(extend("default" = true))]
    ai_agent_enabled: Option<bool>,
}

/// The fields to change. Null is the same as absent.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeTenant {
    /// A display name.
    name: Option<TenantName>,
    /// Whether the tenant's responses are stored.
    state: Option<Word<TenantState>>,
    ai_agent_enabled: Option<bool>,
}

impl<'a> From<&'a TenantRecord> for Tenant<'a> {
    fn from(tenant: &'a TenantRecord) -> Self {
        Self {
            id: tenant.id,
            object: TenantKind,
            name: &tenant.name,
            state: Word(tenant.state),
            ai_agent_enabled: tenant.ai_agent_enabled,
            created_at: UnixSeconds::from_ms(tenant.created_at_ms),
        }
    }
}

/// Tenants ordered by number.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let asked = query.page()?;
    let after = match &asked.after {
        None => None,
        Some(after) => match after.parse() {
            Ok(after) => Some(after),
            Err(_) => return Err(request::wrong("after", "it is the number of a tenant").into()),
        },
    };
    let tenants = app.store.tenants(operator, after, asked.limit + 1).await.map_err(Fault::from)?;
    Ok(list_page(&tenants, asked.limit, |tenant| tenant.id, Tenant::from))
}

/// Creates a tenant.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let CreateTenant { name, id, state, ai_agent_enabled } = request::read(&app, request).await?;
    let (id, state) = (id.map(|id| id.0), state.map(|state| state.0).unwrap_or_default());
    let created = app.store.create_tenant(operator, id, &name.0, state, app.clock.now_ms());
    let Some(mut tenant) = created.await.map_err(Fault::from)? else {
        return Err(Fault::new(FaultKind::Conflict, "There is a tenant with this number already.").param("id").into());
    };
    if let Some(enabled) = ai_agent_enabled.filter(|enabled| *enabled != tenant.ai_agent_enabled) {
        let change = TenantChange { ai_agent_enabled: Some(enabled), ..TenantChange::default() };
        let changed = app.store.change_tenant(operator, tenant.id, change).await.map_err(Fault::from)?;
        tenant = changed.unwrap_or(tenant);
    }
    Ok(answer(&Tenant::from(&tenant)))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let (id, text) = number(id)?;
    let tenant = app.store.tenant(operator, id).await.map_err(Fault::from)?;
    Ok(answer(&Tenant::from(&tenant.ok_or_else(|| missing(TENANT, &text))?)))
}

/// Changes the named fields only.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let ChangeTenant { name, state, ai_agent_enabled } = request::read(&app, request).await?;
    let (id, text) = number(id)?;
    let change = TenantChange { name: name.map(|name| name.0), state: state.map(|state| state.0), ai_agent_enabled };
    let changed = app.store.change_tenant(operator, id, change).await.map_err(Fault::from)?;
    let tenant = changed.ok_or_else(|| missing(TENANT, &text))?;
    app.auth.forget_tenant(id);
    Ok(answer(&Tenant::from(&tenant)))
}

/// The number in the path, parsed and as written.
fn number(id: Result<Path<String>, PathRejection>) -> Result<(i64, String), Fault> {
    let text = id.map(|Path(id)| id).unwrap_or_default();
    match text.parse() {
        Ok(id) => Ok((id, text)),
        Err(_) => Err(missing(TENANT, &text)),
    }
}
