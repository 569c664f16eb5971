//! Takes a submission, if it is one that may be taken, and has it worked on. What it says is answered once, whoever sends it
//! how often, and to whichever process.

use std::sync::Arc;

use amalgam_core::{
    Fault, Scope, Stem,
    execute::{
        attach,
        fingerprint::Fingerprint,
        request::{Continuation, UserTurn},
        results,
    },
    store::{AgentSession, AgentStep, AgentTurn, NewStep, StepState, TakenStep},
};
use amalgam_engine::{Announcement, Run};
use amalgam_protocol::{Json, Status};
use bytes::Bytes;

use super::{
    compose::{self, Head, Speaker},
    error::ExecuteError,
    mode_tool::change_mode,
    sessions, told,
    told::{Asked, Notes, Told},
    turns,
};
use crate::{
    app::App,
    wires::{
        assistant::AssistantError,
        responses::turn::{Begun, Offered, Order, Settled, begin},
    },
};

/// What became of a submission.
pub(super) enum Standing {
    /// It is worked on from now on.
    Begun(Box<Work>),
    /// It is being worked on, or was.
    Known(Box<AgentStep>),
}

/// A submission that is to be worked on: everything that is needed to begin.
pub(super) struct Work {
    pub(super) asked: Asked,
    session: AgentSession,
    speaker: Speaker,
    identity: amalgam_engine::Identity,
    /// The tool that the model has to call first.
    first_tool: Option<String>,
    body: Bytes,
}

impl Work {
    /// Asks the model. A submission that could not be begun can be sent again.
    pub(super) async fn begin(
        self,
        app: &Arc<App>,
        scope: &Scope,
        announcement: Announcement,
    ) -> Result<Box<Run>, Fault> {
        let Self { asked, session, speaker, identity, first_tool, body } = self;
        let begun = async {
            let route = speaker.agent.route(app, scope).await.map_err(AssistantError::into_fault)?;
            let settled = Settled {
                route,
                before: Vec::new(),
                memory: None,
                thread: None,
                offered: Offered::Known,
                own_tools: vec![change_mode(app, &session, &asked.turn_id, &speaker.modes)],
                first_tool,
                rounds: speaker.rounds(),
                limit_each_call: true,
                model: speaker.agent.resolved.model.value.clone(),
                raw_answer: true,
                keeps: true,
            };
            let mut order = Order::settled(identity, settled).announced(Some(announcement));
            match begin(app, scope, &body, &mut order).await? {
                Begun::Running(running) => Ok(running.run),
                Begun::Queued { .. } => Err(Fault::internal("a turn of the strict contract was put into the queue")),
            }
        };
        let begun = begun.await;
        if begun.is_err()
            && let Err(error) = app.store.drop_step(scope, &session.id, &asked.response_id).await
        {
            tracing::warn!("a submission could not be given back: {error}");
        }
        begun
    }
}

/// Takes a user's turn.
pub(super) async fn user_turn(
    app: &App,
    scope: &Scope,
    turn: &UserTurn<'_>,
    streamed: bool,
) -> Result<Standing, ExecuteError> {
    let session = sessions::found(app, scope, &turn.session_id).await?;
    let fingerprint = turn.fingerprint();
    // Most of what is sent again is found here, before anything is looked up for it.
    if let Some(known) = app.store.agent_turn(scope, &session.id, &turn.turn_id).await?
        && let Some(step) = known.steps.first()
    {
        match (step.fingerprint == fingerprint, is_over(&known, step)) {
            (false, _) => return Err(ExecuteError::reused(&turn.turn_id)),
            (true, false) => return Ok(Standing::Known(Box::new(step.clone()))),
            (true, true) => {}
        }
    }
    let speaker = Speaker::of(app, scope, &session, turn.agent_context_id.as_deref()).await?;
    if turn.agent_context_id.is_some() && speaker.agent.profile.is_none() {
        return Err(ExecuteError::field("AgentContextId", "names no active agent of this tenant"));
    }
    let files = files(app, scope, turn).await?;
    let mut notes = Notes {
        agent_context_id: turn.agent_context_id.as_deref().map(str::to_owned).or_else(|| session.profile.clone()),
        conversation_context_id: turn.conversation_context_id.as_deref().map(str::to_owned),
        hides_raw: !speaker.agent.resolved.expose_raw_responses.value,
        ..Notes::default()
    };
    let context = compose::look_up(app, scope, turn, &speaker.mode, &mut notes).await?;
    let newest = app.store.agent_turns(scope, &session.id, None, 1).await?.unwrap_or_default().pop();
    if let Some(before) = newest.as_ref().filter(|before| before.turn_id != turn.turn_id)
        && told::is_pending(app, scope, before).await?
    {
        notes.warnings.push(format!("turn '{}' was waiting for tool results and is given up", before.turn_id));
    }
    let identity = app.engine.identity();
    let asked = Asked::new(&session, &turn.turn_id, &speaker, &identity, notes);
    let solution = turn.solution_context.as_deref();
    let taken = app.store.take_step(scope, new_step(app, &asked, fingerprint, None, solution)).await?;
    let parent = match taken {
        TakenStep::First { parent } => parent,
        TakenStep::Already(step) => return Ok(Standing::Known(Box::new(step))),
        TakenStep::Different => return Err(ExecuteError::reused(&turn.turn_id)),
        TakenStep::Busy { turn_id } => return Err(ExecuteError::busy(&turn_id)),
        TakenStep::Missing => return Err(sessions::missing(&turn.session_id).into()),
    };
    let solution = solution.or(session.solution_context.as_deref());
    let head = Head { session_id: &session.id, turn_id: &turn.turn_id, parent: parent.as_deref(), streamed };
    let body = speaker.user_turn(turn, &files, solution, context.as_ref(), &head);
    let first_tool = speaker.first_tool();
    Ok(Standing::Begun(Box::new(Work { asked, session, speaker, identity, first_tool, body })))
}

/// Takes the results that a turn waits for. Whatever is wrong with them, the turn goes on waiting. C-13
pub(super) async fn continuation(
    app: &App,
    scope: &Scope,
    continuation: &Continuation<'_>,
    streamed: bool,
) -> Result<Standing, ExecuteError> {
    let session = sessions::found(app, scope, &continuation.session_id).await?;
    let turn_id = &*continuation.turn_id;
    let turn = app.store.agent_turn(scope, &session.id, turn_id).await?.ok_or_else(|| turns::missing(turn_id))?;
    let fingerprint = continuation.fingerprint();
    let same = turn.steps.iter().skip(1).find(|step| step.fingerprint == fingerprint);
    if let Some(step) = same.filter(|step| !is_over(&turn, step)) {
        return Ok(Standing::Known(Box::new(step.clone())));
    }
    // A step that failed is done once more: what it follows waits as before.
    let last = match (same, turn.steps.as_slice()) {
        (Some(_), [.., before, _]) => before,
        (_, [.., last]) => last,
        (_, []) => return Err(ExecuteError::not_pending(turn_id)),
    };
    match last.state {
        StepState::Running => return Err(ExecuteError::busy(turn_id)),
        StepState::Ended(Status::Completed) => {}
        StepState::Ended(_) | StepState::Gone => return Err(ExecuteError::not_pending(turn_id)),
    }
    let waiting = Told::of(app, scope, &Asked::kept(&session.id, turn_id, last)).await?.filter(Told::waits);
    let Some(waiting) = waiting else { return Err(ExecuteError::not_pending(turn_id)) };
    let pending = waiting.envelope.tool_calls.iter().map(|call| call.call_id.as_str());
    let differences = results::differences(pending, continuation.results.iter().map(|result| &*result.call_id));
    if !differences.is_empty() {
        return Err(differences.into());
    }
    let before = turn.steps.first().map_or_else(Notes::default, |step| Notes::read(step.notes.raw()));
    let asked = before.agent_context_id.as_deref().filter(|slug| session.profile.as_deref() != Some(slug));
    let speaker = Speaker::of(app, scope, &session, asked).await?;
    let notes = Notes { warnings: Vec::new(), ..before };
    let identity = app.engine.identity();
    let asked = Asked::new(&session, turn_id, &speaker, &identity, notes);
    let follows = &last.response_id;
    let step = new_step(app, &asked, fingerprint, Some(follows), None);
    match app.store.take_step(scope, step).await? {
        TakenStep::First { .. } => {}
        TakenStep::Already(step) => return Ok(Standing::Known(Box::new(step))),
        TakenStep::Different => return Err(ExecuteError::not_pending(turn_id)),
        TakenStep::Busy { turn_id } => return Err(ExecuteError::busy(&turn_id)),
        TakenStep::Missing => return Err(turns::missing(turn_id).into()),
    }
    let head = Head { session_id: &session.id, turn_id, parent: Some(follows), streamed };
    let body = speaker.continuation(continuation, &head);
    // What had to be called first was called. C-30
    Ok(Standing::Begun(Box::new(Work { asked, session, speaker, identity, first_tool: None, body })))
}

/// A submission as the store takes it.
fn new_step(
    app: &App,
    asked: &Asked,
    fingerprint: Fingerprint,
    follows: Option<&str>,
    solution_context: Option<&str>,
) -> NewStep {
    NewStep {
        session_id: asked.session_id.clone(),
        turn_id: asked.turn_id.clone(),
        fingerprint,
        follows: follows.map(str::to_owned),
        response_id: asked.response_id.clone(),
        process: app.engine.process(),
        mode: asked.mode.clone(),
        notes: asked.notes.write(),
        solution_context: solution_context.map(str::to_owned),
        now_ms: app.clock.now_ms(),
    }
}

/// Whether nobody has an answer to a step, so that it may be done once more: the last one of its turn, which failed.
fn is_over(turn: &AgentTurn, step: &AgentStep) -> bool {
    let last = turn.steps.last().is_some_and(|last| last.response_id == step.response_id);
    last && matches!(step.state, StepState::Gone | StepState::Ended(Status::Failed | Status::Cancelled))
}

/// The uploaded files that a turn refers to, as parts of its message.
async fn files(app: &App, scope: &Scope, turn: &UserTurn<'_>) -> Result<Vec<Json>, ExecuteError> {
    let mut parts = Vec::with_capacity(turn.file_ids.len());
    for (index, id) in turn.file_ids.iter().enumerate() {
        let file = match Stem::of(id).is_some() {
            true => app.store.file(scope, id, app.clock.now_ms()).await?,
            false => None,
        };
        let Some(file) = file else {
            return Err(ExecuteError::field(format!("FileIds[{index}]"), "names no file that was uploaded"));
        };
        parts.push(attach::file_part(&file.id, Some(&file.media_type)));
    }
    Ok(parts)
}

/// The answer to a submission that was taken and could not be begun: the turn's, or a refusal.
pub(super) fn failed(asked: &Asked, fault: Fault) -> Result<Told, ExecuteError> {
    match super::error::is_of_turn(fault.kind) {
        true => Ok(Told::failed(asked, &fault)),
        false => Err(fault.into()),
    }
}
