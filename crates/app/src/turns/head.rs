//! Decides when the head of a streamed reply is sent although no model has accepted yet.

use amalgam_engine::{Engine, StreamHead};
use tokio::{select, sync::oneshot, time::Instant};

/// The first of two events: the turn starts, or its caller has to be sent a head.
pub enum HeadDue<T> {
    /// The turn has started or was refused.
    Started(T),
    /// The head is due, and no model has accepted yet.
    Due(StreamHead),
}

/// Waits for a turn to start, but no longer than a stream may be without its head. `received` is the arrival of the
/// request.
pub async fn head_or_start<F: Future + Unpin>(
    engine: &Engine,
    received: Instant,
    announced: oneshot::Receiver<StreamHead>,
    starting: &mut F,
) -> HeadDue<F::Output> {
    let due = async {
        match announced.await {
            Ok(announced) => {
                tokio::time::sleep_until(received + engine.head_after()).await;
                announced
            }
            // The turn is not streamed, or was refused.
            Err(_) => std::future::pending().await,
        }
    };
    select! {
        biased;
        started = starting => HeadDue::Started(started),
        announced = due => HeadDue::Due(announced),
    }
}
