//! When the head of a streamed answer is due although no model has accepted yet.

use amalgam_engine::{Announced, Engine};
use tokio::{select, sync::oneshot, time::Instant};

/// What comes first: the start of a turn, or the moment at which its caller has to be sent a head.
pub enum HeadDue<T> {
    /// The turn has started, or was refused.
    Started(T),
    /// The head is due, and no model has accepted yet.
    Due(Announced),
}

/// Waits for a turn to start, and no longer than a stream may be without its head. `received` is when the request came.
pub async fn head_or_start<F: Future + Unpin>(
    engine: &Engine,
    received: Instant,
    announced: oneshot::Receiver<Announced>,
    starting: &mut F,
) -> HeadDue<F::Output> {
    let due = async {
        match announced.await {
            Ok(announced) => {
                tokio::time::sleep_until(received + engine.head_after()).await;
                announced
            }
            // Not a stream, or refused before.
            Err(_) => std::future::pending().await,
        }
    };
    select! {
        biased;
        started = starting => HeadDue::Started(started),
        announced = due => HeadDue::Due(announced),
    }
}
