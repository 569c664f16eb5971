//! When the head of an answer leaves, and what it tells of its turn.

use amalgam_core::Loss;
use amalgam_engine::{Announced, Engine, Run};
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use tokio::{select, sync::oneshot, time::Instant};

/// Our id of the response, on every door.
pub(in crate::wires) const RESPONSE_ID: HeaderName = HeaderName::from_static("amalgam-response-id");

/// `upstream/model` of the model that answers.
const MODEL: HeaderName = HeaderName::from_static("amalgam-model");

const LOSSES: HeaderName = HeaderName::from_static("amalgam-losses");

/// The most bytes of losses that a header tells; the response's own field `amalgam` has the whole list.
const LOSSES_BYTES: usize = 4096;

/// What is known first: how a turn began, or that its stream has to begin without its model.
pub(in crate::wires) enum First<T> {
    /// The turn has begun, or was refused.
    Begun(T),
    /// The head is due, and no model has accepted yet.
    Due(Announced),
}

/// Waits for a turn to begin, and no longer than a stream may be without its head. `began` is when the request came.
pub(in crate::wires) async fn begun_or_due<F: Future + Unpin>(
    engine: &Engine,
    began: Instant,
    announced: oneshot::Receiver<Announced>,
    beginning: &mut F,
) -> First<F::Output> {
    let due = async {
        match announced.await {
            Ok(announced) => {
                tokio::time::sleep_until(began + engine.head_after()).await;
                announced
            }
            // Not a stream, or refused before.
            Err(_) => std::future::pending().await,
        }
    };
    select! {
        biased;
        begun = beginning => First::Begun(begun),
        announced = due => First::Due(announced),
    }
}

/// What the head of an answer tells of its turn.
#[derive(Debug, Default)]
pub(in crate::wires) struct TurnHead {
    response_id: Option<HeaderValue>,
    model: Option<HeaderValue>,
    losses: Option<HeaderValue>,
}

impl TurnHead {
    /// Everything that is known of a turn that runs.
    pub(in crate::wires) fn of(run: &Run) -> Self {
        Self {
            model: run.answered_by().and_then(|model| HeaderValue::try_from(plain(model)).ok()),
            losses: losses(run.losses()),
            ..Self::named(run.response_id())
        }
    }

    /// Only the response's id is known.
    pub(in crate::wires) fn named(response_id: &str) -> Self {
        Self { response_id: HeaderValue::try_from(response_id).ok(), ..Self::default() }
    }

    /// The same with other losses.
    pub(in crate::wires) fn with_losses(self, list: &[Loss]) -> Self {
        Self { losses: losses(list), ..self }
    }

    /// The response with these headers.
    pub(in crate::wires) fn on(self, mut response: Response) -> Response {
        let headers = [(RESPONSE_ID, self.response_id), (MODEL, self.model), (LOSSES, self.losses)];
        for (name, value) in headers {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

fn losses(losses: &[Loss]) -> Option<HeaderValue> {
    if losses.is_empty() {
        return None;
    }
    let told = losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    HeaderValue::try_from(plain(&told).chars().take(LOSSES_BYTES).collect::<String>()).ok()
}

/// What a header can hold.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}
