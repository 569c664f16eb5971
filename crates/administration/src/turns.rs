//! Turns of a tenant, with the exact text of every model and tool call.

use amalgam_app::{not_found, turns::cursor};
use amalgam_core::{
    Admin, Fault, FaultKind, Scope, no_items,
    store::{ToolRun, Transcript, TurnCursor, TurnFilter, TurnRecord, TurnsOf, Within},
};
use amalgam_protocol::{Json, Writer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{
    Administration,
    access::known_id,
    fields::{Object, UnixSeconds, Verbatim},
    turn_list::TurnRow,
};

/// The turn in not-found errors.
const TURN: &str = "Turn";

/// A turn of any user of the tenant.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Turn")]
pub struct TurnView {
    /// The id of the response.
    id: String,
    #[schemars(extend("const" = "turn"))]
    object: &'static str,
    /// The owner.
    user: String,
    /// Facts about the turn; null for a turn of an earlier version, which is not in the list.
    summary: Option<TurnRow>,
    /// Null if the response is not stored.
    #[schemars(schema_with = "response_shape")]
    response: Option<Verbatim>,
    /// The input items of the request itself, without those of earlier responses; null if the response is not stored.
    #[schemars(schema_with = "input_shape")]
    input: Option<Verbatim>,
    calls: Vec<ModelCall>,
    tool_calls: Vec<ToolRunView>,
    /// What the turn spent its time on, sorted by start; empty while it runs. The write that ends the turn is not included.
    #[schemars(schema_with = "spans_shape")]
    spans: Verbatim,
}

/// A part of a turn that took time.
#[derive(JsonSchema)]
#[schemars(rename = "TurnSpan")]
#[expect(dead_code, reason = "only the schema of what the store holds")]
struct SpanView {
    /// The name of the queue, the model, the tool or the stored part.
    name: String,
    #[schemars(extend("enum" = ["queue", "prompt", "retrieval", "model_call", "tool_call", "store"]))]
    kind: String,
    /// Microseconds after the start of the first span.
    start_us: u64,
    /// Microseconds from start to end.
    duration_us: u64,
    /// The class of the failure; absent if it succeeded.
    #[schemars(default)]
    error: Option<String>,
    /// Of a model call: `upstream`, `model`, `first_token_us`, `retries`, tokens by kind, `cost_usd`. Of a tool call: `label`,
    /// `call_id`.
    #[schemars(default)]
    attributes: Option<Object>,
}

/// The exact record of one model call.
#[derive(Serialize, JsonSchema)]
struct ModelCall {
    /// Starts at 0 within the turn.
    number: u64,
    /// The configured name of the upstream.
    upstream: String,
    /// The model as sent to the upstream.
    model: String,
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
    request: String,
    /// Whether the beginning of the request is missing because the earlier call that contains it was deleted.
    request_incomplete: bool,
    /// The response body, as far as it was received.
    response: String,
    /// Whether the response was longer than what is stored.
    response_cut: bool,
    /// Token usage.
    usage: Option<Object>,
    /// Parts of the request that were not passed on.
    losses: Vec<String>,
    /// The error, if the call failed.
    error: Option<String>,
}

/// A tool call that the server ran.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ToolRun")]
struct ToolRunView {
    /// Starts at 0 within the turn.
    number: u64,
    /// The item of the call.
    item_id: String,
    /// The model's id of the call.
    call_id: String,
    /// The origin of the tool: `bank`, or the MCP server.
    label: String,
    /// The name of the tool at its origin.
    name: String,
    /// The arguments exactly as the model sent them.
    arguments: String,
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
    error: Option<String>,
    /// Details of the error, for operators.
    detail: Option<String>,
}

/// The schema of a response is in the data files of the document.
fn response_shape(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"anyOf": [{"$ref": "#/components/schemas/Response"}, {"type": "null"}]})
}

/// The spans are stored as they are shown.
fn spans_shape(generator: &mut SchemaGenerator) -> Schema {
    let span = generator.subschema_for::<SpanView>();
    json_schema!({"type": "array", "items": span})
}

fn input_shape(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["array", "null"], "items": {"$ref": "#/components/schemas/KeptItem"}})
}

impl Administration<'_> {
    /// A turn of any user of the tenant, by the id of its response, of its request, or by the provider's id of its last answer, the
    /// newest if several.
    pub async fn turn(&self, scope: &Scope, id: &str) -> Result<TurnView, Fault> {
        let id = known_id(TURN, id)?;
        let Some(admin) = scope.admin() else {
            return Err(Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may see its turns."));
        };
        if let Some(view) = self.turn_of_response(admin, id).await? {
            return Ok(view);
        }
        if let Some(own) = self.store.response_of_request(admin, id).await?
            && let Some(view) = self.turn_of_response(admin, &own).await?
        {
            return Ok(view);
        }
        // The provider's own log, and the `response_id` of the assistant API, have only the provider's id.
        let missing = || not_found(TURN, id);
        let own = self.store.response_of_answer_within(Within::Own(admin), id).await?.ok_or_else(missing)?;
        self.turn_of_response(admin, &own).await?.ok_or_else(missing)
    }

    async fn turn_of_response(&self, admin: Admin<'_>, id: &str) -> Result<Option<TurnView>, Fault> {
        let summary = self.turn_row(admin, id).await?;
        let spans = match &summary {
            Some(row) => self.store.spans_of_turn(admin, row.created_at_ms(), id).await?,
            None => None,
        };
        let view = match (self.store.turn(admin, id).await?, summary) {
            (Some(turn), summary) => TurnView::new(turn, summary),
            (None, Some(summary)) => TurnView::without_content(summary),
            (None, None) => return Ok(None),
        };
        Ok(Some(match spans {
            Some(spans) => TurnView { spans: Verbatim(spans), ..view },
            None => view,
        }))
    }

    /// The row of one turn in the list.
    async fn turn_row(&self, admin: Admin<'_>, id: &str) -> Result<Option<TurnRow>, Fault> {
        let Ok(TurnCursor { created_at_ms, .. }) = cursor(id) else { return Ok(None) };
        let filter =
            TurnFilter { from_ms: Some(created_at_ms), to_ms: Some(created_at_ms + 1), ..TurnFilter::default() };
        let page = self.store.turns(TurnsOf::Tenant(Within::Own(admin)), filter, None, usize::from(u16::MAX)).await?;
        Ok(page.turns.into_iter().find(|turn| turn.response_id == id).map(TurnRow::from))
    }
}

impl TurnView {
    fn without_content(summary: TurnRow) -> Self {
        Self {
            id: summary.id.clone(),
            object: "turn",
            user: summary.user.clone(),
            summary: Some(summary),
            response: None,
            input: None,
            calls: Vec::new(),
            tool_calls: Vec::new(),
            spans: Verbatim(no_items()),
        }
    }

    fn new(turn: TurnRecord, summary: Option<TurnRow>) -> Self {
        let mut response = Writer::default();
        turn.response.write(&mut response);
        Self {
            id: turn.response.id,
            object: "turn",
            user: turn.user,
            summary,
            response: Some(Verbatim(Json::from_writer(response))),
            input: Some(Verbatim(turn.response.input)),
            calls: turn.transcripts.into_iter().map(ModelCall::from).collect(),
            tool_calls: turn.tools.into_iter().map(ToolRunView::from).collect(),
            spans: Verbatim(no_items()),
        }
    }
}

impl From<Transcript> for ModelCall {
    fn from(call: Transcript) -> Self {
        Self {
            number: call.number.into(),
            upstream: call.upstream,
            model: call.model,
            asked_at_ms: call.asked_at_ms,
            first_token_ms: call.first_token_ms,
            duration_ms: call.duration_ms,
            retries: call.retries.into(),
            // As strings, because bodies may not be JSON.
            request: String::from_utf8_lossy(&call.request).into_owned(),
            request_incomplete: call.base.is_some(),
            response: String::from_utf8_lossy(&call.response).into_owned(),
            response_cut: call.cut,
            usage: call.usage.map(Object::from),
            losses: call.losses,
            error: call.error,
        }
    }
}

impl From<ToolRun> for ToolRunView {
    /// While it is not known how a call ended, it is shown as unknown.
    fn from(run: ToolRun) -> Self {
        Self {
            number: run.number.into(),
            item_id: run.item_id,
            call_id: run.call_id,
            label: run.label,
            name: run.name,
            arguments: run.arguments,
            idempotent: run.idempotent,
            started_at: UnixSeconds::from_ms(run.started_at_ms),
            unknown: run.outcome.is_none(),
            duration_ms: run.outcome.as_ref().map(|outcome| outcome.duration_ms),
            output: run.outcome.as_ref().map(|outcome| outcome.output.clone().into()),
            error: run.outcome.as_ref().and_then(|outcome| outcome.error.clone()),
            detail: run.outcome.and_then(|outcome| outcome.detail),
        }
    }
}
