//! A turn as it comes: the events of its response, each inside the turn's own envelope, and the whole answer as the last one.

use std::sync::Arc;

use amalgam_app::execute::{ExecuteAnswer, ExecuteStep};
use amalgam_core::{Scope, execute::envelope::Casing};
use amalgam_protocol::{Event, Writer};
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
        reply::event_stream,
        retell::{Retell, is_last, retold},
    },
};

/// The name of the last event.
const RESULT: &str = "turn.result";

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// Server-sent events.
    Sse,
    /// A JSON object a line.
    Lines,
}

impl Format {
    /// The one that a caller accepts; nothing for an answer in one piece.
    pub(super) fn accepted(headers: &HeaderMap) -> Option<Self> {
        match (accepts(headers, "application/x-ndjson"), accepts(headers, EVENT_STREAM)) {
            (true, _) => Some(Self::Lines),
            (false, true) => Some(Self::Sse),
            (false, false) => None,
        }
    }

    /// Events as a response.
    pub(super) fn response(self, events: impl Stream<Item = Bytes> + Send + Unpin + 'static) -> Response {
        let mut response = event_stream(events);
        if self == Self::Lines {
            let lines = HeaderValue::from_static("application/x-ndjson; charset=utf-8");
            response.headers_mut().insert(header::CONTENT_TYPE, lines);
        }
        response
    }
}

/// The stream of a turn that failed before its model said anything: its answer alone.
pub(super) fn alone(app: &App, step: &ExecuteStep, result: &ExecuteAnswer, format: Format) -> Response {
    let mut told = Vec::new();
    let fill = |casing: Casing, writer: &mut Writer| conclusion(app, result, casing, writer);
    write(&mut told, app.execute.casing, format, step, RESULT, 0, fill);
    format.response(stream::iter([Bytes::from(told)]))
}

fn conclusion(app: &App, result: &ExecuteAnswer, casing: Casing, writer: &mut Writer) {
    casing.key(writer, "Final").bool(true);
    result.write(app, casing.key(writer, "Result"));
}

/// Turns frames of a response into events of this door. Those up to `after` are left out.
pub(super) fn events(
    app: &Arc<App>,
    scope: &Scope,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    step: ExecuteStep,
    format: Format,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    retold(frames, Teller { app: Arc::clone(app), scope: scope.clone(), step, format, after })
}

struct Teller {
    app: Arc<App>,
    scope: Scope,
    step: ExecuteStep,
    format: Format,
    after: Option<u64>,
}

impl Retell for Teller {
    async fn tell(&mut self, event: &Event<'_>, sequence: u64, told: &mut Vec<u8>) {
        if self.after.is_none_or(|after| sequence > after) {
            let name = event.raw.get_str("type").unwrap_or_default();
            self.write(told, &name, sequence, |casing, writer| casing.key(writer, "Event").raw(event.raw));
        }
        if is_last(event) {
            self.conclude(told, sequence + 1).await;
        }
    }
}

impl Teller {
    /// The whole answer. It is in the store: the response's own end came after that.
    async fn conclude(&self, told: &mut Vec<u8>, index: u64) {
        match ExecuteAnswer::of(&self.app, &self.scope, &self.step).await {
            Ok(Some(result)) => {
                self.write(told, RESULT, index, |casing, writer| conclusion(&self.app, &result, casing, writer));
            }
            Ok(None) => warn!(response.id = self.step.response_id, "an answer could not be told: it was deleted"),
            // The stream ends without its last event, and whoever sends the same again gets it.
            Err(fault) => warn!(detail = fault.detail, "an answer could not be told: {fault}"),
        }
    }

    fn write(&self, told: &mut Vec<u8>, name: &str, index: u64, fill: impl FnOnce(Casing, &mut Writer)) {
        write(told, self.app.execute.casing, self.format, &self.step, name, index, fill);
    }
}

fn write(
    told: &mut Vec<u8>,
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
        told.extend_from_slice(format!("event: {name}\nid: {index}\ndata: ").as_bytes());
    }
    told.extend_from_slice(&writer.into_bytes());
    told.extend_from_slice(if format == Format::Sse { b"\n\n" } else { b"\n" });
}
