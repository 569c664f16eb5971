//! The frames of a streamed turn whose model has not accepted yet when its caller is shown the head.
//!
//! The caller gets `response.created` and `response.in_progress` at once and signs of life from then on, while candidates are
//! asked as before. What fails is told as `error` and `response.failed`: there is no status code any more to tell it with.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::{Delivery, Emitter, Fault, Ids, Start, Stem};
use amalgam_protocol::{EventBatch, Json};
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::warn;

use crate::{
    announcement::Announced,
    events::TurnEvents,
    run::{Engine, Run},
};

/// A streamed response that begins before its model. `F` is the turn that is being begun.
pub struct EarlyEvents<F> {
    stage: Stage<F>,
}

enum Stage<F> {
    Waiting(Box<Waiting<F>>),
    Running(Box<TurnEvents>),
    Over,
}

struct Waiting<F> {
    beginning: F,
    emitter: Emitter,
    /// The frames that were sent, which the store gets once the turn runs.
    sent: Vec<u8>,
    keepalive: Duration,
    alarm: Pin<Box<Sleep>>,
}

impl<F> EarlyEvents<F> {
    /// Begins the stream of a turn that was announced. Dropping it ends the turn.
    pub fn new(engine: &Engine, announced: Announced, beginning: F) -> Self {
        let Announced { identity, settings, .. } = announced;
        let mut emitter = Emitter::new(Start {
            ids: Stem::of(&identity.response_id).map_or(Ids::Unguessable, Ids::Within),
            response_id: identity.response_id,
            created_at: identity.created_at_ms / 1000,
            settings,
            delivery: Delivery::Stream,
            call_ids: false,
        });
        emitter.begin();
        let keepalive = engine.settings.keepalive;
        let alarm = Box::pin(sleep_until(Instant::now() + keepalive));
        Self { stage: Stage::Waiting(Box::new(Waiting { beginning, emitter, sent: Vec::new(), keepalive, alarm })) }
    }

    /// The items of the turn, once it has ended well.
    pub fn output(&self) -> Option<Vec<Json>> {
        match &self.stage {
            Stage::Running(frames) => frames.output(),
            Stage::Waiting(_) | Stage::Over => None,
        }
    }
}

impl<F> Waiting<F> {
    /// The frames that are due, if there are any.
    fn take(&mut self) -> Option<EventBatch> {
        if !self.emitter.has_frames() {
            return None;
        }
        let frames = self.emitter.take_frames();
        self.sent.extend_from_slice(&frames);
        self.alarm.as_mut().reset(Instant::now() + self.keepalive);
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
                Stage::Over => return Poll::Ready(None),
                Stage::Waiting(waiting) => waiting,
            };
            if let Some(frames) = waiting.take() {
                return Poll::Ready(Some(frames));
            }
            match Pin::new(&mut waiting.beginning).poll(context) {
                Poll::Ready(Ok(run)) => {
                    let (sent, sequence) = (std::mem::take(&mut waiting.sent), waiting.emitter.sequence());
                    this.stage = Stage::Running(Box::new(TurnEvents::after(run, &sent, sequence)));
                }
                Poll::Ready(Err(fault)) => {
                    let id = waiting.emitter.response_id();
                    warn!(response.id = id, kind = ?fault.kind, detail = fault.detail, "stream failed: {fault}");
                    waiting.emitter.fail(fault.response_error());
                    let last = waiting.take();
                    this.stage = Stage::Over;
                    return Poll::Ready(last);
                }
                Poll::Pending => {
                    if waiting.alarm.as_mut().poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    waiting.emitter.keepalive();
                }
            }
        }
    }
}
