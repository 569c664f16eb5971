//! A response's own frames, told in the words of another door. Whoever picks a stream up later tells it from the same frames.

use amalgam_protocol::{Event, EventKind, Raw, Reader};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};

/// The longest frame of our own.
pub(super) const LONGEST_FRAME: usize = 64 * 1024 * 1024;

/// Tells events in the words of a door.
pub(super) trait Retell: Send + 'static {
    /// Adds to `told` what the door says of an event, or nothing.
    fn tell(&mut self, event: &Event<'_>, sequence: u64, told: &mut Vec<u8>) -> impl Future<Output = ()> + Send;
}

/// Whether nothing comes behind an event.
pub(super) fn is_last(event: &Event<'_>) -> bool {
    matches!(event.kind, Some(EventKind::Completed | EventKind::Incomplete | EventKind::Failed))
}

/// What a door says of frames, as far as they come.
pub(super) fn retold(
    frames: impl Stream<Item = Bytes> + Send + Unpin + 'static,
    teller: impl Retell,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    let state = (frames, teller, Reader::new(LONGEST_FRAME), false);
    Box::pin(stream::unfold(state, |(mut frames, mut teller, mut reader, mut over)| async move {
        let mut told = Vec::new();
        while told.is_empty() {
            if over {
                return None;
            }
            reader.push(frames.next().await?);
            // Our own frames are never too long.
            while let (false, Ok(Some(frame))) = (over, reader.frame()) {
                let Ok(raw) = Raw::parse(&frame.data) else { continue };
                let sequence = raw.get("sequence_number").and_then(Raw::as_u64).unwrap_or_default();
                let event = Event::read(raw, None);
                teller.tell(&event, sequence, &mut told).await;
                over = is_last(&event);
            }
        }
        Some((Bytes::from(told), (frames, teller, reader, over)))
    }))
}
