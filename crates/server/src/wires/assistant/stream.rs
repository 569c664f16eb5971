//! A streamed answer: `message.delta`, `tool_call`, `tool_result`, and `done` with the body of the whole answer.
//!
//! Rendered from the events of the turn's response, so that a stream can be resumed like any other.

use std::{collections::HashMap, sync::Arc};

use amalgam_app::assistant::{MessageIds, answer_body, write_result};
use amalgam_core::Scope;
use amalgam_protocol::{Event, EventBatch, EventKind, Raw, Writer};
use axum::response::Response;
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream;

use super::error::UNAVAILABLE;
use crate::{
    app::App,
    wires::{
        render::{Render, rendered},
        reply::event_stream,
    },
};

/// Renders the events of a response as events of this wire, except those up to `after`.
pub(super) fn events(
    app: Arc<App>,
    scope: Scope,
    events: impl Stream<Item = EventBatch> + Send + Unpin + 'static,
    messages: MessageIds,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    rendered(events, Renderer { app, scope, messages, after, calls: HashMap::new() })
}

/// A stored answer as a stream with only its last event.
pub(super) fn at_once(body: &[u8]) -> Response {
    let frame = [b"event: done\ndata: ".as_slice(), body, b"\n\n"].concat();
    event_stream(stream::iter([Bytes::from(frame)]))
}

struct Renderer {
    app: Arc<App>,
    scope: Scope,
    messages: MessageIds,
    after: Option<u64>,
    /// Running calls: the model's call id and the tool's name by item id.
    calls: HashMap<String, (String, String)>,
}

impl Render for Renderer {
    async fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) {
        let sequence = event.sequence();
        let frame = self.frame(event, sequence).await;
        if self.after.is_none_or(|after| sequence > after) {
            frame.into_iter().for_each(|frame| rendered.extend_from_slice(&frame));
        }
    }
}

impl Renderer {
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
                Some(frame("tool_result", sequence, |writer| write_result(writer, &id, &name, output)))
            }
            EventKind::Completed => {
                Some(done(Arc::clone(&self.app), self.scope.clone(), self.messages, sequence).await)
            }
            EventKind::Incomplete
                if event.response.and_then(|response| response.get_str("status")).as_deref() != Some("cancelled") =>
            {
                Some(done(Arc::clone(&self.app), self.scope.clone(), self.messages, sequence).await)
            }
            EventKind::Failed | EventKind::Incomplete => Some(failed(sequence)),
            _ => None,
        }
    }
}

/// The body of the whole answer. It is stored before the response's last event.
async fn done(app: Arc<App>, scope: Scope, messages: MessageIds, sequence: u64) -> Vec<u8> {
    match answer_body(&app, &scope, messages).await {
        Ok(body) => {
            let mut done = format!("event: done\nid: {sequence}\ndata: ").into_bytes();
            done.extend_from_slice(&body);
            done.extend_from_slice(b"\n\n");
            done
        }
        Err(fault) => {
            tracing::warn!(detail = fault.detail, "an answer could not be read: {fault}");
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
