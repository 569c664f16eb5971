//! `GET /admin/turns/{response_id}`: a turn of the own tenant, with the exact text of every call of a model or a tool.

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

/// What a missing turn is called.
const TURN: &str = "Turn";

/// A turn, whichever user of the tenant it belongs to.
#[derive(Serialize, JsonSchema)]
pub(super) struct Turn<'a> {
    /// The id of the response.
    id: &'a str,
    object: TurnKind,
    /// Whose it is.
    user: &'a str,
    #[schemars(schema_with = "response_shape")]
    response: Verbatim,
    calls: Vec<ModelCall<'a>>,
    tool_calls: Vec<ToolRunView<'a>>,
}

/// One call of a model, exactly.
#[derive(Serialize, JsonSchema)]
struct ModelCall<'a> {
    /// From 0, within the turn.
    number: u64,
    /// The operator's name of the upstream.
    upstream: &'a str,
    /// The model that the upstream was asked for.
    model: &'a str,
    /// Milliseconds since 1970.
    asked_at_ms: u64,
    /// Until the first event, if one came.
    #[schemars(with = "Option<i64>")]
    first_token_ms: Option<u64>,
    /// Until the end.
    duration_ms: u64,
    /// Further tries before the upstream accepted.
    retries: u64,
    /// The body that was sent.
    request: Cow<'a, str>,
    /// Whether the beginning of the request is missing, because the earlier call that had it is not kept any more.
    request_incomplete: bool,
    /// The body that came back, as far as it came.
    response: Cow<'a, str>,
    /// Whether more came back than is kept.
    response_cut: bool,
    /// What it cost, in tokens.
    usage: Option<Object>,
    /// What was not carried over.
    losses: &'a [String],
    /// Why it failed.
    error: Option<&'a str>,
}

/// One call of a tool that the server ran.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolRun")]
struct ToolRunView<'a> {
    /// From 0, within the turn.
    number: u64,
    /// The item that shows it.
    item_id: &'a str,
    /// The model's id for the call.
    call_id: &'a str,
    /// Whose tool it is: `bank`, or the MCP server.
    label: &'a str,
    /// Its own name there.
    name: &'a str,
    /// The exact text that the model sent.
    arguments: &'a str,
    /// Whether running it twice is as good as once.
    idempotent: bool,
    started_at: UnixSeconds,
    /// Whether it is not known how it ended, or whether it ran.
    unknown: bool,
    #[schemars(with = "Option<i64>")]
    duration_ms: Option<u64>,
    /// What the model was told: any JSON value.
    output: Option<Verbatim>,
    /// Why it failed or was not run.
    error: Option<&'a str>,
    /// What happened.
    detail: Option<&'a str>,
}

/// The shape of a response is in the part of the document that is not derived.
fn response_shape(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"$ref": "#/components/schemas/Response"})
}

/// The turn that made a response, by our id of the response or by the one that the model's server gave its last answer, then
/// the newest of them; whichever user of the tenant it belongs to.
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
    // The assistant's door tells the id of the model's server as `response_id`, and that server's own log has no other.
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
            // As text, whatever it is: exactly what was sent and what came, also where that is no JSON.
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
