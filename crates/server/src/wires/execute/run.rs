//! `POST /api/agent/execute`: a submission, and its answer whole or streamed.
//!
//! An accepted submission runs to its end even when its caller disconnects, so that a retry finds its answer.

use std::{sync::Arc, time::Duration};

use amalgam_app::{
    execute::{ExecuteAnswer, ExecuteStep, Submission},
    idempotency::ReceiverStream,
    turns::{self, HeadDue, ReplyHead, head_or_start},
};
use amalgam_core::{
    Delivery, Fault, FaultKind, Scope,
    store::{AgentStep, StepState},
};
use amalgam_engine::{Announcement, EarlyEvents, read_tail};
use amalgam_execute::{
    envelope::ExecuteIdentity,
    request::{self, ExecuteRequest},
};
use amalgam_protocol::{EventBatch, Json, Raw};
use axum::{extract::Request, response::Response};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use http::HeaderMap;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    error::ExecuteError,
    stream::{Format, events, last_event_only},
};
use crate::wires::call::Call;
use crate::{
    app::App,
    body::read_json,
    wires::{
        answer,
        query::{is_id, last_event},
        reply::{replayed, with_head},
    },
};

/// How often a retry polls the store for the end of its step, besides being notified.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Answers a submission.
pub(super) async fn execute(Call { app, scope, .. }: Call, request: Request) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    answered(&app, &scope, request).await.map_err(|error| error.with_casing(casing))
}

async fn answered(app: &Arc<App>, scope: &Scope, request: Request) -> Result<Response, ExecuteError> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let accepts = Format::accepted(&head.headers);
    let (answer_sender, answer) = oneshot::channel();
    let (working, caller) = (Arc::clone(app), scope.clone());
    app.engine.spawn_detached(async move { work(&working, &caller, &body, accepts, answer_sender).await });
    let answer = answer.await.map_err(|_| Fault::internal("a submission was worked on without an answer"))??;
    match answer {
        Answer::Whole(step, answer) => Ok(named(&step, answer::json(answer.body(app)))),
        Answer::LastEvent(step, format, answer) => Ok(named(&step, last_event_only(app, &step, &answer, format))),
        Answer::Events(step, format, receiver) => {
            let name = step.clone();
            Ok(named(&name, format.response(events(app, scope, ReceiverStream(receiver), step, format, None))))
        }
        Answer::Known(step, stored, format) => answer_retry(app, scope, step, *stored, format, &head.headers).await,
    }
}

/// A response with the id of its step's response in a header.
fn named(step: &ExecuteStep, response: Response) -> Response {
    with_head(&ReplyHead::named(&step.response_id), response)
}

/// The answer to a submission.
enum Answer {
    Whole(ExecuteStep, Box<ExecuteAnswer>),
    /// A stream with only the last event.
    LastEvent(ExecuteStep, Format, Box<ExecuteAnswer>),
    Events(ExecuteStep, Format, mpsc::Receiver<EventBatch>),
    /// The submission is a retry.
    Known(ExecuteStep, Box<AgentStep>, Option<Format>),
}

type AnswerSender = oneshot::Sender<Result<Answer, ExecuteError>>;

/// Runs a submission to its end, even when the caller disconnects.
async fn work(app: &Arc<App>, scope: &Scope, body: &Bytes, accepts: Option<Format>, answer_sender: AnswerSender) {
    let accepted = accept(app, scope, body, accepts).await;
    // The receiver is dropped when the caller disconnects.
    let (submitted, format) = match accepted {
        Err(error) => return drop(answer_sender.send(Err(error))),
        Ok((identity, Submission::Known(stored), format)) => {
            let turn_id = identity.turn_id.as_deref().unwrap_or_default();
            let step = ExecuteStep::stored(&identity.conversation_id, turn_id, &stored);
            return drop(answer_sender.send(Ok(Answer::Known(step, stored, format))));
        }
        Ok((_, Submission::New(submitted), format)) => (submitted, format),
    };
    let step = submitted.step.clone();
    let received = Instant::now();
    let (announcement, announced) = Announcement::new(false);
    let mut starting = Box::pin(submitted.begin(&app.app, scope, announcement));
    let run = match head_or_start(&app.engine, received, announced, &mut starting).await {
        HeadDue::Started(Ok(run)) => run,
        HeadDue::Due(announced) => {
            let frames = EarlyEvents::new(&app.engine, announced, starting);
            return forward(step, format.unwrap_or(Format::Sse), frames, answer_sender).await;
        }
        HeadDue::Started(Err(fault)) => {
            let answer = failed(app, scope, &step, fault).await.map(|answer| match format {
                Some(format) => Answer::LastEvent(step, format, answer),
                None => Answer::Whole(step, answer),
            });
            return drop(answer_sender.send(answer));
        }
    };
    let Some(format) = format else {
        let ended = match run.finish().await {
            Ok(turn) => {
                let answer = ExecuteAnswer::finished(app, scope, &step, &turn).await;
                answer.map(Box::new).map_err(|fault| ExecuteError::from(fault).with_identity(step.identity()))
            }
            Err(fault) => failed(app, scope, &step, fault).await,
        };
        return drop(answer_sender.send(ended.map(|answer| Answer::Whole(step, answer))));
    };
    drop(starting);
    forward(step, format, run.into_events(), answer_sender).await;
}

/// Forwards events, and drives the turn to its end even when the caller disconnects.
async fn forward(
    step: ExecuteStep,
    format: Format,
    mut events: impl Stream<Item = EventBatch> + Unpin,
    answer_sender: AnswerSender,
) {
    // A slow reader slows the turn down; a disconnected one does not.
    let (caller, receiver) = mpsc::channel(1);
    let _ = answer_sender.send(Ok(Answer::Events(step, format, receiver)));
    while let Some(batch) = events.next().await {
        let _ = caller.send(batch).await;
    }
}

async fn accept(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    accepts: Option<Format>,
) -> Result<(ExecuteIdentity, Submission, Option<Format>), ExecuteError> {
    let document = Json::parse_document(body, app.limits.json_depth).map_err(Fault::from)?;
    let raw = document.raw();
    let identity = identity_of(raw, app.execute.bounds.name_bytes);
    let accepted = async {
        match request::read(raw, &app.execute.bounds)? {
            ExecuteRequest::UserTurn(turn) => {
                let streamed = (turn.delivery == Delivery::Stream).then(|| accepts.unwrap_or(Format::Sse));
                Ok((Submission::user_turn(app, scope, &turn, streamed.is_some()).await?, streamed))
            }
            // A continuation is streamed if the caller accepts a stream: the contract has no flag for it. C-29
            ExecuteRequest::Continuation(continuation) => {
                Ok((Submission::continuation(app, scope, &continuation, accepts.is_some()).await?, accepts))
            }
        }
    };
    match accepted.await {
        Ok((submission, format)) => Ok((identity, submission, format)),
        Err::<_, ExecuteError>(error) => Err(error.with_identity(known_identity(app, scope, identity).await)),
    }
}

/// The identity with the ids of its session, if it is one of the caller's. R004-03
async fn known_identity(app: &App, scope: &Scope, identity: ExecuteIdentity) -> ExecuteIdentity {
    match is_id(&identity.conversation_id) {
        true => match app.store.agent_session(scope, &identity.conversation_id).await {
            Ok(Some(session)) => ExecuteIdentity { agent_context_id: session.profile, mode: session.mode, ..identity },
            Ok(None) | Err(_) => identity,
        },
        false => identity,
    }
}

/// The ids that the request names, for the answer to a refused request.
fn identity_of(raw: Raw<'_>, longest: usize) -> ExecuteIdentity {
    let text = |pascal: &str, camel: &str| {
        let text = raw.get_str(pascal).or_else(|| raw.get_str(camel))?;
        // Text that is too long for an id is not repeated.
        Some(text.into_owned()).filter(|text| text.len() <= longest)
    };
    ExecuteIdentity {
        conversation_id: text("SessionId", "sessionId").unwrap_or_default(),
        turn_id: text("TurnId", "turnId"),
        ..ExecuteIdentity::default()
    }
}

/// The answer to a step whose turn failed: from the store, if the turn had started.
async fn failed(
    app: &App,
    scope: &Scope,
    step: &ExecuteStep,
    fault: Fault,
) -> Result<Box<ExecuteAnswer>, ExecuteError> {
    let answer = match ExecuteAnswer::of(app, scope, step).await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) | Err(_) => ExecuteAnswer::to_failed_start(step, fault),
    };
    answer.map(Box::new).map_err(|fault| ExecuteError::from(fault).with_identity(step.identity()))
}

/// Answers a retry from the store, as soon as the answer is stored.
async fn answer_retry(
    app: &Arc<App>,
    scope: &Scope,
    step: ExecuteStep,
    mut stored: AgentStep,
    format: Option<Format>,
    headers: &HeaderMap,
) -> Result<Response, ExecuteError> {
    let deadline = Instant::now() + app.engine.turn_deadline();
    let after = last_event(headers);
    loop {
        let changed = app.store.changed(&step.response_id);
        if let Some(format) = format
            && let Some(tail) = read_tail(&*app.store, scope, &step.response_id, None).await?
        {
            let ended = !matches!(stored.state, StepState::Running);
            if tail.response.streamed {
                let frames = turns::follow(app, scope, tail, None);
                let name = step.clone();
                let response = format.response(events(app, scope, frames, step, format, after));
                return Ok(replayed(named(&name, response)));
            }
            if ended {
                let frames = stream::iter([EventBatch::from_frames(tail.response.all_frames())]);
                let name = step.clone();
                let response = format.response(events(app, scope, frames, step, format, after));
                return Ok(replayed(named(&name, response)));
            }
        }
        match stored.state {
            StepState::Ended(_) => {
                let answer = ExecuteAnswer::of(app, scope, &step).await?.ok_or_else(lost_step)?;
                return Ok(replayed(named(&step, answer::json(answer.body(app)))));
            }
            StepState::Gone => return Err(ExecuteError::from(lost_step()).with_identity(step.identity())),
            StepState::Running if Instant::now() >= deadline => {
                let fault = Fault::new(FaultKind::Deadline, "The first submission of this turn is not done yet.");
                return Err(ExecuteError::from(fault).with_identity(step.identity()));
            }
            StepState::Running => {
                let _ = timeout(POLL_INTERVAL, changed).await;
                stored = latest(app, scope, &step).await?;
            }
        }
    }
}

/// The step as currently stored.
async fn latest(app: &App, scope: &Scope, step: &ExecuteStep) -> Result<AgentStep, ExecuteError> {
    let turn = app.store.agent_turn(scope, &step.session_id, &step.turn_id).await?;
    let mut steps = turn.into_iter().flat_map(|turn| turn.steps);
    Ok(steps.find(|stored| stored.response_id == step.response_id).ok_or_else(lost_step)?)
}

/// The error for a step whose process died or could not start it.
fn lost_step() -> Fault {
    Fault::new(FaultKind::StoreDown, "The first submission came to nothing; send it again.")
        .code("submission_lost")
        .retry_after(Some(Duration::from_secs(1)))
}
