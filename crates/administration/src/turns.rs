//! Turns of a tenant, with the exact text of every model and tool call.

mod context;
mod events;

use amalgam_app::{not_found, turns::cursor};
use amalgam_core::{
    Admin, Fault, FaultKind, Scope, Stem, no_items,
    store::{CallBodies, StoredCall, ToolRun, Transcript, TurnCursor, TurnFilter, TurnRecord, TurnsOf, Within},
};
use amalgam_protocol::{Json, Raw, Writer};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

use super::{
    Administration,
    access::{known_id, number_id},
    fields::{Object, UnixSeconds, Verbatim},
    turn_list::TurnRow,
};

pub use context::TurnContextView;
pub use events::{EVENT_PAGE, TurnEventView};

/// The turn in not-found errors.
const TURN: &str = "Turn";

/// The model call in not-found errors.
const CALL: &str = "Model call";

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
    /// The model calls, in order.
    calls: Vec<ModelCallView>,
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
#[schemars(rename = "ModelCall")]
pub struct ModelCallView {
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
    /// The request body; null if bodies were not asked for.
    request: Option<String>,
    /// The length of the request in bytes.
    request_bytes: u64,
    /// Whether the beginning of the request is missing because the earlier call that contains it was deleted.
    request_incomplete: bool,
    /// The response body, as far as it was received; null if bodies were not asked for.
    response: Option<String>,
    /// The length of the stored response in bytes.
    response_bytes: u64,
    /// Whether the response was longer than what is stored, which is at most 4 MiB.
    response_cut: bool,
    /// Token usage.
    usage: Option<Object>,
    /// The cost in US dollars; null if it is not known.
    cost_usd: Option<f64>,
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
    /// A turn of any user of the tenant, by the id of its response, of its request, of one of its items or calls, or by the
    /// provider's id of its last answer, the newest if several.
    pub async fn turn(&self, scope: &Scope, id: &str, bodies: CallBodies) -> Result<TurnView, Fault> {
        let id = known_id(TURN, id)?;
        let admin = reader(scope)?;
        if let Some(view) = self.turn_of_response(admin, id, bodies).await? {
            return Ok(view);
        }
        let own = self.response_with(admin, id).await?.ok_or_else(|| not_found(TURN, id))?;
        self.turn_of_response(admin, &own, bodies).await?.ok_or_else(|| not_found(TURN, id))
    }

    /// One model call of a turn, with its exact request and answer. `id` is that of the response.
    pub async fn turn_call(&self, scope: &Scope, id: &str, number: &str) -> Result<ModelCallView, Fault> {
        let (id, admin) = (known_id(TURN, id)?, reader(scope)?);
        let missing = || not_found(CALL, number);
        let stored = self.store.turn_calls(admin, id, CallBodies::Of(number_id(CALL, number)?)).await?.pop();
        let call = stored.ok_or_else(missing)?;
        let mut calls = vec![ModelCallView::new(call, true)];
        if let Some(row) = self.turn_row(admin, id).await?
            && let Some(spans) = self.store.spans_of_turn(admin, row.created_at_ms(), id).await?
        {
            add_costs(&mut calls, &spans);
        }
        calls.pop().ok_or_else(missing)
    }

    /// The response that has another id than its own.
    async fn response_with(&self, admin: Admin<'_>, id: &str) -> Result<Option<String>, Fault> {
        if let Some(own) = self.store.response_of_request(admin, id).await? {
            return Ok(Some(own));
        }
        if let Some(stem) = Stem::of(id)
            && let Some(own) = self.store.response_of_item(admin, stem).await?
            && let Some(turn) = self.store.turn(admin, &own).await?
            && [&turn.response.input, &turn.response.output].iter().any(|items| has_text(items.raw(), id))
        {
            return Ok(Some(own));
        }
        // The provider's own log, and the `response_id` of the assistant API, have only the provider's id.
        if let Some(own) = self.store.response_of_answer_within(Within::Own(admin), id).await? {
            return Ok(Some(own));
        }
        Ok(self.store.response_of_call(admin, id).await?)
    }

    async fn turn_of_response(
        &self,
        admin: Admin<'_>,
        id: &str,
        bodies: CallBodies,
    ) -> Result<Option<TurnView>, Fault> {
        let summary = self.turn_row(admin, id).await?;
        let spans = match &summary {
            Some(row) => self.store.spans_of_turn(admin, row.created_at_ms(), id).await?,
            None => None,
        };
        let mut view = match (self.store.turn(admin, id).await?, summary) {
            (Some(turn), summary) => {
                let calls = self.store.turn_calls(admin, id, bodies).await?;
                let calls = calls.into_iter().map(|call| ModelCallView::new(call, bodies != CallBodies::None));
                TurnView::new(turn, summary, calls.collect())
            }
            (None, Some(summary)) => TurnView::without_content(summary),
            (None, None) => return Ok(None),
        };
        if let Some(spans) = spans {
            add_costs(&mut view.calls, &spans);
            view.spans = Verbatim(spans);
        }
        Ok(Some(view))
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

    fn new(turn: TurnRecord, summary: Option<TurnRow>, calls: Vec<ModelCallView>) -> Self {
        let mut response = Writer::default();
        turn.response.write(&mut response);
        Self {
            id: turn.response.id,
            object: "turn",
            user: turn.user,
            summary,
            response: Some(Verbatim(Json::from_writer(response))),
            input: Some(Verbatim(turn.response.input)),
            calls,
            tool_calls: turn.tools.into_iter().map(ToolRunView::from).collect(),
            spans: Verbatim(no_items()),
        }
    }
}

impl ModelCallView {
    fn new(stored: StoredCall, with_bodies: bool) -> Self {
        let StoredCall { call, request_bytes, response_bytes } = stored;
        let Transcript { request, response, base, .. } = &call;
        // As strings, because bodies may not be JSON.
        let body = |bytes: &[u8]| with_bodies.then(|| String::from_utf8_lossy(bytes).into_owned());
        Self {
            number: call.number.into(),
            request: body(request),
            request_incomplete: base.is_some(),
            response: body(response),
            upstream: call.upstream,
            model: call.model,
            asked_at_ms: call.asked_at_ms,
            first_token_ms: call.first_token_ms,
            duration_ms: call.duration_ms,
            retries: call.retries.into(),
            request_bytes,
            response_bytes,
            response_cut: call.cut,
            usage: call.usage.map(Object::from),
            cost_usd: None,
            losses: call.losses,
            error: call.error,
        }
    }
}

/// Adds the costs in the spans of model calls, which are in the order of the calls.
fn add_costs(calls: &mut [ModelCallView], spans: &Json) {
    let model_calls = spans.raw().elements().filter(|span| span.get_str("kind").as_deref() == Some("model_call"));
    for (number, span) in (0_u64..).zip(model_calls) {
        let cost = span.get("attributes").and_then(|attributes| attributes.get("cost_usd")?.as_f64());
        if let Some(call) = calls.iter_mut().find(|call| call.number == number) {
            call.cost_usd = cost;
        }
    }
}

/// Whether a JSON text contains a string.
fn has_text(json: Raw<'_>, text: &str) -> bool {
    json.text().contains(&format!("\"{text}\""))
}

/// The caller as an administrator who reads turns.
fn reader(scope: &Scope) -> Result<Admin<'_>, Fault> {
    let refused = || Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may see its turns.");
    scope.admin().ok_or_else(refused)
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
