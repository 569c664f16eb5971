//! `/admin/tools`: the tool bank of the caller's tenant, and with `common=true` the common tools.

use std::sync::Arc;

use amalgam_core::{Fault, Scope, tool_usage_block};
use amalgam_protocol::{Json, Raw};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{
    fields::{Object, ToolUsageKind},
    list_page, request,
    tool_bank::{self, BankScope, ToolBank},
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of},
    },
};

/// The tool in not-found errors.
const TOOL: &str = "Tool";

/// A trial call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TryTool {
    /// The arguments; an empty object by default.
    arguments: Option<Object>,
}

/// Guidance on tools for a prompt.
#[derive(Serialize, JsonSchema)]
pub(super) struct ToolUsage {
    object: ToolUsageKind,
    /// The combined guidance; null if none of the tools has any.
    block: Option<String>,
}

/// Tools ordered by name, including inactive ones.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let asked = query.page()?;
    let bank = bank(&app);
    let tools = bank.list(&scope, bank_scope(&query)?, asked.after.as_deref(), asked.limit + 1).await?;
    Ok(list_page(&tools, asked.limit, |tool| tool.name.as_str(), |tool| bank.view(tool)))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let bank = bank(&app);
    let tool = bank.tool(&scope, bank_scope(&query)?, &id_of(TOOL, name)?).await?;
    Ok(super::answer(&bank.view(&tool)))
}

/// Creates or replaces a tool.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let body = request::body(&app, request, tool_bank::LARGEST).await?;
    let bank = bank(&app);
    let (tool, new) = bank.put(&scope, bank_scope(&query)?, Some(&id_of(TOOL, name)?), &body).await?;
    let mut response = super::answer(&bank.view(&tool));
    if new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(TOOL, name)?;
    bank(&app).delete(&scope, bank_scope(&query)?, &name).await?;
    Ok(answer::deleted(&name, "tool.deleted"))
}

/// Runs a tool once, outside of any turn.
pub(super) async fn try_out(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let TryTool { arguments } = request::read(&app, request).await?;
    let arguments = arguments.map_or_else(|| Json::from(Raw::EMPTY_OBJECT), Object::into_json);
    let bank = bank(&app);
    let tool = bank.tool(&scope, bank_scope(&query)?, &id_of(TOOL, name)?).await?;
    Ok(super::answer(&bank.try_out(&scope, &tool, arguments.bytes()).await?.view()))
}

/// Statistics of a tool's calls in the caller's tenant.
pub(super) async fn statistics(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let bank = bank(&app);
    let tool = bank.tool(&scope, bank_scope(&query)?, &id_of(TOOL, name)?).await?;
    let since_ms = query.number("since")?.unwrap_or_default().saturating_mul(1000);
    Ok(answer::json(bank.statistics(&scope, &tool, since_ms).await?.bytes().clone()))
}

/// The guidance on the named tools as one block for a prompt, in their order.
pub(super) async fn usage(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    tool_bank::admin(&scope)?;
    let names = query.get("names").ok_or_else(|| request::missing("names"))?;
    let names: Vec<String> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() > app.limits.tools {
        return Err(request::wrong("names", &format!("at most {} names", app.limits.tools)).into());
    }
    let tools = app.store.tools_for(&scope, Some(&names)).await.map_err(Fault::from)?;
    let guided = names.iter().filter_map(|name| {
        let tool = tools.iter().find(|tool| tool.name.eq_ignore_ascii_case(name));
        let guidance = tool.and_then(|tool| Some((tool.name.as_str(), tool.guidance.as_deref()?)));
        if guidance.is_none() {
            debug!(tool = %name, "a tool without guidance is left out of the block on usage");
        }
        guidance
    });
    let block = tool_usage_block(guided);
    Ok(super::answer(&ToolUsage { object: ToolUsageKind, block }))
}

fn bank(app: &App) -> ToolBank<'_> {
    ToolBank { store: &*app.store, toolbox: &*app.toolbox, now_ms: app.clock.now_ms() }
}

fn bank_scope(query: &Query) -> Result<BankScope, Fault> {
    Ok(if query.flag("common")? { BankScope::Common } else { BankScope::Own })
}
