//! `/admin/tenants`, for the operator.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope, TenantState,
    store::{TenantChange, TenantRecord},
};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use super::{
    fields::{self, Fields},
    operator, page,
};
use crate::{
    app::App,
    wires::{WireError, answer, query::Query, query::missing},
};

/// What a missing tenant is called.
const TENANT: &str = "Tenant";

/// The longest name of a tenant.
const LONGEST_NAME: usize = 200;

/// Tenants by number.
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
            Err(_) => return Err(fields::wrong("after", "it is the number of a tenant").into()),
        },
    };
    let tenants = app.store.tenants(operator, after, asked.limit + 1).await.map_err(Fault::from)?;
    Ok(page(&tenants, asked.limit, write_id, write))
}

/// Makes a tenant.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let fields = Fields::read(&app, request, &["name", "id", "state", "ai_agent_enabled"]).await?;
    let name = fields.text("name", LONGEST_NAME)?.ok_or_else(|| fields::missing("name"))?;
    let (id, state, enabled) = (fields.number("id")?, state(&fields)?, fields.boolean("ai_agent_enabled")?);
    let created = app.store.create_tenant(operator, id, name, state.unwrap_or_default(), app.clock.now_ms());
    let Some(mut tenant) = created.await.map_err(Fault::from)? else {
        return Err(Fault::new(FaultKind::Conflict, "There is a tenant with this number already.").param("id").into());
    };
    if let Some(enabled) = enabled.filter(|enabled| *enabled != tenant.ai_agent_enabled) {
        let change = TenantChange { ai_agent_enabled: Some(enabled), ..TenantChange::default() };
        let changed = app.store.change_tenant(operator, tenant.id, change).await.map_err(Fault::from)?;
        tenant = changed.unwrap_or(tenant);
    }
    Ok(told(&tenant))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let (id, text) = number(id)?;
    let tenant = app.store.tenant(operator, id).await.map_err(Fault::from)?;
    Ok(told(&tenant.ok_or_else(|| missing(TENANT, &text))?))
}

/// Changes what is named and nothing else.
pub(super) async fn change(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let operator = operator(&scope)?;
    let fields = Fields::read(&app, request, &["name", "state", "ai_agent_enabled"]).await?;
    let (id, text) = number(id)?;
    let change = TenantChange {
        name: fields.text("name", LONGEST_NAME)?.map(str::to_owned),
        state: state(&fields)?,
        ai_agent_enabled: fields.boolean("ai_agent_enabled")?,
    };
    let changed = app.store.change_tenant(operator, id, change).await.map_err(Fault::from)?;
    let tenant = changed.ok_or_else(|| missing(TENANT, &text))?;
    app.auth.forget_tenant(id);
    Ok(told(&tenant))
}

fn state(fields: &Fields) -> Result<Option<TenantState>, Fault> {
    let named = |name: &str| TenantState::named(name).ok_or_else(|| fields::wrong("state", "`stored` or `stateless`"));
    fields.text("state", 16)?.map(named).transpose()
}

/// The number in the path, and how it was written.
fn number(id: Result<Path<String>, PathRejection>) -> Result<(i64, String), Fault> {
    let text = id.map(|Path(id)| id).unwrap_or_default();
    match text.parse() {
        Ok(id) => Ok((id, text)),
        Err(_) => Err(missing(TENANT, &text)),
    }
}

fn told(tenant: &TenantRecord) -> Response {
    let mut writer = Writer::with_capacity(256);
    write(&mut writer, tenant);
    answer::json(writer.into_bytes())
}

fn write_id(writer: &mut Writer, tenant: &TenantRecord) {
    writer.number(tenant.id.unsigned_abs());
}

fn write(writer: &mut Writer, tenant: &TenantRecord) {
    writer.object(|writer| {
        write_id(writer.key("id"), tenant);
        writer.key("object").string("tenant");
        writer.key("name").string(&tenant.name);
        writer.key("state").string(tenant.state.name());
        writer.key("ai_agent_enabled").bool(tenant.ai_agent_enabled);
        writer.key("created_at").number(tenant.created_at_ms / 1000);
    });
}
