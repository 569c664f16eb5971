//! `POST /api/agent/execute`: a submission, and its answer in one piece or as it comes.
//!
//! From the moment that a submission is taken it is worked on whatever becomes of its caller, so that the caller can send the
//! same again and find it done.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Fault, FaultKind, Scope,
    execute::{
        envelope::Identity,
        request::{self, ExecuteRequest},
    },
    store::{AgentStep, StepState},
};
use amalgam_engine::{Announcement, Opening, look};
use amalgam_protocol::{Ends, Raw};
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
    ask::{self, Standing},
    error::ExecuteError,
    stream::{Format, alone, events},
    told::{Asked, Told},
};
use crate::{
    app::App,
    body::read_json,
    wires::{
        answer,
        query::{is_id, last_event},
        responses::{
            error::syntax,
            head::{First, TurnHead, begun_or_due},
            once::{Passing, replayed},
        },
    },
};

/// How often somebody who waits for a step looks whether it is done, besides being woken.
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
    let (head, body) = read_json(request, app.limits.whole_body(), &app.memory).await?;
    let accepts = Format::accepted(&head.headers);
    let (answering, answer) = oneshot::channel();
    let (working, whose) = (Arc::clone(app), scope.clone());
    app.engine.outlive(async move { work(&working, &whose, &body, accepts, answering).await });
    let answer = answer.await.map_err(|_| Fault::internal("a submission was worked on without an answer"))??;
    match answer {
        Answer::Whole(asked, told) => Ok(named(&asked).on(answer::json(told.body(app)))),
        Answer::Alone(asked, format, told) => Ok(named(&asked).on(alone(app, &asked, &told, format))),
        Answer::Frames(asked, format, frames) => {
            let head = named(&asked);
            Ok(head.on(format.response(events(app, scope, Passing(frames), asked, format, None))))
        }
        Answer::Known(asked, step, format) => known(app, scope, asked, *step, format, &head.headers).await,
    }
}

/// What the head of an answer tells.
fn named(asked: &Asked) -> TurnHead {
    TurnHead::named(&asked.response_id)
}

/// What a submission is answered with.
enum Answer {
    Whole(Asked, Box<Told>),
    /// A stream of nothing but the answer.
    Alone(Asked, Format, Box<Told>),
    Frames(Asked, Format, mpsc::Receiver<Bytes>),
    /// It was sent before.
    Known(Asked, Box<AgentStep>, Option<Format>),
}

type Answering = oneshot::Sender<Result<Answer, ExecuteError>>;

/// Does the work, whatever becomes of the caller.
async fn work(app: &Arc<App>, scope: &Scope, body: &Bytes, accepts: Option<Format>, answering: Answering) {
    let taken = take(app, scope, body, accepts).await;
    // Nobody listens when the caller has left.
    let (work, format) = match taken {
        Err(error) => return drop(answering.send(Err(error))),
        Ok((asked, Standing::Known(step), format)) => {
            let asked = Asked::kept(&asked.conversation_id, asked.turn_id.as_deref().unwrap_or_default(), &step);
            return drop(answering.send(Ok(Answer::Known(asked, step, format))));
        }
        Ok((_, Standing::Begun(work), format)) => (work, format),
    };
    let asked = work.asked.clone();
    let began = Instant::now();
    let (announcement, announced) = Announcement::new(false);
    let mut beginning = Box::pin(work.begin(app, scope, announcement));
    let run = match begun_or_due(&app.engine, began, announced, &mut beginning).await {
        First::Begun(Ok(run)) => run,
        First::Due(announced) => {
            let frames = Opening::new(&app.engine, announced, beginning);
            return pass_on(asked, format.unwrap_or(Format::Sse), frames, answering).await;
        }
        First::Begun(Err(fault)) => {
            let answer = ended(app, scope, &asked, Err(fault)).await.map(|told| match format {
                Some(format) => Answer::Alone(asked, format, told),
                None => Answer::Whole(asked, told),
            });
            return drop(answering.send(answer));
        }
    };
    let Some(format) = format else {
        let finished = run.finish().await.map(drop);
        let ended = ended(app, scope, &asked, finished).await;
        return drop(answering.send(ended.map(|told| Answer::Whole(asked, told))));
    };
    drop(beginning);
    pass_on(asked, format, run.into_frames(), answering).await;
}

/// Passes frames on, and drives them to their end also when the caller leaves.
async fn pass_on(asked: Asked, format: Format, mut frames: impl Stream<Item = Bytes> + Unpin, answering: Answering) {
    // A caller that reads slowly makes the turn wait; one that has left does not.
    let (caller, passing) = mpsc::channel(1);
    let _ = answering.send(Ok(Answer::Frames(asked, format, passing)));
    while let Some(piece) = frames.next().await {
        let _ = caller.send(piece).await;
    }
}

async fn take(
    app: &App,
    scope: &Scope,
    body: &Bytes,
    accepts: Option<Format>,
) -> Result<(Identity, Standing, Option<Format>), ExecuteError> {
    let mut ends = Ends::default();
    let raw = Raw::parse_large(body, app.limits.json_depth, &mut ends).map_err(|error| syntax(&error))?;
    let identity = identity_of(raw, app.execute.bounds.name_bytes);
    let taken = async {
        match request::read(raw, &app.execute.bounds)? {
            ExecuteRequest::UserTurn(turn) => {
                let streamed = (turn.delivery == Delivery::Stream).then(|| accepts.unwrap_or(Format::Sse));
                Ok((ask::user_turn(app, scope, &turn, streamed.is_some()).await?, streamed))
            }
            // The rest of a turn is told as its caller accepts it: the contract has no flag for that. C-29
            ExecuteRequest::Continuation(continuation) => {
                Ok((ask::continuation(app, scope, &continuation, accepts.is_some()).await?, accepts))
            }
        }
    };
    match taken.await {
        Ok((standing, format)) => Ok((identity, standing, format)),
        Err::<_, ExecuteError>(error) => Err(error.of(known_identity(app, scope, identity).await)),
    }
}

/// The same with what its session knows, if it is one of the caller's. R004-03
async fn known_identity(app: &App, scope: &Scope, identity: Identity) -> Identity {
    match is_id(&identity.conversation_id) {
        true => match app.store.agent_session(scope, &identity.conversation_id).await {
            Ok(Some(session)) => Identity { agent_context_id: session.profile, mode: session.mode, ..identity },
            Ok(None) | Err(_) => identity,
        },
        false => identity,
    }
}

/// Whose request it says it is, for the answer to one that is not taken.
fn identity_of(raw: Raw<'_>, longest: usize) -> Identity {
    let text = |pascal: &str, camel: &str| {
        let text = raw.get_str(pascal).or_else(|| raw.get_str(camel))?;
        // What can be no name is not repeated.
        Some(text.into_owned()).filter(|text| text.len() <= longest)
    };
    Identity {
        conversation_id: text("SessionId", "sessionId").unwrap_or_default(),
        turn_id: text("TurnId", "turnId"),
        ..Identity::default()
    }
}

/// The answer to a step that has come to its end.
async fn ended(
    app: &App,
    scope: &Scope,
    asked: &Asked,
    finished: Result<(), Fault>,
) -> Result<Box<Told>, ExecuteError> {
    let told = match (Told::of(app, scope, asked).await, finished) {
        (Ok(Some(told)), _) => Ok(told),
        (Ok(None), Ok(())) => Err(Fault::internal("an answer is not in the store").into()),
        (Err(fault), Ok(())) => Err(fault.into()),
        (_, Err(fault)) => ask::failed(asked, fault),
    };
    told.map(Box::new).map_err(|error: ExecuteError| error.of(asked.identity()))
}

/// Answers what was sent before: from what is kept of it, or as soon as there is something.
async fn known(
    app: &Arc<App>,
    scope: &Scope,
    asked: Asked,
    mut step: AgentStep,
    format: Option<Format>,
    headers: &HeaderMap,
) -> Result<Response, ExecuteError> {
    let deadline = Instant::now() + app.engine.turn_deadline();
    let after = last_event(headers);
    loop {
        let changed = app.store.changed(&asked.response_id);
        if let Some(format) = format
            && let Some(tail) = look(&*app.store, scope, &asked.response_id, None).await?
        {
            let over = !matches!(step.state, StepState::Running);
            if tail.response.streamed {
                let frames = Box::pin(app.engine.follow(scope.clone(), tail, None));
                let head = named(&asked);
                return Ok(replayed(head.on(format.response(events(app, scope, frames, asked, format, after)))));
            }
            if over {
                let frames = stream::iter([Bytes::from(tail.response.all_words())]);
                let head = named(&asked);
                return Ok(replayed(head.on(format.response(events(app, scope, frames, asked, format, after)))));
            }
        }
        match step.state {
            StepState::Ended(_) => {
                let told = Told::of(app, scope, &asked).await?.ok_or_else(gone)?;
                return Ok(replayed(named(&asked).on(answer::json(told.body(app)))));
            }
            StepState::Gone => return Err(ExecuteError::from(gone()).of(asked.identity())),
            StepState::Running if Instant::now() >= deadline => {
                let fault = Fault::new(FaultKind::Deadline, "The first submission of this turn is not done yet.");
                return Err(ExecuteError::from(fault).of(asked.identity()));
            }
            StepState::Running => {
                let _ = timeout(LOOK_AGAIN, changed).await;
                step = latest(app, scope, &asked).await?;
            }
        }
    }
}

/// How a step stands now.
async fn latest(app: &App, scope: &Scope, asked: &Asked) -> Result<AgentStep, ExecuteError> {
    let turn = app.store.agent_turn(scope, &asked.session_id, &asked.turn_id).await?;
    let mut steps = turn.into_iter().flat_map(|turn| turn.steps);
    Ok(steps.find(|step| step.response_id == asked.response_id).ok_or_else(gone)?)
}

/// Whoever worked on it has died, or could not begin.
fn gone() -> Fault {
    Fault::new(FaultKind::StoreDown, "The first submission came to nothing; send it again.")
        .code("submission_lost")
        .retry_after(Some(Duration::from_secs(1)))
}
