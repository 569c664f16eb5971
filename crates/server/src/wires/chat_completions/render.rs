//! Replies to turns as completions: one object, or chunks.

use amalgam_app::turns::{ReplyBody, TurnReply};
use amalgam_chat_completions::{AnswerOptions, ChunkStream, completion};
use amalgam_core::{Fault, FaultKind};
use amalgam_protocol::{ErrorObject, Event, EventBatch, Raw};
use axum::response::Response;
use futures_util::stream;

use crate::wires::{
    answer,
    query::EVENT_STREAM,
    render::{Render, rendered},
    reply::{self, event_stream, with_head},
};

/// The reply to a turn as an HTTP response.
pub(super) fn reply(TurnReply { head, body, replayed }: TurnReply, options: AnswerOptions) -> Result<Response, Fault> {
    let response = match body {
        ReplyBody::Object(object) => whole(&object, options)?,
        ReplyBody::Events(events) => event_stream(rendered(events, Chunks(ChunkStream::new(options)))),
        // What is stored with a key is the reply of the Responses API.
        ReplyBody::Stored { status: 200, content_type, body } if content_type.starts_with(EVENT_STREAM) => {
            let events = stream::iter([EventBatch::from_frames(body)]);
            event_stream(rendered(events, Chunks(ChunkStream::new(options))))
        }
        ReplyBody::Stored { status: 200, body, .. } => whole(&body, options)?,
        ReplyBody::Stored { status, content_type, body } => reply::stored(status, content_type, body),
    };
    let response = with_head(&head, response);
    Ok(if replayed { reply::replayed(response) } else { response })
}

/// The completion for a response object. This API has no failed completions: a retry gets the failure as an error.
fn whole(object: &[u8], options: AnswerOptions) -> Result<Response, Fault> {
    let response = Raw::written_here(object).unwrap_or(Raw::EMPTY_OBJECT);
    match response.get("error").filter(|error| !error.is_null()) {
        None => Ok(answer::json(completion(response, options))),
        Some(error) => {
            let ErrorObject { message, code, .. } = ErrorObject::read(error);
            let fault = Fault::new(FaultKind::UpstreamBroken, message);
            Err(match code {
                Some(code) => fault.code(code),
                None => fault,
            })
        }
    }
}

struct Chunks(ChunkStream);

impl Render for Chunks {
    async fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) {
        self.0.on(event, rendered);
    }
}
