//! An answer as it comes: `message.delta`, `tool_call`, `tool_result`, and `done` with the body of the whole answer.
//!
//! Made from the frames of the turn's response, so that a stream that was dropped can be picked up like any other.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{Fault, Scope};
use amalgam_protocol::{Event, EventKind, Raw, Reader, Writer};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};
use http::header;

use super::{
    error::UNAVAILABLE,
    told::{self, Numbers},
};
use crate::{app::App, wires::responses::deliver::event_stream};

/// The longest frame of our own.
const LONGEST_FRAME: usize = 64 * 1024 * 1024;

/// Turns frames of a response into events of this door. Those up to `after` are left out.
pub(super) fn events(
    app: Arc<App>,
    scope: Scope,
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    numbers: Numbers,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    let state = State {
        app,
        scope,
        frames,
        numbers,
        after,
        reader: Reader::new(LONGEST_FRAME),
        calls: HashMap::new(),
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

/// An answer that was given before, as a stream of its end alone.
pub(super) async fn at_once(response: Response) -> Result<Response, Fault> {
    let (head, body) = response.into_parts();
    let body = axum::body::to_bytes(body, LONGEST_FRAME).await.map_err(Fault::internal)?;
    let frame = [b"event: done\ndata: ".as_slice(), &body, b"\n\n"].concat();
    let mut told = event_stream(stream::iter([Bytes::from(frame)]));
    let of_body = [header::CONTENT_TYPE, header::CONTENT_LENGTH];
    for (name, value) in head.headers.iter().filter(|(name, _)| !of_body.contains(name)) {
        told.headers_mut().insert(name, value.clone());
    }
    Ok(told)
}

struct State<S> {
    app: Arc<App>,
    scope: Scope,
    frames: S,
    numbers: Numbers,
    after: Option<u64>,
    reader: Reader,
    /// Calls that run: the model's id and the tool's name by the item.
    calls: HashMap<String, (String, String)>,
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
            let sequence = raw.get("sequence_number").and_then(Raw::as_u64).unwrap_or_default();
            let fresh = self.after.is_none_or(|after| sequence > after);
            if let Some(frame) = self.frame(&event, sequence).await
                && fresh
            {
                told.extend_from_slice(&frame);
            }
        }
        told
    }

    async fn frame(&mut self, event: &Event<'_>, sequence: u64) -> Option<Vec<u8>> {
        let text = |name: &str| event.raw.get_str(name).unwrap_or_default().into_owned();
        match event.kind? {
            EventKind::Keepalive => Some(b": keepalive\n\n".to_vec()),
            EventKind::TextDelta => Some(frame("message.delta", sequence, |writer| {
                writer.key("delta").raw(event.raw.get("delta").unwrap_or(Raw::NULL));
                writer.key("output_index").number(event.output_index.unwrap_or_default());
            })),
            EventKind::ItemAdded => {
                let item = event.item.filter(|item| is_call(*item))?;
                let field = |name: &str| item.get_str(name).unwrap_or_default().into_owned();
                self.calls.insert(field("id"), (field("call_id"), field("name")));
                None
            }
            EventKind::McpArgumentsDone => {
                let (id, name) = self.calls.get(&text("item_id"))?;
                Some(frame("tool_call", sequence, |writer| {
                    writer.key("id").string(id);
                    writer.key("name").string(name);
                    writer.key("arguments").string(&text("arguments"));
                }))
            }
            EventKind::ItemDone => {
                let item = event.item.filter(|item| is_call(*item))?;
                let (id, name) = self.calls.remove(&*item.get_str("id")?)?;
                let output = item.get_str("output").unwrap_or_default();
                let output = Raw::parse(output.as_bytes()).unwrap_or_else(|_| item.get("output").unwrap_or(Raw::NULL));
                Some(frame("tool_result", sequence, |writer| told::write_result(writer, &id, &name, output)))
            }
            EventKind::Completed => {
                self.over = true;
                Some(done(Arc::clone(&self.app), self.scope.clone(), self.numbers, sequence).await)
            }
            EventKind::Incomplete
                if event.response.and_then(|response| response.get_str("status")).as_deref() != Some("cancelled") =>
            {
                self.over = true;
                Some(done(Arc::clone(&self.app), self.scope.clone(), self.numbers, sequence).await)
            }
            EventKind::Failed | EventKind::Incomplete => {
                self.over = true;
                Some(failed(sequence))
            }
            _ => None,
        }
    }
}

/// The body of the whole answer. It is in the store: the response's own end came after that.
async fn done(app: Arc<App>, scope: Scope, numbers: Numbers, sequence: u64) -> Vec<u8> {
    match told::body(&app, &scope, numbers).await {
        Ok(body) => {
            let mut done = format!("event: done\nid: {sequence}\ndata: ").into_bytes();
            done.extend_from_slice(&body);
            done.extend_from_slice(b"\n\n");
            done
        }
        Err(fault) => {
            tracing::warn!(detail = fault.detail, "an answer could not be told: {fault}");
            failed(sequence)
        }
    }
}

fn is_call(item: Raw<'_>) -> bool {
    item.get_str("type").as_deref() == Some("mcp_call")
}

fn failed(sequence: u64) -> Vec<u8> {
    frame("error", sequence, |writer| writer.key("detail").string(UNAVAILABLE))
}

fn frame(name: &str, sequence: u64, fill: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.object(fill);
    let mut frame = format!("event: {name}\nid: {sequence}\ndata: ").into_bytes();
    frame.extend_from_slice(&writer.into_bytes());
    frame.extend_from_slice(b"\n\n");
    frame
}
