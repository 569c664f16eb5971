//! Answers of turns: a whole one, frames as they come, or frames of a turn that runs elsewhere.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use amalgam_core::{
    BoxFuture, Delivery, Fault, Scope,
    store::{EventTail, StoredResponse},
};
use amalgam_engine::{Announced, Opening, Run, look};
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderName, HeaderValue, header};

use super::{
    gather::no_such_response,
    head::TurnHead,
    turn::{Begun, Running},
};
use crate::{
    app::App,
    wires::{WireError, answer},
};

/// Delivers a turn to the caller that began it; leaving ends one that runs in the foreground.
pub(super) async fn deliver(app: &App, scope: &Scope, begun: Begun) -> Result<Response, WireError> {
    match begun {
        Begun::Running(running) => {
            let Running { run, delivery, .. } = running;
            let head = TurnHead::of(&run);
            let response = match delivery {
                Delivery::Whole => answer::json(run.finish().await?),
                Delivery::Stream => event_stream(run.into_frames()),
            };
            Ok(head.on(response))
        }
        Begun::Queued { response, delivery: Delivery::Whole } => {
            Ok(TurnHead::named(&response.id).on(answer::json(response.object())))
        }
        Begun::Queued { response, delivery: Delivery::Stream } => followed(app, scope, &response.id).await,
    }
}

/// A turn that is being begun.
pub(super) type Beginning = BoxFuture<'static, Result<Begun, Fault>>;

/// The stream of a turn whose head is due before any model has accepted.
pub(super) fn opening(
    app: &App,
    announced: Announced,
    beginning: Beginning,
) -> Opening<BoxFuture<'static, Result<Box<Run>, Fault>>> {
    let beginning = async move {
        match beginning.await? {
            Begun::Running(running) => Ok(running.run),
            Begun::Queued { .. } => Err(Fault::internal("a turn that streams was put into the queue")),
        }
    };
    Opening::new(&app.engine, announced, Box::pin(beginning))
}

/// Delivers a turn that goes on when its caller leaves.
pub(super) async fn deliver_detached(app: &App, scope: &Scope, running: Running) -> Result<Response, WireError> {
    let Running { run, delivery, .. } = running;
    let head = TurnHead::of(&run);
    let id = run.response_id().to_owned();
    let answered = app.engine.detach(run);
    let response = match delivery {
        Delivery::Whole => {
            let answer = answered.await.map_err(|_| Fault::internal("a detached turn ended without an answer"))?;
            answer::json(answer?)
        }
        Delivery::Stream => followed(app, scope, &id).await?,
    };
    Ok(head.on(response))
}

/// The stream of a response that runs, or ran, elsewhere: from its beginning.
pub(super) async fn followed(app: &App, scope: &Scope, id: &str) -> Result<Response, WireError> {
    let tail = look(&*app.store, scope, id, None).await?.ok_or_else(|| no_such_response(id))?;
    Ok(TurnHead::named(id).on(follow_from(app, scope, tail, None)))
}

/// The stream of a response behind a sequence number.
pub(super) fn follow_from(app: &App, scope: &Scope, tail: EventTail, after: Option<u64>) -> Response {
    event_stream(Box::pin(app.engine.follow(scope.clone(), tail, after)))
}

/// A stored response as its caller asked for it.
pub(super) async fn told(app: &App, scope: &Scope, response: &StoredResponse) -> Result<Response, WireError> {
    match response.streamed {
        true => followed(app, scope, &response.id).await,
        false => Ok(TurnHead::named(&response.id).on(answer::json(response.object()))),
    }
}

/// Frames as a response body.
pub(in crate::wires) fn event_stream(frames: impl Stream<Item = Bytes> + Send + Unpin + 'static) -> Response {
    let mut response = Response::new(Body::new(FramesBody(frames)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that gather a body before they pass it on would hold the events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

struct FramesBody<S>(S);

impl<S: Stream<Item = Bytes> + Unpin> http_body::Body for FramesBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0).poll_next(context).map(|bytes| bytes.map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}
