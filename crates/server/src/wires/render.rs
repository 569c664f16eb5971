//! Renders the events of a response in the language of a wire. A resumed stream is rendered from the same events.

use amalgam_protocol::{Event, EventBatch, EventKind};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};

/// Renders events.
pub(super) trait Render: Send + 'static {
    /// Appends what the wire sends of an event, or nothing.
    fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) -> impl Future<Output = ()> + Send;
}

/// Whether nothing follows an event.
pub(super) fn is_last(event: &Event<'_>) -> bool {
    matches!(event.kind, Some(EventKind::Completed | EventKind::Incomplete | EventKind::Failed))
}

/// What a wire sends of events, as they come.
pub(super) fn rendered(
    events: impl Stream<Item = EventBatch> + Send + Unpin + 'static,
    renderer: impl Render,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    let state = (events, renderer, false);
    Box::pin(stream::unfold(state, |(mut events, mut renderer, mut over)| async move {
        let mut rendered = Vec::new();
        while rendered.is_empty() {
            if over {
                return None;
            }
            let batch = events.next().await?;
            for event in batch.events() {
                renderer.render(&event, &mut rendered).await;
                over = is_last(&event);
                if over {
                    break;
                }
            }
        }
        Some((Bytes::from(rendered), (events, renderer, over)))
    }))
}
