//! Background turns: adds them to the queue, and runs them when a process has capacity.

use std::sync::Arc;

use amalgam_core::{
    BoxFuture, Delivery, Fault, FaultKind, Ids, Scope, TurnOrigin, TurnSummary, no_items,
    store::{
        Answer, Begin, ChainPosition, EventChunk, QueuedTurn, ResponseState, StoredResponse, TurnWrite, WriteOutcome,
    },
};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_engine::{Identity, Runner, read_tail};
use amalgam_protocol::{Provenance, ResponseParameters, ResponseSettings, Status};
use bytes::Bytes;
use tracing::warn;

use super::{
    StartedTurn, begin,
    request::{ShownParameters, TurnRequest},
    tools,
};
use crate::{
    app::Application,
    current::{CurrentApplication, WeakApplication},
};

/// Runs the turns that wait in the queue.
#[derive(Clone)]
pub struct QueueRunner(WeakApplication);

impl QueueRunner {
    /// A runner that starts each turn with the application in force.
    pub fn new(app: &CurrentApplication) -> Self {
        Self(app.downgrade())
    }
}

impl Runner for QueueRunner {
    fn run(&self, turn: QueuedTurn) -> BoxFuture<'static, ()> {
        let app = self.0.clone();
        Box::pin(async move {
            if let Some(app) = app.load() {
                run(&app, turn).await;
            }
        })
    }
}

/// The stored request of a queued turn: what the caller sent, sealed if it has credentials. P12
pub(super) fn stored_request(
    app: &Application,
    scope: &Scope,
    parameters: &ResponseParameters,
    shown: Option<&ShownParameters>,
    has_secrets: bool,
) -> Bytes {
    let sent = match shown {
        // The profile is applied again when the turn runs.
        Some(ShownParameters::Sent(sent)) => sent,
        Some(ShownParameters::WithoutInstructions) | None => parameters,
    };
    // The process that runs the turn does not know whether the caller had a key.
    let approvals = sent.tools.as_ref().filter(|_| !scope.has_credential()).and_then(tools::with_operator_approvals);
    let body = match approvals {
        Some(tools) => ResponseParameters { tools: Some(tools), ..sent.clone() }.to_json(),
        None => sent.to_json(),
    };
    match has_secrets {
        true => app.seal.seal(&scope.seal_context(), body.bytes()).into(),
        false => body.bytes().clone(),
    }
}

/// The parameters of a queued turn.
fn queued_parameters(app: &Application, scope: &Scope, request: Bytes) -> Result<ResponseParameters, Fault> {
    let body = match std::str::from_utf8(&request) {
        Ok(text) if app.seal.is_sealed(text) => match app.seal.open(&scope.seal_context(), text) {
            Some(body) => Bytes::from(body),
            None => return Err(Fault::internal("the request of a queued turn cannot be opened")),
        },
        _ => request,
    };
    Ok(ResponseParameters::parse(&body, app.limits.json_depth)?)
}

/// Adds a turn to the queue. From here on it runs whether or not its caller stays connected. None if the response that
/// it continues was deleted.
pub(super) async fn enqueue(
    app: &Application,
    scope: &Scope,
    turn: &TurnRequest<'_>,
    begin: Begin,
    origin: TurnOrigin,
    settings: ResponseSettings,
) -> Result<Option<StartedTurn>, Fault> {
    let _place = app.engine.reserve_queue_slot(scope, app.limits.queue).await?;
    let Identity { response_id, created_at_ms } = turn.identity.clone();
    let delivery = if begin.streamed { Delivery::Stream } else { Delivery::Whole };
    let mut emitter = Emitter::new(ResponseStart {
        response_id: response_id.clone(),
        created_at: created_at_ms / 1000,
        settings,
        delivery,
        ids: Ids::Unguessable,
        call_ids: false,
    });
    emitter.wait();
    let events = begin.streamed.then(|| EventChunk {
        first: 0,
        last: emitter.sequence() - 1,
        frames: emitter.take_frames().into(),
    });
    let response = StoredResponse {
        id: response_id.clone(),
        status: ResponseState {
            status: Status::Queued,
            completed_at_ms: None,
            error: None,
            incomplete_reason: None,
            usage: None,
            provenance: Provenance::default(),
        },
        created_at_ms,
        settings: begin.settings.clone(),
        input: begin.input.clone(),
        output: no_items(),
        background: true,
        streamed: begin.streamed,
        conversation: begin.conversation.clone(),
        place: begin.parent.clone().unwrap_or(ChainPosition { chain: response_id.clone(), position: 0 }),
    };
    let summary = TurnSummary {
        response_id: response_id.clone(),
        tenant_id: scope.tenant_id(),
        user: Arc::clone(scope.user_id()),
        origin,
        status: Status::Queued,
        error: None,
        created_at_ms,
        ended_at_ms: None,
        first_token_ms: None,
        calls: Vec::new(),
        tools: Vec::new(),
        spans: Vec::new(),
        losses: 0,
        stored: true,
    };
    let write = TurnWrite {
        response_id,
        process: app.engine.process(),
        begin: Some(Box::new(begin)),
        started: false,
        events,
        end: None,
        transcripts: Vec::new(),
        raw_answer: None,
        tools: Vec::new(),
        approvals: Vec::new(),
        session: None,
        summary: Some(Box::new(summary)),
        // The turn is stored: a retry with the same key gets the same response.
        answer: turn.idempotency.clone().map(|idempotency_key| (idempotency_key, Some(Answer::Stored))),
        settlements: Vec::new(),
    };
    Ok(match app.store.write(scope, write.into()).await? {
        WriteOutcome::Kept => Some(StartedTurn::Queued { response: Box::new(response), delivery }),
        WriteOutcome::Lost => None,
    })
}

async fn run(app: &Application, queued: QueuedTurn) {
    let QueuedTurn { scope, response_id, created_at_ms, request, streamed, origin } = queued;
    let sent = match events_sent(app, &scope, &response_id, streamed).await {
        Ok(sent) => sent,
        Err(fault) => {
            warn!(
                response.id = response_id,
                detail = fault.detail,
                "a background turn could not be looked up: {fault}"
            );
            return app.engine.hand_over(&response_id).await;
        }
    };
    let identity = Identity { response_id: response_id.clone(), created_at_ms };
    let (unstarted, mut of_unstarted) = (identity.clone(), origin.clone());
    let started = match queued_parameters(app, &scope, request) {
        Ok(parameters) => {
            of_unstarted.model = parameters.model.as_deref().unwrap_or_default().to_owned();
            let turn = TurnRequest::new(origin.wire, identity, parameters);
            let turn = TurnRequest { resumes_after: Some(sent), queued_origin: Some(origin), ..turn };
            begin(app, &scope, turn).await
        }
        Err(fault) => Err(fault),
    };
    match started {
        Ok(StartedTurn::Running(running)) => app.engine.run_in_background(running.run).await,
        Ok(StartedTurn::Queued { .. }) => {
            warn!(response.id = response_id, "a turn that waited was put back into the queue");
        }
        // The turn has not started, and can wait until a process has capacity or the store is available.
        Err(fault)
            if matches!(
                fault.kind,
                FaultKind::Overloaded | FaultKind::OutOfMemory | FaultKind::ShuttingDown | FaultKind::StoreDown
            ) =>
        {
            app.engine.hand_over(&response_id).await;
        }
        Err(fault) => {
            // If the model refused, the end of the turn is written already, and this has no effect.
            match app.engine.fail_unstarted(&scope, &unstarted, of_unstarted, fault.response_error()).await {
                Ok(Some(summary)) => app.engine.observer().turn_ended(&summary, Vec::new()),
                Ok(None) => {}
                Err(error) => warn!(response.id = response_id, "a background turn could not be ended: {error}"),
            }
        }
    }
}

/// The number of events sent so far: by the process that queued the turn, and by a process that started it and stopped.
async fn events_sent(app: &Application, scope: &Scope, response_id: &str, streamed: bool) -> Result<u64, Fault> {
    if !streamed {
        return Ok(0);
    }
    let tail = read_tail(&*app.store, scope, response_id, Some(i64::MAX.unsigned_abs())).await?;
    Ok(tail.and_then(|tail| tail.last).map_or(0, |last| last + 1))
}
