//! A batch of events for the caller of a response.

use bytes::Bytes;
use memchr::memmem;

use crate::{
    event::Event,
    json::{Json, Raw},
    sse::DONE,
};

/// Complete frames of server-sent events that this server wrote. A wire of the Responses API sends the frames
/// unchanged; any other wire renders the events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch(Bytes);

impl EventBatch {
    /// A batch of complete frames that this server wrote.
    pub fn from_frames(frames: impl Into<Bytes>) -> Self {
        Self(frames.into())
    }

    /// The frames.
    pub fn frames(&self) -> &Bytes {
        &self.0
    }

    /// The frames.
    pub fn into_frames(self) -> Bytes {
        self.0
    }

    /// Whether this is the last batch.
    pub fn is_last(&self) -> bool {
        self.0.ends_with(DONE)
    }

    /// The events in order, without `[DONE]`.
    pub fn events(&self) -> impl Iterator<Item = Event<'_>> {
        self.data().map(|data| Event::read(data, None))
    }

    /// The JSON object of each event.
    pub fn data(&self) -> impl Iterator<Item = Raw<'_>> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || {
            loop {
                let end = memmem::find(rest, b"\n\n")?;
                let (frame, after) = rest.split_at_checked(end + 2)?;
                rest = after;
                let start = memmem::find(frame, b"data: {").map(|at| at + b"data: ".len());
                if let Some(data) = start.and_then(|start| frame.get(start..end)).and_then(Raw::written_here) {
                    return Some(data);
                }
            }
        })
    }
}

impl From<EventBatch> for Bytes {
    fn from(batch: EventBatch) -> Self {
        batch.0
    }
}

impl Event<'_> {
    /// The sequence number of the event.
    pub fn sequence(&self) -> u64 {
        self.raw.get("sequence_number").and_then(Raw::as_u64).unwrap_or_default()
    }

    /// The event as an owned value.
    pub fn to_json(&self) -> Json {
        self.raw.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::EventKind, json::Writer};

    #[test]
    fn the_events_of_a_batch_are_those_that_were_written() {
        let mut writer = Writer::default();
        for (number, kind) in [EventKind::Created, EventKind::TextDelta, EventKind::Completed].into_iter().enumerate() {
            writer.frame(kind.name(), |writer| {
                writer.key("sequence_number").number(number as u64);
                writer.key("delta").string("a \"data: {\n\n\" b");
            });
        }
        writer.outside(DONE);
        let batch = EventBatch::from_frames(writer.into_bytes());
        let events: Vec<_> = batch.events().map(|event| (event.kind, event.sequence())).collect();
        let expected = [EventKind::Created, EventKind::TextDelta, EventKind::Completed].map(Some);
        assert_eq!(events, expected.into_iter().zip(0..).collect::<Vec<_>>());
        assert!(batch.events().all(|event| event.raw.get_str("delta").as_deref() == Some("a \"data: {\n\n\" b")));
        assert!(batch.is_last());
    }
}
