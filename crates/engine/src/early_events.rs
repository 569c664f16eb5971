//! The frames of a streamed turn whose model has not accepted when its caller receives the response head.
//!
//! The caller gets `response.created` and `response.in_progress` at once, then keepalive events while the candidates
//! are called. A failure is sent as `error` and `response.failed`, because the status code is already sent.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{Delivery, Fault, Ids, Stem};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{EventBatch, Json};
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::warn;

use crate::{announcement::StreamHead, engine::Engine, events::TurnEvents, run::Run};

/// A streamed response that begins before its model has accepted. `F` starts the turn.
pub struct EarlyEvents<F> {
    stage: Stage<F>,
}

enum Stage<F> {
    Waiting(Box<WaitingStream<F>>),
    Running(Box<TurnEvents>),
    Finished,
}

struct WaitingStream<F> {
    beginning: F,
    emitter: Emitter,
    /// The frames sent so far, which are stored once the turn runs.
    sent: Vec<u8>,
    keepalive: Duration,
    timer: Pin<Box<Sleep>>,
}

impl<F> EarlyEvents<F> {
    /// Begins the stream of a turn. Dropping it ends the turn.
    pub fn new(engine: &Engine, announced: StreamHead, beginning: F) -> Self {
        let StreamHead { identity, settings, .. } = announced;
        let mut emitter = Emitter::new(ResponseStart {
            ids: Stem::of(&identity.response_id).map_or(Ids::Unguessable, Ids::Within),
            response_id: identity.response_id,
            created_at: identity.created_at_ms / 1000,
            settings,
            delivery: Delivery::Stream,
            call_ids: false,
        });
        emitter.begin();
        let keepalive = engine.settings.keepalive;
        let timer = Box::pin(sleep_until(Instant::now() + keepalive));
        Self {
            stage: Stage::Waiting(Box::new(WaitingStream { beginning, emitter, sent: Vec::new(), keepalive, timer })),
        }
    }

    /// The output items, once the turn has ended successfully.
    pub fn output(&self) -> Option<Vec<Json>> {
        match &self.stage {
            Stage::Running(frames) => frames.output(),
            Stage::Waiting(_) | Stage::Finished => None,
        }
    }
}

impl<F> WaitingStream<F> {
    /// Takes the frames that are ready, if there are any.
    fn take(&mut self) -> Option<EventBatch> {
        if !self.emitter.has_frames() {
            return None;
        }
        let frames = self.emitter.take_frames();
        self.sent.extend_from_slice(&frames);
        self.timer.as_mut().reset(Instant::now() + self.keepalive);
        Some(EventBatch::from_frames(frames))
    }
}

impl<F: Future<Output = Result<Box<Run>, Fault>> + Unpin> Stream for EarlyEvents<F> {
    type Item = EventBatch;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EventBatch>> {
        let this = self.get_mut();
        loop {
            let waiting = match &mut this.stage {
                Stage::Running(events) => return Pin::new(&mut **events).poll_next(context),
                Stage::Finished => return Poll::Ready(None),
                Stage::Waiting(waiting) => waiting,
            };
            if let Some(frames) = waiting.take() {
                return Poll::Ready(Some(frames));
            }
            match Pin::new(&mut waiting.beginning).poll(context) {
                Poll::Ready(Ok(run)) => {
                    let (sent, sequence) = (std::mem::take(&mut waiting.sent), waiting.emitter.sequence());
                    this.stage = Stage::Running(Box::new(TurnEvents::resume(run, &sent, sequence)));
                }
                Poll::Ready(Err(fault)) => {
                    let id = waiting.emitter.response_id();
                    warn!(response.id = id, kind = ?fault.kind, detail = fault.detail, "stream failed: {fault}");
                    waiting.emitter.fail(fault.response_error());
                    let last = waiting.take();
                    this.stage = Stage::Finished;
                    return Poll::Ready(last);
                }
                Poll::Pending => {
                    if waiting.timer.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    waiting.emitter.keepalive();
                }
            }
        }
    }
}
