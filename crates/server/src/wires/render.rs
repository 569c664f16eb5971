//! Renders the events of a response in the format of a wire. A resumed stream is rendered from the same events.

use amalgam_protocol::{Event, EventBatch, EventKind};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt as _, stream};

/// Renders events.
pub(super) trait Render: Send + 'static {
    /// Appends the wire's form of an event, if it has one.
    fn render(&mut self, event: &Event<'_>, rendered: &mut Vec<u8>) -> impl Future<Output = ()> + Send;
}

/// Whether an event is the last one.
pub(super) fn is_last(event: &Event<'_>) -> bool {
    matches!(event.kind, Some(EventKind::Completed | EventKind::Incomplete | EventKind::Failed))
}

/// The stream of rendered events.
pub(super) fn rendered(
    events: impl Stream<Item = EventBatch> + Send + Unpin + 'static,
    renderer: impl Render,
) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
    let state = (events, renderer, false);
    Box::pin(stream::unfold(state, |(mut events, mut renderer, mut ended)| async move {
        let mut rendered = Vec::new();
        while rendered.is_empty() {
            if ended {
                return None;
            }
            let batch = events.next().await?;
            for event in batch.events() {
                renderer.render(&event, &mut rendered).await;
                ended = is_last(&event);
                if ended {
                    break;
                }
            }
        }
        Some((Bytes::from(rendered), (events, renderer, ended)))
    }))
}
