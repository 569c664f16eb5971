//! The reply to a turn as a message, whole or as events.

use amalgam_app::turns::{ReplyBody, TurnReply};
use amalgam_core::{Fault, FaultKind, Scope};
use amalgam_messages::{MessageStream, MessagesRendering, error_body, error_type, error_type_of_status, message};
use amalgam_protocol::{DEFAULT_DEPTH, ErrorObject, Event, EventBatch, Raw, ValueIndex, Writer};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;

use crate::wires::{
    answer,
    error::refused,
    render::{Render, rendered},
    reply::{event_stream, replayed, with_head},
};

/// The reply as an HTTP response.
pub(super) fn render(
    TurnReply { head, body, replayed: is_replay }: TurnReply,
    rendering: MessagesRendering,
    scope: &Scope,
) -> Result<Response, Fault> {
    let response = match body {
        ReplyBody::Object(object) => whole(&object, rendering, scope)?,
        ReplyBody::Events(events) => streamed(events, rendering),
        ReplyBody::Stored { status: 200, content_type, body } if content_type.starts_with("text/event-stream") => {
            streamed(stream::iter([EventBatch::from_frames(body)]), rendering)
        }
        ReplyBody::Stored { status: 200, body, .. } => whole(&body, rendering, scope)?,
        ReplyBody::Stored { status, body, .. } => {
            let raw = Raw::parse(&body).unwrap_or(Raw::NULL);
            let error = ErrorObject::read(raw.get("error").unwrap_or(Raw::NULL));
            refusal(status, error_type_of_status(status), &error.message, scope)
        }
    };
    let response = with_head(&head, response);
    Ok(if is_replay { replayed(response) } else { response })
}

fn whole(object: &Bytes, rendering: MessagesRendering, scope: &Scope) -> Result<Response, Fault> {
    let mut index = ValueIndex::default();
    let response = Raw::parse_large(object, DEFAULT_DEPTH, &mut index)
        .map_err(|error| Fault::new(FaultKind::Internal, "The stored answer cannot be read.").detail(error))?;
    if response.get_str("status").as_deref() == Some("failed") {
        let error = ErrorObject::read(response.get("error").unwrap_or(Raw::NULL));
        let kind = error_type(&error);
        let status = match kind {
            "invalid_request_error" => 400,
            "not_found_error" => 404,
            "rate_limit_error" => 429,
            "timeout_error" => 504,
            "overloaded_error" => 529,
            _ => 500,
        };
        return Ok(refusal(status, kind, &error.message, scope));
    }
    Ok(answer::json(message(response, rendering)))
}

fn refusal(status: u16, kind: &str, message: &str, scope: &Scope) -> Response {
    refused(status, error_body(kind, message, None, scope.request_id().map(|id| &**id)), None, false)
}

fn streamed(events: impl Stream<Item = EventBatch> + Send + Unpin + 'static, rendering: MessagesRendering) -> Response {
    event_stream(rendered(events, Renderer(MessageStream::new(rendering))))
}

struct Renderer(MessageStream);

impl Render for Renderer {
    async fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) {
        let mut frames = Writer::default();
        self.0.on(event, &mut frames);
        rendered.extend_from_slice(frames.bytes());
    }
}
