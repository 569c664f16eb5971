//! The stored events of a streamed turn, page by page.

use amalgam_app::not_found;
use amalgam_core::{Fault, Scope};
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{TURN, reader};
use crate::{Administration, access::known_id, fields::Verbatim, list::List};

/// The default and the maximum size of a page.
pub const EVENT_PAGE: (usize, u64) = (200, 1000);

/// The approximate number of bytes of a page.
const PAGE_BYTES: usize = 512 * 1024;

/// An event of a streamed turn.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "TurnEventEntry")]
pub struct TurnEventView {
    /// The number of the event in its stream.
    sequence_number: u64,
    #[schemars(extend("const" = "turn.event"))]
    object: &'static str,
    /// The type, such as `response.output_text.delta`.
    r#type: String,
    /// The event as it was sent: a JSON object.
    #[schemars(schema_with = "event_shape")]
    event: Verbatim,
}

fn event_shape(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "additionalProperties": true})
}

impl Administration<'_> {
    /// The stored events of a turn after a sequence number, in order; none of a turn that was not streamed. `id` is that of the
    /// response.
    pub async fn turn_events(
        &self,
        scope: &Scope,
        id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<List<TurnEventView, u64>, Fault> {
        let (id, admin) = (known_id(TURN, id)?, reader(scope)?);
        let chunks = self.store.turn_events(admin, id, after, PAGE_BYTES).await?;
        let turn = self.store.turn(admin, id).await?.ok_or_else(|| not_found(TURN, id))?;
        let stored_last = chunks.last().map(|chunk| chunk.last);
        let is_full = chunks.iter().map(|chunk| chunk.frames.len()).sum::<usize>() >= PAGE_BYTES;
        let mut events: Vec<TurnEventView> = Vec::new();
        let mut has_more = is_full;
        for chunk in chunks {
            for (number, data) in (chunk.first..=chunk.last).zip(frames(&chunk.frames)) {
                if after.is_some_and(|after| number <= after) {
                    continue;
                }
                if events.len() == limit {
                    has_more = true;
                    break;
                }
                events.extend(event(number, &data));
            }
        }
        // The last events are not stored: they are made from the response.
        if let Some(last) = stored_last.filter(|_| !has_more && turn.response.status.status.is_final()) {
            let frames: Bytes = turn.response.final_frames(last + 1).into();
            events.extend((last + 1..).zip(self::frames(&frames)).filter_map(|(number, data)| event(number, &data)));
        }
        let next = has_more.then(|| events.last().map(|event| event.sequence_number)).flatten();
        Ok(List::until(events, next, |event| event.sequence_number))
    }
}

fn event(sequence_number: u64, data: &Bytes) -> Option<TurnEventView> {
    let event = Json::parse(data).ok()?;
    let r#type = event.raw().get_str("type").unwrap_or_default().into_owned();
    Some(TurnEventView { sequence_number, object: "turn.event", r#type, event: Verbatim(event) })
}

/// The data of each frame. Frames are written by the server: one line of data each.
fn frames(frames: &Bytes) -> impl Iterator<Item = Bytes> {
    let text: &[u8] = frames;
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data: "));
    lines.filter(|line| Raw::parse(line).is_ok()).map(|line| frames.slice_ref(line))
}
