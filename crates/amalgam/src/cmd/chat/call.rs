//! One message to a server, and the events of its answer.

use amalgam_protocol::{Frame, Reader};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::{task::JoinSet, time::timeout};

use crate::server_client::{SILENCE, ServerAddress, send};

/// The route of messages.
const PATH: &str = "/api/v2/ai-agent/respond/";
/// The size limit of an event.
const LONGEST: usize = 16 * 1024 * 1024;

/// An event while an assistant answers.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// A part of the text.
    Delta(String),
    /// A tool runs.
    ToolCall { name: String, arguments: String },
    /// The whole answer: a JSON object as it was sent.
    Done(String),
    /// There is no answer.
    Failed(String),
}

/// An answer that is being received.
pub(super) struct Call {
    body: Incoming,
    reader: Reader,
    /// Drives the connection; ends when this is dropped.
    _connection: JoinSet<()>,
}

impl Call {
    /// Sends a message.
    pub(super) async fn start(
        place: &ServerAddress,
        key: Option<&str>,
        user: Option<&str>,
        body: &Value,
    ) -> anyhow::Result<Self> {
        let request = Request::post(format!("{}{PATH}", place.prefix))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "text/event-stream");
        let (response, tasks) = send(place, key, user, request, Bytes::from(body.to_string())).await?;
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            let body = timeout(SILENCE, body.collect()).await.context("the server did not answer in time")??.to_bytes();
            bail!(super::refusal(head.status, &body));
        }
        Ok(Self { body, reader: Reader::new(LONGEST), _connection: tasks })
    }

    /// The next event that the chat shows; `None` at the end of the answer.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            while let Some(frame) = self.reader.frame()? {
                if let Some(event) = event(&frame) {
                    return Ok(Some(event));
                }
            }
            let Some(piece) = timeout(SILENCE, self.body.frame()).await.context("the server did not answer in time")?
            else {
                return Ok(None);
            };
            if let Ok(data) = piece.context("reading the answer")?.into_data() {
                self.reader.push(data);
            }
        }
    }
}

fn event(frame: &Frame) -> Option<Event> {
    let data: Value = serde_json::from_slice(&frame.data).ok()?;
    let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
    match frame.event.as_deref()? {
        b"message.delta" => Some(Event::Delta(text("delta"))),
        b"tool_call" => Some(Event::ToolCall { name: text("name"), arguments: text("arguments") }),
        b"done" => Some(Event::Done(String::from_utf8_lossy(&frame.data).into_owned())),
        b"error" => Some(Event::Failed(text("detail"))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_by_their_names_and_others_pass_by() {
        let frame = |name: &'static str, data: &'static str| Frame {
            event: Some(Bytes::from_static(name.as_bytes())),
            data: Bytes::from_static(data.as_bytes()),
        };
        let delta = event(&frame("message.delta", r#"{"delta": "Hi"}"#));
        assert_eq!(delta, Some(Event::Delta("Hi".to_owned())));
        let call = Event::ToolCall { name: "find".to_owned(), arguments: "{}".to_owned() };
        assert_eq!(event(&frame("tool_call", r#"{"id": "1", "name": "find", "arguments": "{}"}"#)), Some(call));
        let done = r#"{"session_id": 1, "message": "Hi"}"#;
        assert_eq!(event(&frame("done", done)), Some(Event::Done(done.to_owned())));
        assert_eq!(event(&frame("error", r#"{"detail": "No."}"#)), Some(Event::Failed("No.".to_owned())));
        assert_eq!(event(&frame("tool_result", "{}")), None);
        assert_eq!(event(&frame("done", "{")), None);
    }
}
