//! Replies to turns as HTTP responses: headers that name the turn, and the response object or its frames.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use amalgam_app::turns::{ReplyBody, ReplyHead, TurnReply};
use amalgam_core::Loss;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::answer;

/// The id of the response, on every wire.
pub(super) const RESPONSE_ID: HeaderName = HeaderName::from_static("amalgam-response-id");

/// `upstream/model` of the model that answers.
const MODEL: HeaderName = HeaderName::from_static("amalgam-model");

const LOSSES: HeaderName = HeaderName::from_static("amalgam-losses");

const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The maximum size of the losses header; the field `amalgam` of the response has the whole list.
const LOSSES_BYTES: usize = 4096;

/// The reply to a turn as an HTTP response.
pub(super) fn render(TurnReply { head, body, replayed: is_replay }: TurnReply) -> Response {
    let response = match body {
        ReplyBody::Object(object) => answer::json(object),
        ReplyBody::Events(events) => event_stream(events),
        ReplyBody::Stored { status, content_type, body } => stored(status, content_type, body),
    };
    let response = with_head(&head, response);
    if is_replay { replayed(response) } else { response }
}

pub(super) fn stored(status: u16, content_type: String, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    if let Ok(content_type) = HeaderValue::try_from(content_type) {
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    }
    response
}

/// The response with headers that name its turn.
pub(super) fn with_head(head: &ReplyHead, mut response: Response) -> Response {
    let id = Some(&head.response_id).filter(|id| !id.is_empty()).and_then(|id| HeaderValue::try_from(id).ok());
    let model = head.model.as_deref().and_then(|model| HeaderValue::try_from(printable(model)).ok());
    for (name, value) in [(RESPONSE_ID, id), (MODEL, model), (LOSSES, losses(&head.losses))] {
        if let Some(value) = value {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Marks the response as the reply to a retry.
pub(super) fn replayed(mut response: Response) -> Response {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn losses(losses: &[Loss]) -> Option<HeaderValue> {
    if losses.is_empty() {
        return None;
    }
    let list = losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    HeaderValue::try_from(printable(&list).chars().take(LOSSES_BYTES).collect::<String>()).ok()
}

/// The text without characters that a header cannot contain.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// A stream of server-sent events or lines as a response.
pub(super) fn event_stream<T: Into<Bytes> + 'static>(
    events: impl Stream<Item = T> + Send + Unpin + 'static,
) -> Response {
    let mut response = Response::new(Body::new(EventBody(events)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Proxies that buffer a body would hold the events back.
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

struct EventBody<S>(S);

impl<T: Into<Bytes>, S: Stream<Item = T> + Unpin> http_body::Body for EventBody<S> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0)
            .poll_next(context)
            .map(|batch| batch.map(|batch| Ok(http_body::Frame::data(batch.into()))))
    }
}
