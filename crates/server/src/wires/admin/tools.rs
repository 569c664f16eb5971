//! `/admin/tools`: the tool bank of the caller's tenant, and with `common=true` the installation's.

use std::sync::Arc;

use amalgam_core::{Fault, Scope, store::BankTool, tool_usage_block};
use amalgam_protocol::{Json, Raw, Writer};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::StatusCode;
use tracing::debug;

use super::{
    bank::{self, Bank, Whose},
    fields::{self, Fields},
    page, write_text,
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of},
    },
};

/// What a missing tool is called.
const TOOL: &str = "Tool";

/// Tools by name, those that are not active too.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let asked = query.page()?;
    let bank = bank(&app);
    let tools = bank.list(&scope, whose(&query)?, asked.after.as_deref(), asked.limit + 1).await?;
    let id = |writer: &mut Writer, tool: &BankTool| writer.string(&tool.name);
    Ok(page(&tools, asked.limit, id, |writer, tool| writer.raw(bank.show(tool).raw())))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let bank = bank(&app);
    let tool = bank.tool(&scope, whose(&query)?, &id_of(TOOL, name)?).await?;
    Ok(told(&bank.show(&tool)))
}

/// Keeps a tool in the place of the one of its name.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let body = fields::body(&app, request, bank::LARGEST).await?;
    let bank = bank(&app);
    let (tool, new) = bank.put(&scope, whose(&query)?, Some(&id_of(TOOL, name)?), &body).await?;
    let mut response = told(&bank.show(&tool));
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
    bank(&app).delete(&scope, whose(&query)?, &name).await?;
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
    let fields = Fields::read(&app, request, &["arguments"]).await?;
    let arguments = fields.object("arguments")?.unwrap_or_else(|| Json::from(Raw::EMPTY_OBJECT));
    let bank = bank(&app);
    let tool = bank.tool(&scope, whose(&query)?, &id_of(TOOL, name)?).await?;
    Ok(told(&bank.try_out(&scope, &tool, arguments.bytes()).await?.show()))
}

/// How the calls of a tool went in the caller's tenant.
pub(super) async fn statistics(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let bank = bank(&app);
    let tool = bank.tool(&scope, whose(&query)?, &id_of(TOOL, name)?).await?;
    let since_ms = query.number("since")?.unwrap_or_default().saturating_mul(1000);
    Ok(told(&bank.statistics(&scope, &tool, since_ms).await?))
}

/// The guidance on some tools as one block for a prompt, in the order in which they are named.
pub(super) async fn usage(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    bank::admin(&scope)?;
    let names = query.get("names").ok_or_else(|| fields::missing("names"))?;
    let names: Vec<String> =
        names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() > app.limits.tools {
        return Err(fields::wrong("names", &format!("at most {} names", app.limits.tools)).into());
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
    let mut writer = Writer::with_capacity(block.as_ref().map_or(0, String::len) + 128);
    writer.object(|writer| {
        writer.key("object").string("tool.usage");
        write_text(writer, "block", block.as_deref());
    });
    Ok(answer::json(writer.into_bytes()))
}

fn bank(app: &App) -> Bank<'_> {
    Bank { store: &*app.store, toolbox: &*app.toolbox, now_ms: app.clock.now_ms() }
}

fn whose(query: &Query) -> Result<Whose, Fault> {
    Ok(if query.flag("common")? { Whose::Common } else { Whose::Own })
}

fn told(value: &Json) -> Response {
    answer::json(value.bytes().clone())
}
