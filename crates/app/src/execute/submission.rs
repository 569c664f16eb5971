//! Accepts submissions and starts their turns. Retries are idempotent, across processes too.

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope, Stem, StoreError, Wire,
    store::{AgentSession, AgentStep, AgentTurn, Fingerprint, NewStep, StepState, SubmittedSession, TakenStep},
};
use amalgam_engine::{Announcement, Identity, Run};
use amalgam_execute::{
    attachments,
    request::{Continuation, RequestFaults, UserTurn},
    results::{self, Difference},
};
use amalgam_protocol::{Json, ResponseParameters, Status};

use super::{
    answer::{self, ExecuteAnswer, ExecuteStep, Notes},
    change_mode::change_mode,
    composer::{self, AgentInMode, RequestFields},
    no_such_session, no_such_turn,
};
use crate::{
    app::Application,
    turns::{self, HistorySource, OfferedTools, ShownParameters, TurnPolicy, TurnRequest},
};

/// Why a submission is not accepted.
#[derive(Debug)]
pub enum SubmissionError {
    /// Fields of the request are invalid.
    Request(RequestFaults),
    /// A field refers to something that is not in the store.
    Field {
        /// The name of the field.
        field: String,
        /// The error message.
        message: String,
    },
    /// Another submission used the same turn id.
    TurnIdReused(String),
    /// The turn does not wait for tool results.
    NotPending(String),
    /// This turn of the session is still running.
    SessionBusy(String),
    /// The results do not match the pending calls.
    ResultsMismatch(Vec<Difference>),
    /// Anything else.
    Fault(Fault),
}

impl SubmissionError {
    fn field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Field { field: field.into(), message: message.into() }
    }
}

impl From<Fault> for SubmissionError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<StoreError> for SubmissionError {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<RequestFaults> for SubmissionError {
    fn from(faults: RequestFaults) -> Self {
        Self::Request(faults)
    }
}

/// The outcome of a submission.
pub enum Submission {
    /// The submission is new; its turn has to be started.
    New(Box<SubmittedStep>),
    /// The submission is a retry of this step.
    Known(Box<AgentStep>),
}

/// A step whose turn has not started yet.
pub struct SubmittedStep {
    /// The parts that its answer needs.
    pub step: ExecuteStep,
    session: AgentSession,
    agent_in_mode: AgentInMode,
    identity: Identity,
    /// The tool that the model has to call first.
    first_tool: Option<String>,
    parameters: ResponseParameters,
}

impl SubmittedStep {
    /// Starts the turn. If it fails to start, the submission can be repeated.
    pub async fn begin(
        self,
        app: &Arc<Application>,
        scope: &Scope,
        announcement: Announcement,
    ) -> Result<Box<Run>, Fault> {
        let Self { step, session, agent_in_mode, identity, first_tool, parameters } = self;
        let started = async {
            let policy = TurnPolicy {
                route: agent_in_mode.agent.route(app, scope).await?,
                history: HistorySource::Parameters,
                profile: agent_in_mode.agent.profile.as_ref().map(|profile| profile.slug.clone()),
                session_id: Some(session.id.clone()),
                session: None,
                offered: OfferedTools::Known,
                own_tools: vec![change_mode(app, &session, &step.turn_id, &agent_in_mode.modes)],
                first_tool,
                max_rounds: agent_in_mode.rounds(),
                limit_each_call: true,
                shown: ShownParameters::WithoutInstructions,
                keep_raw_answer: true,
                always_stored: true,
            };
            let turn = TurnRequest {
                policy: Some(Box::new(policy)),
                announcement: Some(announcement),
                ..TurnRequest::new(Wire::Execute, identity, parameters)
            };
            Ok(turns::begin(app, scope, turn).await?.running()?.run)
        };
        let started = started.await;
        if started.is_err()
            && let Err(error) = app.store.drop_step(scope, &session.id, &step.response_id).await
        {
            tracing::warn!("a submission could not be released: {error}");
        }
        started
    }
}

impl Submission {
    /// Accepts a user's turn.
    pub async fn user_turn(
        app: &Application,
        scope: &Scope,
        turn: &UserTurn<'_>,
        streamed: bool,
    ) -> Result<Self, SubmissionError> {
        user_turn(app, scope, turn, streamed).await
    }

    /// Accepts the results that a turn waits for.
    pub async fn continuation(
        app: &Application,
        scope: &Scope,
        results: &Continuation<'_>,
        streamed: bool,
    ) -> Result<Self, SubmissionError> {
        continuation(app, scope, results, streamed).await
    }
}

/// Accepts a user's turn.
async fn user_turn(
    app: &Application,
    scope: &Scope,
    turn: &UserTurn<'_>,
    streamed: bool,
) -> Result<Submission, SubmissionError> {
    let found = app.store.submitted_session(scope, &turn.session_id, &turn.turn_id).await?;
    let SubmittedSession { session, turn: existing_turn, newest } =
        found.ok_or_else(|| no_such_session(&turn.session_id))?;
    let fingerprint = turn.fingerprint();
    // Most retries end here, before anything else is loaded.
    if let Some(existing_turn) = existing_turn
        && let Some(step) = existing_turn.steps.first()
    {
        match (step.fingerprint == fingerprint, can_rerun(&existing_turn, step)) {
            (false, _) => return Err(SubmissionError::TurnIdReused(turn.turn_id.to_string())),
            (true, false) => return Ok(Submission::Known(Box::new(step.clone()))),
            (true, true) => {}
        }
    }
    let agent_in_mode = AgentInMode::of(app, scope, &session, turn.agent_context_id.as_deref()).await?;
    if turn.agent_context_id.is_some() && agent_in_mode.agent.profile.is_none() {
        return Err(SubmissionError::field("AgentContextId", "names no active agent of this tenant"));
    }
    let files = files(app, scope, turn).await?;
    let mut notes = Notes {
        agent_context_id: turn.agent_context_id.as_deref().map(str::to_owned).or_else(|| session.profile.clone()),
        conversation_context_id: turn.conversation_context_id.as_deref().map(str::to_owned),
        hides_raw: !agent_in_mode.agent.resolved.expose_raw_responses.value,
        ..Notes::default()
    };
    let context = composer::retrieve_context(app, scope, turn, &agent_in_mode.mode, &mut notes).await?;
    if let Some(before) = newest.as_ref().filter(|before| before.turn_id != turn.turn_id)
        && answer::is_pending(app, scope, before).await?
    {
        notes.warnings.push(format!("turn '{}' was waiting for tool results and is given up", before.turn_id));
    }
    let identity = app.engine.identity();
    let step = ExecuteStep::new(&session, &turn.turn_id, &agent_in_mode, &identity, notes);
    let solution = turn.solution_context.as_deref();
    let outcome = app.store.take_step(scope, new_step(app, &step, fingerprint, None, solution)).await?;
    let parent = match outcome {
        TakenStep::First { parent } => parent,
        TakenStep::Already(step) => return Ok(Submission::Known(Box::new(step))),
        TakenStep::Different => return Err(SubmissionError::TurnIdReused(turn.turn_id.to_string())),
        TakenStep::Busy { turn_id } => return Err(SubmissionError::SessionBusy(turn_id)),
        TakenStep::Missing => return Err(no_such_session(&turn.session_id).into()),
    };
    let solution = solution.or(session.solution_context.as_deref());
    let fields = RequestFields { session_id: &session.id, turn_id: &turn.turn_id, parent: parent.as_deref(), streamed };
    let parameters = agent_in_mode.user_turn(turn, &files, solution, context.as_ref(), &fields);
    let first_tool = agent_in_mode.first_tool();
    Ok(Submission::New(Box::new(SubmittedStep { step, session, agent_in_mode, identity, first_tool, parameters })))
}

/// Accepts the results that a turn waits for. After wrong results the turn keeps waiting. C-13
async fn continuation(
    app: &Application,
    scope: &Scope,
    continuation: &Continuation<'_>,
    streamed: bool,
) -> Result<Submission, SubmissionError> {
    let turn_id = &*continuation.turn_id;
    let found = app.store.submitted_session(scope, &continuation.session_id, turn_id).await?;
    let SubmittedSession { session, turn, .. } = found.ok_or_else(|| no_such_session(&continuation.session_id))?;
    let turn = turn.ok_or_else(|| no_such_turn(turn_id))?;
    let fingerprint = continuation.fingerprint();
    let same = turn.steps.iter().skip(1).find(|step| step.fingerprint == fingerprint);
    if let Some(step) = same.filter(|step| !can_rerun(&turn, step)) {
        return Ok(Submission::Known(Box::new(step.clone())));
    }
    // A failed step is run again: it follows the same step as before.
    let last = match (same, turn.steps.as_slice()) {
        (Some(_), [.., before, _]) => before,
        (_, [.., last]) => last,
        (_, []) => return Err(SubmissionError::NotPending(turn_id.to_owned())),
    };
    match last.state {
        StepState::Running => return Err(SubmissionError::SessionBusy(turn_id.to_owned())),
        StepState::Ended(Status::Completed) => {}
        StepState::Ended(_) | StepState::Gone => return Err(SubmissionError::NotPending(turn_id.to_owned())),
    }
    let waiting = ExecuteAnswer::of(app, scope, &ExecuteStep::stored(&session.id, turn_id, last))
        .await?
        .filter(ExecuteAnswer::is_pending);
    let Some(waiting) = waiting else { return Err(SubmissionError::NotPending(turn_id.to_owned())) };
    let pending = waiting.envelope.tool_calls.iter().map(|call| call.call_id.as_str());
    let differences = results::differences(pending, continuation.results.iter().map(|result| &*result.call_id));
    if !differences.is_empty() {
        return Err(SubmissionError::ResultsMismatch(differences));
    }
    let before = turn.steps.first().map_or_else(Notes::default, |step| Notes::read(step.notes.raw()));
    let requested = before.agent_context_id.as_deref().filter(|slug| session.profile.as_deref() != Some(slug));
    let agent_in_mode = AgentInMode::of(app, scope, &session, requested).await?;
    let notes = Notes { warnings: Vec::new(), ..before };
    let identity = app.engine.identity();
    let step = ExecuteStep::new(&session, turn_id, &agent_in_mode, &identity, notes);
    let follows = &last.response_id;
    match app.store.take_step(scope, new_step(app, &step, fingerprint, Some(follows), None)).await? {
        TakenStep::First { .. } => {}
        TakenStep::Already(step) => return Ok(Submission::Known(Box::new(step))),
        TakenStep::Different => return Err(SubmissionError::NotPending(turn_id.to_owned())),
        TakenStep::Busy { turn_id } => return Err(SubmissionError::SessionBusy(turn_id)),
        TakenStep::Missing => return Err(no_such_turn(turn_id).into()),
    }
    let fields = RequestFields { session_id: &session.id, turn_id, parent: Some(follows), streamed };
    let parameters = agent_in_mode.continuation(continuation, &fields);
    // The mandatory first tool was called in the first step. C-30
    Ok(Submission::New(Box::new(SubmittedStep {
        step,
        session,
        agent_in_mode,
        identity,
        first_tool: None,
        parameters,
    })))
}

/// A submission as a record of the store.
fn new_step(
    app: &Application,
    step: &ExecuteStep,
    fingerprint: Fingerprint,
    follows: Option<&str>,
    solution_context: Option<&str>,
) -> NewStep {
    NewStep {
        session_id: step.session_id.clone(),
        turn_id: step.turn_id.clone(),
        fingerprint,
        follows: follows.map(str::to_owned),
        response_id: step.response_id.clone(),
        process: app.engine.process(),
        mode: step.mode.clone(),
        notes: step.notes.write(),
        solution_context: solution_context.map(str::to_owned),
        now_ms: app.clock.now_ms(),
    }
}

/// Whether a step can be run again: it is the last one of its turn and failed.
fn can_rerun(turn: &AgentTurn, step: &AgentStep) -> bool {
    let last = turn.steps.last().is_some_and(|last| last.response_id == step.response_id);
    last && matches!(step.state, StepState::Gone | StepState::Ended(Status::Failed | Status::Cancelled))
}

/// The uploaded files of a turn, as parts of its message.
async fn files(app: &Application, scope: &Scope, turn: &UserTurn<'_>) -> Result<Vec<Json>, SubmissionError> {
    let mut parts = Vec::with_capacity(turn.file_ids.len());
    for (index, id) in turn.file_ids.iter().enumerate() {
        let file = match Stem::of(id).is_some() {
            true => app.store.file(scope, id, app.clock.now_ms()).await?,
            false => None,
        };
        let Some(file) = file else {
            return Err(SubmissionError::field(format!("FileIds[{index}]"), "names no file that was uploaded"));
        };
        parts.push(attachments::file_part(&file.id, Some(&file.media_type)));
    }
    Ok(parts)
}

impl ExecuteAnswer {
    /// The answer to a step whose turn failed to start: a failed turn, or a refusal of the request.
    pub fn to_failed_start(step: &ExecuteStep, fault: Fault) -> Result<Self, Fault> {
        match is_turn_outcome(fault.kind) {
            true => Ok(Self::failed(step, &fault)),
            false => Err(fault),
        }
    }
}

/// Whether a fault is an outcome of the accepted turn. All other faults are refusals of the request.
fn is_turn_outcome(kind: FaultKind) -> bool {
    match kind {
        FaultKind::UpstreamBusy
        | FaultKind::UpstreamQuota
        | FaultKind::UpstreamCredential
        | FaultKind::UpstreamRejected
        | FaultKind::UpstreamUnknownModel
        | FaultKind::ContextLength
        | FaultKind::ContentPolicy
        | FaultKind::UpstreamDown
        | FaultKind::UpstreamBroken
        | FaultKind::UpstreamTimeout
        | FaultKind::ToolServer
        | FaultKind::ToolFailed
        | FaultKind::Deadline
        | FaultKind::Cancelled => true,
        FaultKind::Invalid
        | FaultKind::Unauthenticated
        | FaultKind::Forbidden
        | FaultKind::NotFound
        | FaultKind::MethodNotAllowed
        | FaultKind::TooLarge
        | FaultKind::UnsupportedMedia
        | FaultKind::RequestTimeout
        | FaultKind::Conflict
        | FaultKind::Mismatch
        | FaultKind::Overloaded
        | FaultKind::RateLimited
        | FaultKind::QuotaExceeded
        | FaultKind::OutOfMemory
        | FaultKind::ShuttingDown
        | FaultKind::StoreDown
        | FaultKind::Internal => false,
    }
}
