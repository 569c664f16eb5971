//! A turn as it comes: the events of its response, each inside the turn's own envelope, and the whole answer as the last one.

use std::sync::Arc;

use amalgam_core::{Scope, execute::envelope::Casing};
use amalgam_protocol::{Event, EventKind, Raw, Reader, Writer};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, header};
use tracing::warn;

use super::told::{Asked, Told};
use crate::{app::App, wires::responses::deliver::event_stream};

/// The longest frame of our own.
const LONGEST_FRAME: usize = 64 * 1024 * 1024;

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
        let accepts = |kind: &str| {
            let mut values = headers.get_all(header::ACCEPT).iter();
            values.any(|value| value.to_str().is_ok_and(|value| value.to_ascii_lowercase().contains(kind)))
        };
        match (accepts("application/x-ndjson"), accepts("text/event-stream")) {
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
pub(super) fn alone(app: &App, asked: &Asked, result: &Told, format: Format) -> Response {
    let mut told = Vec::new();
    let fill = |casing: Casing, writer: &mut Writer| conclusion(app, result, casing, writer);
    write(&mut told, app.execute.casing, format, asked, RESULT, 0, fill);
    format.response(stream::iter([Bytes::from(told)]))
}

fn conclusion(app: &App, result: &Told, casing: Casing, writer: &mut Writer) {
    casing.key(writer, "Final").bool(true);
    result.write(app, casing.key(writer, "Result"));
}

/// Turns frames of a response into events of this door. Those up to `after` are left out.
pub(super) fn events(
    app: &Arc<App>,
    scope: &Scope,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    asked: Asked,
    format: Format,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    let state = State {
        app: Arc::clone(app),
        scope: scope.clone(),
        frames,
        asked,
        format,
        after,
        reader: Reader::new(LONGEST_FRAME),
        over: false,
    };
    Box::pin(stream::unfold(state, |mut state| async move {
        loop {
            if state.over {
                return None;
            }
            let piece = state.frames.next().await?;
            let told = state.tell(piece).await;
            if !told.is_empty() {
                return Some((Bytes::from(told), state));
            }
        }
    }))
}

struct State<S> {
    app: Arc<App>,
    scope: Scope,
    frames: S,
    asked: Asked,
    format: Format,
    after: Option<u64>,
    reader: Reader,
    over: bool,
}

impl<S> State<S> {
    async fn tell(&mut self, piece: Bytes) -> Vec<u8> {
        let mut told = Vec::new();
        self.reader.push(piece);
        // Our own frames are never too long.
        while let Ok(Some(frame)) = self.reader.frame() {
            let Ok(raw) = Raw::parse(&frame.data) else { continue };
            let event = Event::read(raw, None);
            let index = raw.get("sequence_number").and_then(Raw::as_u64).unwrap_or_default();
            let name = raw.get_str("type").unwrap_or_default();
            if self.after.is_none_or(|after| index > after) {
                self.write(&mut told, &name, index, |casing, writer| casing.key(writer, "Event").raw(raw));
            }
            if matches!(event.kind, Some(EventKind::Completed | EventKind::Incomplete | EventKind::Failed)) {
                self.over = true;
                self.conclude(&mut told, index + 1).await;
                break;
            }
        }
        told
    }

    /// The whole answer. It is in the store: the response's own end came after that.
    async fn conclude(&mut self, told: &mut Vec<u8>, index: u64) {
        match Told::of(&self.app, &self.scope, &self.asked).await {
            Ok(Some(result)) => {
                self.write(told, RESULT, index, |casing, writer| conclusion(&self.app, &result, casing, writer));
            }
            Ok(None) => warn!(response.id = self.asked.response_id, "an answer could not be told: it was deleted"),
            // The stream ends without its last event, and whoever sends the same again gets it.
            Err(fault) => warn!(detail = fault.detail, "an answer could not be told: {fault}"),
        }
    }

    fn write(&self, told: &mut Vec<u8>, name: &str, index: u64, fill: impl FnOnce(Casing, &mut Writer)) {
        write(told, self.app.execute.casing, self.format, &self.asked, name, index, fill);
    }
}

fn write(
    told: &mut Vec<u8>,
    casing: Casing,
    format: Format,
    asked: &Asked,
    name: &str,
    index: u64,
    fill: impl FnOnce(Casing, &mut Writer),
) {
    let mut writer = Writer::default();
    writer.object(|writer| {
        casing.key(writer, "Type").string(name);
        casing.key(writer, "SessionId").string(&asked.session_id);
        casing.key(writer, "TurnId").string(&asked.turn_id);
        casing.key(writer, "Index").number(index);
        fill(casing, writer);
    });
    if format == Format::Sse {
        told.extend_from_slice(format!("event: {name}\nid: {index}\ndata: ").as_bytes());
    }
    told.extend_from_slice(&writer.into_bytes());
    told.extend_from_slice(if format == Format::Sse { b"\n\n" } else { b"\n" });
}
