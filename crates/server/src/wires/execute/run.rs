//! `POST /api/agent/execute`: a submission, and its answer in one piece or as it comes.
//!
//! A submission that is taken runs to its end also when its caller leaves, so that a retry finds it done.

use std::{sync::Arc, time::Duration};

use amalgam_app::{
    execute::{ExecuteAnswer, ExecuteStep, Submission},
    idempotency::Passed,
    turns::{self, HeadDue, ReplyHead, head_or_start},
};
use amalgam_core::{
    Delivery, Fault, FaultKind, Scope,
    execute::{
        envelope::ExecuteIdentity,
        request::{self, ExecuteRequest},
    },
    store::{AgentStep, StepState},
};
use amalgam_engine::{Announcement, EarlyEvents, look};
use amalgam_protocol::{EventBatch, Json, Raw};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
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
    stream::{Format, alone, events},
};
use crate::{
    app::App,
    body::read_json,
    wires::{
        answer,
        query::{is_id, last_event},
        reply::{replayed, with_head},
    },
};

/// How often a retry asks the store whether its step is done, besides being notified.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Answers a submission.
pub(super) async fn execute(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, ExecuteError> {
    let casing = app.execute.casing;
    answered(&app, &scope, request).await.map_err(|error| error.cased(casing))
}

async fn answered(app: &Arc<App>, scope: &Scope, request: Request) -> Result<Response, ExecuteError> {
    let (head, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let accepts = Format::accepted(&head.headers);
    let (answering, answer) = oneshot::channel();
    let (working, whose) = (Arc::clone(app), scope.clone());
    app.engine.outlive(async move { work(&working, &whose, &body, accepts, answering).await });
    let answer = answer.await.map_err(|_| Fault::internal("a submission was worked on without an answer"))??;
    match answer {
        Answer::Whole(step, answer) => Ok(named(&step, answer::json(answer.body(app)))),
        Answer::Alone(step, format, answer) => Ok(named(&step, alone(app, &step, &answer, format))),
        Answer::Events(step, format, passed) => {
            let name = step.clone();
            Ok(named(&name, format.response(events(app, scope, Passed(passed), step, format, None))))
        }
        Answer::Known(step, stored, format) => known(app, scope, step, *stored, format, &head.headers).await,
    }
}

/// A response with the id of its step's response in its head.
fn named(step: &ExecuteStep, response: Response) -> Response {
    with_head(&ReplyHead::named(&step.response_id), response)
}

/// What a submission is answered with.
enum Answer {
    Whole(ExecuteStep, Box<ExecuteAnswer>),
    /// A stream of nothing but the answer.
    Alone(ExecuteStep, Format, Box<ExecuteAnswer>),
    Events(ExecuteStep, Format, mpsc::Receiver<EventBatch>),
    /// It was sent before.
    Known(ExecuteStep, Box<AgentStep>, Option<Format>),
}

type Answering = oneshot::Sender<Result<Answer, ExecuteError>>;

/// Runs a submission to its end, also when the caller leaves.
async fn work(app: &Arc<App>, scope: &Scope, body: &Bytes, accepts: Option<Format>, answering: Answering) {
    let taken = take(app, scope, body, accepts).await;
    // The receiver is gone when the caller has left.
    let (submitted, format) = match taken {
        Err(error) => return drop(answering.send(Err(error))),
        Ok((identity, Submission::Known(stored), format)) => {
            let turn_id = identity.turn_id.as_deref().unwrap_or_default();
            let step = ExecuteStep::stored(&identity.conversation_id, turn_id, &stored);
            return drop(answering.send(Ok(Answer::Known(step, stored, format))));
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
            return pass_on(step, format.unwrap_or(Format::Sse), frames, answering).await;
        }
        HeadDue::Started(Err(fault)) => {
            let answer = ended(app, scope, &step, Err(fault)).await.map(|answer| match format {
                Some(format) => Answer::Alone(step, format, answer),
                None => Answer::Whole(step, answer),
            });
            return drop(answering.send(answer));
        }
    };
    let Some(format) = format else {
        let finished = run.finish().await.map(drop);
        let ended = ended(app, scope, &step, finished).await;
        return drop(answering.send(ended.map(|answer| Answer::Whole(step, answer))));
    };
    drop(starting);
    pass_on(step, format, run.into_events(), answering).await;
}

/// Passes events on, and drives the turn to its end also when the caller leaves.
async fn pass_on(
    step: ExecuteStep,
    format: Format,
    mut events: impl Stream<Item = EventBatch> + Unpin,
    answering: Answering,
) {
    // A caller that reads slowly makes the turn wait; one that has left does not.
    let (caller, passed) = mpsc::channel(1);
    let _ = answering.send(Ok(Answer::Events(step, format, passed)));
    while let Some(batch) = events.next().await {
        let _ = caller.send(batch).await;
    }
}

async fn take(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    accepts: Option<Format>,
) -> Result<(ExecuteIdentity, Submission, Option<Format>), ExecuteError> {
    let document = Json::parse_document(body, app.limits.json_depth).map_err(Fault::from)?;
    let raw = document.raw();
    let identity = identity_of(raw, app.execute.bounds.name_bytes);
    let taken = async {
        match request::read(raw, &app.execute.bounds)? {
            ExecuteRequest::UserTurn(turn) => {
                let streamed = (turn.delivery == Delivery::Stream).then(|| accepts.unwrap_or(Format::Sse));
                Ok((Submission::user_turn(app, scope, &turn, streamed.is_some()).await?, streamed))
            }
            // The rest of a turn is sent as its caller accepts it: the contract has no flag for that. C-29
            ExecuteRequest::Continuation(continuation) => {
                Ok((Submission::continuation(app, scope, &continuation, accepts.is_some()).await?, accepts))
            }
        }
    };
    match taken.await {
        Ok((submission, format)) => Ok((identity, submission, format)),
        Err::<_, ExecuteError>(error) => Err(error.of(known_identity(app, scope, identity).await)),
    }
}

/// The same with what its session knows, if it is one of the caller's. R004-03
async fn known_identity(app: &App, scope: &Scope, identity: ExecuteIdentity) -> ExecuteIdentity {
    match is_id(&identity.conversation_id) {
        true => match app.store.agent_session(scope, &identity.conversation_id).await {
            Ok(Some(session)) => ExecuteIdentity { agent_context_id: session.profile, mode: session.mode, ..identity },
            Ok(None) | Err(_) => identity,
        },
        false => identity,
    }
}

/// Whose request it says it is, for the answer to one that is not taken.
fn identity_of(raw: Raw<'_>, longest: usize) -> ExecuteIdentity {
    let text = |pascal: &str, camel: &str| {
        let text = raw.get_str(pascal).or_else(|| raw.get_str(camel))?;
        // What can be no name is not repeated.
        Some(text.into_owned()).filter(|text| text.len() <= longest)
    };
    ExecuteIdentity {
        conversation_id: text("SessionId", "sessionId").unwrap_or_default(),
        turn_id: text("TurnId", "turnId"),
        ..ExecuteIdentity::default()
    }
}

/// The answer to a step that has ended.
async fn ended(
    app: &App,
    scope: &Scope,
    step: &ExecuteStep,
    finished: Result<(), Fault>,
) -> Result<Box<ExecuteAnswer>, ExecuteError> {
    let answer = match (ExecuteAnswer::of(app, scope, step).await, finished) {
        (Ok(Some(answer)), _) => Ok(answer),
        (Ok(None), Ok(())) => Err(Fault::internal("an answer is not in the store")),
        (Err(fault), Ok(())) => Err(fault),
        (_, Err(fault)) => ExecuteAnswer::to_failed_start(step, fault),
    };
    answer.map(Box::new).map_err(|fault| ExecuteError::from(fault).of(step.identity()))
}

/// Answers a retry: from what is stored, or as soon as something is.
async fn known(
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
            && let Some(tail) = look(&*app.store, scope, &step.response_id, None).await?
        {
            let over = !matches!(stored.state, StepState::Running);
            if tail.response.streamed {
                let frames = turns::follow(app, scope, tail, None);
                let name = step.clone();
                let response = format.response(events(app, scope, frames, step, format, after));
                return Ok(replayed(named(&name, response)));
            }
            if over {
                let frames = stream::iter([EventBatch::from_frames(tail.response.all_frames())]);
                let name = step.clone();
                let response = format.response(events(app, scope, frames, step, format, after));
                return Ok(replayed(named(&name, response)));
            }
        }
        match stored.state {
            StepState::Ended(_) => {
                let answer = ExecuteAnswer::of(app, scope, &step).await?.ok_or_else(gone)?;
                return Ok(replayed(named(&step, answer::json(answer.body(app)))));
            }
            StepState::Gone => return Err(ExecuteError::from(gone()).of(step.identity())),
            StepState::Running if Instant::now() >= deadline => {
                let fault = Fault::new(FaultKind::Deadline, "The first submission of this turn is not done yet.");
                return Err(ExecuteError::from(fault).of(step.identity()));
            }
            StepState::Running => {
                let _ = timeout(LOOK_AGAIN, changed).await;
                stored = latest(app, scope, &step).await?;
            }
        }
    }
}

/// The step as it is stored now.
async fn latest(app: &App, scope: &Scope, step: &ExecuteStep) -> Result<AgentStep, ExecuteError> {
    let turn = app.store.agent_turn(scope, &step.session_id, &step.turn_id).await?;
    let mut steps = turn.into_iter().flat_map(|turn| turn.steps);
    Ok(steps.find(|stored| stored.response_id == step.response_id).ok_or_else(gone)?)
}

/// The process that ran it has died, or could not begin.
fn gone() -> Fault {
    Fault::new(FaultKind::StoreDown, "The first submission came to nothing; send it again.")
        .code("submission_lost")
        .retry_after(Some(Duration::from_secs(1)))
}
