//! `/admin`: tenants, keys, tools, assistants and turns, for operators and for the administrators of a tenant.
//!
//! Callers have a key with one of the scopes `admin` and `operator`. An administrator reaches its own tenant only and cannot
//! learn which others exist; an operator reaches all tenants. Every object is a serde type that lists its fields.

mod approvals;
mod configs;
mod diagnosis;
mod fields;
mod keys;
mod knowledge;
mod modes;
mod profiles;
mod request;
mod schemas;
mod sessions;
mod tenants;
mod tool_bank;
mod tools;
mod turns;

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Operator, Rights, Scope, TenantState, store::Page};
use amalgam_protocol::{Json, Writer};
use axum::{
    Router,
    extract::{Path, rejection::PathRejection},
    response::Response,
    routing::{get, post},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    answer,
    query::{Query, missing},
};
use crate::app::App;

pub use approvals::{approval_status, decision_outcome, show_approval};
pub use knowledge::{show_collection, show_document};
pub use modes::{ModeListing, Modes};
pub(crate) use schemas::schemas;
pub use tool_bank::{BankScope, ToolBank, Trial, TrialError};

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/admin/tenants", get(tenants::list).post(tenants::create))
        .route("/admin/tenants/{tenant_id}", get(tenants::retrieve).patch(tenants::change))
        .route("/admin/keys", get(keys::list).post(keys::create))
        .route("/admin/keys/{key_id}", axum::routing::delete(keys::revoke))
        .route("/admin/tools", get(tools::list))
        .route("/admin/tools/usage", get(tools::usage))
        .route("/admin/tools/{name}", get(tools::retrieve).put(tools::put).delete(tools::delete))
        .route("/admin/tools/{name}/try", post(tools::try_out))
        .route("/admin/tools/{name}/statistics", get(tools::statistics))
        .route("/admin/approvals", get(approvals::list))
        .route("/admin/approvals/{id}", get(approvals::retrieve).post(approvals::decide))
        .route("/admin/configs/{tenant_id}", get(configs::retrieve).patch(configs::change))
        .route("/admin/profiles", get(profiles::list))
        .route("/admin/profiles/{slug}", get(profiles::retrieve).put(profiles::put).delete(profiles::delete))
        .route("/admin/profiles/{slug}/versions", get(profiles::versions))
        .route("/admin/profiles/{slug}/versions/{version}/diff", get(profiles::compare))
        .route("/admin/modes", get(modes::list))
        .route("/admin/modes/{name}", get(modes::retrieve).put(modes::put).delete(modes::delete))
        .route("/admin/knowledge", get(knowledge::list))
        .route("/admin/knowledge/{collection}", get(knowledge::retrieve).delete(knowledge::delete))
        .route("/admin/knowledge/{collection}/documents", get(knowledge::documents))
        .route("/admin/sessions", get(sessions::list))
        .route("/admin/sessions/{session_id}", get(sessions::retrieve))
        .route("/admin/diagnose", get(diagnosis::diagnose))
        .route("/admin/turns/{response_id}", get(turns::retrieve))
}

/// The caller as an operator, or a 403 fault.
fn operator(scope: &Scope) -> Result<Operator, Fault> {
    scope.operator().ok_or_else(|| Fault::new(FaultKind::Forbidden, "Only the operator may do this."))
}

/// The tenant that a request addresses: the named one, else the caller's own; all tenants for an operator without the scope
/// `admin`. The fault is the same whether the other tenant exists or not.
fn target_tenant(scope: &Scope, named: Option<i64>) -> Result<Option<i64>, Fault> {
    match named {
        Some(id) if id == scope.tenant_id() || scope.operator().is_some() => Ok(Some(id)),
        Some(_) => Err(Fault::new(FaultKind::Forbidden, "Only the operator may reach other tenants.")),
        None if scope.admin().is_some() => Ok(Some(scope.tenant_id())),
        None => Ok(None),
    }
}

/// The caller's scope as an administrator of the named tenant, else of its own.
async fn tenant_admin_scope(app: &App, scope: &Scope, named: Option<i64>) -> Result<Scope, Fault> {
    let id = target_tenant(scope, named)?.unwrap_or(scope.tenant_id());
    if id == scope.tenant_id() && scope.admin().is_some() {
        return Ok(scope.clone());
    }
    let tenant = app.store.tenant(operator(scope)?, id).await?;
    let tenant = tenant.ok_or_else(|| missing("Tenant", &id.to_string()))?;
    Ok(admin_scope_of(scope, tenant.id, tenant.state))
}

#[expect(clippy::disallowed_methods, reason = "an operator may do what the administrator of any tenant may")]
fn admin_scope_of(operator: &Scope, tenant_id: i64, state: TenantState) -> Scope {
    Scope::authenticated(tenant_id, operator.user(), state, Rights::ADMIN)
}

/// The number in a path. Anything else is reported as not found, like an unknown number.
fn number_in(what: &'static str, id: Result<Path<String>, PathRejection>) -> Result<i64, Fault> {
    let text = id.map(|Path(id)| id).unwrap_or_default();
    text.parse().map_err(|_| missing(what, &text))
}

/// `after` of a list whose ids are numbers.
fn number_after(asked: &Page) -> Result<Option<i64>, Fault> {
    let read = |after: &String| after.parse().map_err(|_| request::wrong("after", "it is a number"));
    asked.after.as_ref().map(read).transpose()
}

/// `tenant_id` of a query.
fn tenant_in_query(query: &Query) -> Result<Option<i64>, Fault> {
    match query.number("tenant_id")? {
        None => Ok(None),
        Some(id) => match i64::try_from(id) {
            Ok(id) => Ok(Some(id)),
            Err(_) => Err(Fault::invalid("tenant_id", "Invalid value for 'tenant_id': no tenant has this number.")),
        },
    }
}

/// A 200 response with this value.
fn answer(value: &impl Serialize) -> Response {
    answer::json(text(value))
}

/// A value as JSON.
pub(crate) fn json(value: &impl Serialize) -> Json {
    let mut writer = Writer::default();
    writer.valid(&text(value));
    Json::from_writer(writer)
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("an answer is a struct, and what it holds verbatim was checked as JSON")
}

/// One page of a list.
#[derive(Serialize, JsonSchema)]
struct List<T, Id> {
    object: fields::ListKind,
    data: Vec<T>,
    first_id: Option<Id>,
    /// `after` of the next page.
    last_id: Option<Id>,
    has_more: bool,
}

/// A page of `limit` entries; the caller fetches one more, which tells whether there are further pages.
fn list_page<'a, T, V: Serialize, Id: Serialize>(
    entries: &'a [T],
    limit: usize,
    id: impl Fn(&'a T) -> Id,
    view: impl Fn(&'a T) -> V,
) -> Response {
    let shown = entries.get(..limit).unwrap_or(entries);
    answer(&List {
        object: fields::ListKind,
        data: shown.iter().map(view).collect(),
        first_id: shown.first().map(&id),
        last_id: shown.last().map(&id),
        has_more: entries.len() > limit,
    })
}
