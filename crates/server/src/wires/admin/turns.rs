//! `GET /admin/turns/{response_id}`: a turn of the caller's tenant, with the exact text of every model and tool call.

use std::{borrow::Cow, sync::Arc};

use amalgam_core::{
    Fault, FaultKind, Scope,
    store::{ToolRun, Transcript, TurnRecord, Within},
};
use amalgam_protocol::{Json, Writer};
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{
    answer,
    fields::{Object, TurnKind, UnixSeconds, Verbatim},
};
use crate::{
    app::App,
    wires::{
        WireError,
        query::{id_of, missing},
    },
};

/// The turn in not-found errors.
const TURN: &str = "Turn";

/// A turn of any user of the tenant.
#[derive(Serialize, JsonSchema)]
pub(super) struct Turn<'a> {
    /// The id of the response.
    id: &'a str,
    object: TurnKind,
    /// The owner.
    user: &'a str,
    #[schemars(schema_with = "response_shape")]
    response: Verbatim,
    calls: Vec<ModelCall<'a>>,
    tool_calls: Vec<ToolRunView<'a>>,
}

/// The exact record of one model call.
#[derive(Serialize, JsonSchema)]
struct ModelCall<'a> {
    /// Starts at 0 within the turn.
    number: u64,
    /// The configured name of the upstream.
    upstream: &'a str,
    /// The model as sent to the upstream.
    model: &'a str,
    /// Unix time in milliseconds.
    asked_at_ms: u64,
    /// Milliseconds until the first event, if there was one.
    #[schemars(with = "Option<i64>")]
    first_token_ms: Option<u64>,
    /// Milliseconds until the call ended.
    duration_ms: u64,
    /// The number of retries before the upstream accepted.
    retries: u64,
    /// The request body.
    request: Cow<'a, str>,
    /// Whether the beginning of the request is missing because the earlier call that contains it was deleted.
    request_incomplete: bool,
    /// The response body, as far as it was received.
    response: Cow<'a, str>,
    /// Whether the response was longer than what is stored.
    response_cut: bool,
    /// Token usage.
    usage: Option<Object>,
    /// Parts of the request that were not passed on.
    losses: &'a [String],
    /// The error, if the call failed.
    error: Option<&'a str>,
}

/// A tool call that the server ran.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolRun")]
struct ToolRunView<'a> {
    /// Starts at 0 within the turn.
    number: u64,
    /// The item of the call.
    item_id: &'a str,
    /// The model's id of the call.
    call_id: &'a str,
    /// The origin of the tool: `bank`, or the MCP server.
    label: &'a str,
    /// The name of the tool at its origin.
    name: &'a str,
    /// The arguments exactly as the model sent them.
    arguments: &'a str,
    /// Whether running the tool twice has the same effect as running it once.
    idempotent: bool,
    started_at: UnixSeconds,
    /// Whether the outcome is unknown.
    unknown: bool,
    #[schemars(with = "Option<i64>")]
    duration_ms: Option<u64>,
    /// The output sent to the model: any JSON value.
    output: Option<Verbatim>,
    /// Why the call failed or was not run.
    error: Option<&'a str>,
    /// Details of the error, for operators.
    detail: Option<&'a str>,
}

/// The schema of a response is in the data files of the document.
fn response_shape(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": "#/components/schemas/Response"})
}

/// A turn of any user of the tenant, by the id of its response or by the provider's id of its last answer, the newest if several.
pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let id = id_of(TURN, id)?;
    let Some(admin) = scope.admin() else {
        return Err(Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may see its turns.").into());
    };
    if let Some(turn) = app.store.turn(admin, &id).await.map_err(Fault::from)? {
        return Ok(answer(&Turn::from(&turn)));
    }
    // The provider's own log, and the `response_id` of the assistant API, have only the provider's id.
    let own = app.store.response_of_answer_within(Within::Own(admin), &id).await.map_err(Fault::from)?;
    let own = own.ok_or_else(|| missing(TURN, &id))?;
    let turn = app.store.turn(admin, &own).await.map_err(Fault::from)?.ok_or_else(|| missing(TURN, &id))?;
    Ok(answer(&Turn::from(&turn)))
}

impl<'a> From<&'a TurnRecord> for Turn<'a> {
    fn from(turn: &'a TurnRecord) -> Self {
        let mut response = Writer::default();
        turn.response.write(&mut response);
        Self {
            id: &turn.response.id,
            object: TurnKind,
            user: &turn.user,
            response: Verbatim(Json::from_writer(response)),
            calls: turn.transcripts.iter().map(ModelCall::from).collect(),
            tool_calls: turn.tools.iter().map(ToolRunView::from).collect(),
        }
    }
}

impl<'a> From<&'a Transcript> for ModelCall<'a> {
    fn from(call: &'a Transcript) -> Self {
        Self {
            number: call.number.into(),
            upstream: &call.upstream,
            model: &call.model,
            asked_at_ms: call.asked_at_ms,
            first_token_ms: call.first_token_ms,
            duration_ms: call.duration_ms,
            retries: call.retries.into(),
            // As strings, because bodies may not be JSON.
            request: String::from_utf8_lossy(&call.request),
            request_incomplete: call.base.is_some(),
            response: String::from_utf8_lossy(&call.response),
            response_cut: call.cut,
            usage: call.usage.as_ref().map(Object::from),
            losses: &call.losses,
            error: call.error.as_deref(),
        }
    }
}

impl<'a> From<&'a ToolRun> for ToolRunView<'a> {
    /// While it is not known how a call ended, it is shown as unknown.
    fn from(run: &'a ToolRun) -> Self {
        let outcome = run.outcome.as_ref();
        Self {
            number: run.number.into(),
            item_id: &run.item_id,
            call_id: &run.call_id,
            label: &run.label,
            name: &run.name,
            arguments: &run.arguments,
            idempotent: run.idempotent,
            started_at: UnixSeconds::from_ms(run.started_at_ms),
            unknown: outcome.is_none(),
            duration_ms: outcome.map(|outcome| outcome.duration_ms),
            output: outcome.map(|outcome| (&outcome.output).into()),
            error: outcome.and_then(|outcome| outcome.error.as_deref()),
            detail: outcome.and_then(|outcome| outcome.detail.as_deref()),
        }
    }
}
