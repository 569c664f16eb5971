//! A streamed turn: the events of its response, each in the turn's envelope, and the whole answer as the last one.

use std::sync::Arc;

use amalgam_app::execute::{ExecuteAnswer, ExecuteStep};
use amalgam_core::Scope;
use amalgam_execute::envelope::Casing;
use amalgam_protocol::{Event, EventBatch, Writer};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, header};
use tracing::warn;

use crate::{
    app::App,
    wires::{
        query::{EVENT_STREAM, accepts},
        render::{Render, is_last, rendered},
        reply::event_stream,
    },
};

/// The name of the last event.
const RESULT: &str = "turn.result";

/// The format of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Server-sent events.
    Sse,
    /// A JSON object per line.
    Lines,
}

impl Format {
    /// The format that a caller accepts; none for a whole answer.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        match (accepts(headers, "application/x-ndjson"), accepts(headers, EVENT_STREAM)) {
            (true, _) => Some(Self::Lines),
            (false, true) => Some(Self::Sse),
            (false, false) => None,
        }
    }

    /// The HTTP response for a stream.
    pub(super) fn response(self, events: impl Stream<Item = Bytes> + Send + Unpin + 'static) -> Response {
        let mut response = event_stream(events);
        if self == Self::Lines {
            let lines = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, lines);
        }
        response
    }
}

/// The stream of a turn that failed before the model answered: only its last event.
pub(super) fn last_event_only(app: &App, step: &ExecuteStep, result: &ExecuteAnswer, format: Format) -> Response {
    let mut rendered = Vec::new();
    let fill = |casing: Casing, writer: &mut Writer| conclusion(app, result, casing, writer);
    write(&mut rendered, app.execute.casing, format, step, RESULT, 0, fill);
    format.response(stream::iter([Bytes::from(rendered)]))
}

fn conclusion(app: &App, result: &ExecuteAnswer, casing: Casing, writer: &mut Writer) {
    casing.key(writer, "Final").bool(true);
    result.write(app, casing.key(writer, "Result"));
}

/// Renders the events of a response as events of this wire, except those up to `after`.
pub(super) fn events(
    app: &Arc<App>,
    scope: &Scope,
    events: impl Stream<Item = EventBatch> + Send + Unpin + 'static,
    step: ExecuteStep,
    format: Format,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    rendered(events, Renderer { app: Arc::clone(app), scope: scope.clone(), step, format, after })
}

struct Renderer {
    app: Arc<App>,
    scope: Scope,
    step: ExecuteStep,
    format: Format,
    after: Option<u64>,
}

impl Render for Renderer {
    async fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) {
        let sequence = event.sequence();
        if self.after.is_none_or(|after| sequence > after) {
            let name = event.raw.get_str("type").unwrap_or_default();
            self.write(rendered, &name, sequence, |casing, writer| casing.key(writer, "Event").raw(event.raw));
        }
        if is_last(event) {
            self.conclude(rendered, sequence + 1).await;
        }
    }
}

impl Renderer {
    /// The whole answer. It is stored before the response's last event.
    async fn conclude(&self, rendered: &mut Vec<u8>, index: u64) {
        match ExecuteAnswer::of(&self.app, &self.scope, &self.step).await {
            Ok(Some(result)) => {
                self.write(rendered, RESULT, index, |casing, writer| conclusion(&self.app, &result, casing, writer));
            }
            Ok(None) => warn!(response.id = self.step.response_id, "an answer could not be sent: it was deleted"),
            // The stream ends without its last event; a retry gets it.
            Err(fault) => warn!(detail = fault.detail, "an answer could not be sent: {fault}"),
        }
    }

    fn write(&self, rendered: &mut Vec<u8>, name: &str, index: u64, fill: impl FnOnce(Casing, &mut Writer)) {
        write(rendered, self.app.execute.casing, self.format, &self.step, name, index, fill);
    }
}

fn write(
    rendered: &mut Vec<u8>,
    casing: Casing,
    format: Format,
    step: &ExecuteStep,
    name: &str,
    index: u64,
    fill: impl FnOnce(Casing, &mut Writer),
) {
    let mut writer = Writer::default();
    writer.object(|writer| {
        casing.key(writer, "Type").string(name);
        casing.key(writer, "SessionId").string(&step.session_id);
        casing.key(writer, "TurnId").string(&step.turn_id);
        casing.key(writer, "Index").number(index);
        fill(casing, writer);
    });
    if format == Format::Sse {
        rendered.extend_from_slice(format!("event: {name}\nid: {index}\ndata: ").as_bytes());
    }
    rendered.extend_from_slice(&writer.into_bytes());
    rendered.extend_from_slice(if format == Format::Sse { b"\n\n" } else { b"\n" });
}
