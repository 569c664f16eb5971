//! `POST /api/v2/ai-agent/respond/`: a user's message, and the assistant's answer.

use std::sync::Arc;

use amalgam_app::{
    assistant::{AssistantTurn, MessageIds, RespondError, answer_body, is_enabled},
    idempotency::{self, ClaimOutcome, FirstRequest},
    turns::{self, HeadDue, ReplyBody, ReplyHead, TurnReply, head_or_start},
};
use amalgam_core::{Fault, FaultKind, Scope};
use amalgam_engine::{Announcement, EarlyEvents, read_tail};
use amalgam_protocol::{EventBatch, Json, Raw, Status};
use axum::{extract::Request, response::Response};
use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use tokio::time::Instant;

use super::{error::AssistantError, stream};
use crate::wires::call::Call;
use crate::{
    app::App,
    body::read_json,
    wires::{
        answer,
        headers::idempotency_key,
        query::{EVENT_STREAM, accepts, last_event},
        reply::{self, event_stream, with_head},
    },
};

/// Answers a message. RNCC-19: authentication, permission, fields, model, and then the turn.
pub(super) async fn respond(Call { app, scope, .. }: Call, request: Request) -> Result<Response, AssistantError> {
    if !is_enabled(&app, &scope).await? {
        return Err(AssistantError::Disabled);
    }
    let (head, body) = read_json(request, app.text_body(), &app.memory).await?;
    let streamed = accepts(&head.headers, EVENT_STREAM);
    let Some(key) = idempotency_key(&head.headers)? else {
        let document = parse(&body)?;
        if streamed {
            return stream_of(app, scope, document, None).await;
        }
        let turn = AssistantTurn::begin(&app.app, &scope, document.raw(), None).await?;
        let head = ReplyHead::of(&turn.run);
        return Ok(with_head(&head, answer::json(turn.finish().await?)));
    };
    let claimed = idempotency::claim(&app.app, &scope, "POST /api/v2/ai-agent/respond", key, &body).await?;
    let first = match claimed {
        ClaimOutcome::Replayed(replayed) => return replay(&app, &scope, replayed, streamed).await,
        ClaimOutcome::First(first) => first,
    };
    let document = match parse(&body) {
        Ok(document) => document,
        Err(fault) => {
            first.release().await;
            return Err(fault.into());
        }
    };
    if streamed {
        return stream_of(app, scope, document, Some(first)).await;
    }
    let working = (Arc::clone(&app), scope.clone());
    let work = async move {
        let (app, scope) = working;
        let turn = AssistantTurn::begin(&app.app, &scope, document.raw(), None).await?;
        Ok::<_, RespondError>(Bytes::from(turn.finish().await?))
    };
    let body = first.run(work).await?;
    named(&app, &scope, body).await
}

pub(super) fn parse(body: &Bytes) -> Result<Json, Fault> {
    Json::parse(body)
        .map_err(|error| Fault::new(FaultKind::Invalid, format!("JSON parse error - {error}")).code("invalid_json"))
}

/// The reply to a retry.
async fn replay(app: &App, scope: &Scope, replayed: TurnReply, streamed: bool) -> Result<Response, AssistantError> {
    let response = match replayed.body {
        ReplyBody::Stored { status: 200, body, .. } => {
            let head = response_head(app, scope, &body).await?;
            match streamed {
                true => with_head(&head, stream::at_once(&body)),
                false => with_head(&head, answer::json(body)),
            }
        }
        // The keys of this wire store only whole answers.
        _ => return Err(Fault::internal("the stored reply of an assistant is not an answer").into()),
    };
    Ok(reply::replayed(response))
}

/// A whole answer, with the id of its response in a header.
async fn named(app: &App, scope: &Scope, body: Bytes) -> Result<Response, AssistantError> {
    let head = response_head(app, scope, &body).await?;
    Ok(with_head(&head, answer::json(body)))
}

/// The header values for a whole answer: the claim of an idempotency key has another id.
async fn response_head(app: &App, scope: &Scope, body: &Bytes) -> Result<ReplyHead, Fault> {
    let answered = Raw::parse(body).ok().and_then(|answer| answer.get_str("response_id").map(|id| id.into_owned()));
    let response_id = match &answered {
        Some(answered) => app.store.response_of_answer(scope, answered).await?,
        None => None,
    };
    Ok(response_id.map(|id| ReplyHead::named(&id)).unwrap_or_default())
}

/// Resumes the stream of an answer. P6
pub(super) async fn resume(
    Call { app, scope, path, query, .. }: Call,
    headers: HeaderMap,
) -> Result<Response, AssistantError> {
    let not_found = || Fault::new(FaultKind::NotFound, "Not found.");
    let id = path.id("Response").map_err(|_| not_found())?;
    let after = query.number("starting_after")?.or_else(|| last_event(&headers));
    // From the beginning: the first events of calls have their names.
    let tail = match read_tail(&*app.store, &scope, &id, None).await? {
        Some(tail) => tail,
        // The `response_id` of an answer is the upstream's id.
        None => {
            let id = app.store.response_of_answer(&scope, &id).await?.ok_or_else(not_found)?;
            read_tail(&*app.store, &scope, &id, None).await?.ok_or_else(not_found)?
        }
    };
    let messages = messages_of(&tail.response.settings)?.ok_or_else(not_found)?;
    let head = ReplyHead::named(&tail.response.id);
    let ended = matches!(tail.response.status.status, Status::Completed | Status::Incomplete);
    if ended && (!tail.response.streamed || tail.last.is_none()) {
        // Without stored events only the end is sent.
        return Ok(with_head(&head, stream::at_once(&answer_body(&app, &scope, messages).await?)));
    }
    let frames = turns::follow(&app, &scope, tail, None);
    Ok(with_head(&head, event_stream(stream::events(app, scope, frames, messages, after))))
}

/// A streamed answer. With an idempotency key the turn continues when its caller disconnects.
async fn stream_of(
    app: Arc<App>,
    scope: Scope,
    request: Json,
    first: Option<FirstRequest>,
) -> Result<Response, AssistantError> {
    let received = Instant::now();
    let (announcement, announced) = Announcement::new(false);
    let (working, caller) = (Arc::clone(&app), scope.clone());
    let mut starting =
        Box::pin(async move { AssistantTurn::begin(&working.app, &caller, request.raw(), Some(announcement)).await });
    match head_or_start(&app.engine, received, announced, &mut starting).await {
        HeadDue::Started(Ok(AssistantTurn { run, messages })) => {
            drop(starting);
            let head = ReplyHead::of(&run);
            Ok(with_head(&head, streamed(app, scope, run.into_events(), messages, first)))
        }
        HeadDue::Started(Err(error)) => {
            if let Some(first) = first {
                first.release().await;
            }
            Err(error.into())
        }
        HeadDue::Due(announced) => {
            let head = ReplyHead::named(&announced.identity.response_id);
            let messages = messages_of(announced.settings.bytes())?
                .ok_or_else(|| Fault::internal("a turn of an assistant does not know its messages"))?;
            let starting = Box::pin(async move {
                starting.await.map(|turn| turn.run).map_err(|error| match AssistantError::from(error) {
                    AssistantError::Fault(fault) => fault,
                    error => Fault::internal(format_args!("{error:?} after the head of a stream")),
                })
            });
            let frames = EarlyEvents::new(&app.engine, announced, starting);
            Ok(with_head(&head, streamed(app, scope, frames, messages, first)))
        }
    }
}

fn streamed(
    app: Arc<App>,
    scope: Scope,
    events: impl Stream<Item = EventBatch> + Send + Unpin + 'static,
    messages: MessageIds,
    first: Option<FirstRequest>,
) -> Response {
    let events = stream::events(Arc::clone(&app), scope.clone(), events, messages, None);
    match first {
        None => event_stream(events),
        Some(first) => event_stream(
            first.forward(events, async move { answer_body(&app, &scope, messages).await.ok().map(Bytes::from) }),
        ),
    }
}

/// The ids of a turn's messages, from the settings of its response.
pub(super) fn messages_of(settings: &Bytes) -> Result<Option<MessageIds>, Fault> {
    let settings = Bytes::from([b"{".as_slice(), settings, b"}"].concat());
    let settings = Raw::parse(&settings).map_err(Fault::internal)?;
    Ok(settings.get("metadata").and_then(MessageIds::read))
}
