//! Drives a turn to its end, through all of its phases.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use amalgam_core::{
    Fault, FaultKind, Loss, ModelError, ModelEvent, answer_text, array_of,
    store::{Ending, TurnWrite},
};
use amalgam_protocol::{ErrorObject, Status};
use futures_util::FutureExt;
use tracing::debug;

use crate::{
    events::TurnEvents,
    partial_usage::UncountedCall,
    recorder::{self, EndResult, Recorder},
    run::{Phase, Run, cancellation, past_deadline, wait_for_cancellation, write_ending},
    turn_meter::{MeteredEnd, status_of},
};

/// A turn that has ended with an answer.
#[derive(Debug)]
pub struct FinishedTurn {
    /// The response object.
    pub response: Vec<u8>,
    /// The write that ended the turn, if it is stored.
    pub written: Option<Arc<TurnWrite>>,
}

impl Run {
    /// Waits for the whole answer. Dropping the future ends the upstream call.
    pub async fn finish(mut self: Box<Self>) -> Result<FinishedTurn, Fault> {
        let deadline = self.deadline;
        // An upstream's whole answer is often complete already; then no timers are needed.
        let driven = match self.drive().now_or_never() {
            Some(driven) => driven,
            None => {
                let shutdown = self.slot.shutdown();
                tokio::select! {
                    biased;
                    driven = tokio::time::timeout_at(deadline, self.drive()) => {
                        driven.unwrap_or_else(|_| Err(past_deadline()))
                    }
                    fault = shutdown => Err(fault),
                }
            }
        };
        self.end(driven).await
    }

    /// Runs a background turn to its end. Returns whether another process has to run the turn.
    pub(crate) async fn finish_in_background(mut self: Box<Self>) -> bool {
        let deadline = self.deadline;
        let shutdown = self.slot.shutdown();
        let mut cancelled = self.cancelled();
        let driven = tokio::select! {
            biased;
            () = wait_for_cancellation(&mut cancelled) => return false,
            driven = tokio::time::timeout_at(deadline, self.drive()) => driven.unwrap_or_else(|_| Err(past_deadline())),
            fault = shutdown => match self.has_output && self.rounds.is_some() {
                // Tools that have run must not run again in another process.
                true => Err(fault),
                false => {
                    self.release();
                    return true;
                }
            }
        };
        if let Err(fault) = self.end(driven).await {
            debug!("a background turn failed: {fault}");
        }
        false
    }

    async fn end(mut self: Box<Self>, driven: Result<(), Fault>) -> Result<FinishedTurn, Fault> {
        let now_ms = self.clock.now_ms();
        if let Err(fault) = driven.and_then(|()| self.check_answer()) {
            self.end_call(Some(&fault));
            let error = fault.response_error();
            self.report_unstored(status_of(fault.kind), Some(&error), None);
            let failed = recorder::failed_by(&fault, &self.emitter);
            if let Some(recorder) = &mut self.recorder {
                write_ending(recorder, failed).await;
            }
            return Err(fault);
        }
        self.end_call(None);
        let ending = self.recorder.is_some().then(|| self.ending(now_ms));
        let mut written = None;
        if let (Some(recorder), Some(ending)) = (&mut self.recorder, ending) {
            match recorder.end(ending).await? {
                EndResult::Stored(write) => written = Some(write),
                EndResult::Superseded(_) => return Err(cancellation()),
            }
        }
        self.emitter.conclude(now_ms / 1000);
        self.report_unstored(self.emitter.status(), None, None);
        Ok(FinishedTurn { response: self.emitter.response(), written })
    }

    /// A turn of a session must have an answer. RNCC-33
    pub(crate) fn check_answer(&mut self) -> Result<(), Fault> {
        self.check_format()?;
        let in_session = self.recorder.as_deref().is_some_and(Recorder::has_session);
        // A limit may end an answer before its first text; that is not a failure.
        let cut = matches!(self.emitter.incomplete_reason(), Some("max_output_tokens" | "max_turn_tokens"));
        match in_session && !cut && answer_text(&array_of(self.emitter.output())).is_empty() {
            true => Err(Fault::new(FaultKind::UpstreamBroken, "The model gave no answer.")),
            false => Ok(()),
        }
    }

    /// Records the end of the current model call.
    pub(crate) fn end_call(&mut self, fault: Option<&Fault>) {
        self.call_record.end(fault, self.emitter.usage_of_call(), self.clock.now_ms());
    }

    async fn drive(&mut self) -> Result<(), Fault> {
        while !self.emitter.is_finished() {
            poll_fn(|context| self.poll_progress(context)).await?;
        }
        Ok(())
    }

    /// Advances the turn in its current phase.
    pub(crate) fn poll_progress(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.show_listings() {
            return Poll::Ready(Ok(()));
        }
        match &mut self.phase {
            Phase::Streaming(_) if !self.first.is_empty() => {
                let first = std::mem::take(&mut self.first);
                Poll::Ready(self.on_model_events(first))
            }
            Phase::Streaming(stream) => Poll::Ready(match std::task::ready!(stream.as_mut().poll_next(context)) {
                Some(Ok(batch)) => self.on_model_events(batch),
                Some(Err(error)) => Err(error.into_fault()),
                None => Err(ModelError::CutShort.into_fault()),
            }),
            Phase::RunningTools(_) => self.poll_tools(context),
            Phase::CallingModel(_) => self.poll_model_call(context),
        }
    }

    pub(crate) fn on_model_events(&mut self, batch: Vec<ModelEvent>) -> Result<(), Fault> {
        self.call_record.on_output(&*self.clock);
        self.emitter.expect(batch.len());
        batch.into_iter().try_for_each(|event| {
            match &event {
                ModelEvent::Begun { id, model } => self.set_upstream_ids(id.as_deref(), model.as_deref()),
                ModelEvent::CallStart { .. } => {
                    self.has_output = true;
                    self.count_call()?;
                }
                ModelEvent::Loss(loss) => return self.add_loss(loss.clone()),
                ModelEvent::Usage(_) => (self.has_output, self.sent_request) = (true, None),
                _ => self.has_output = true,
            }
            self.allowed.check(&event)?;
            match self.rounds {
                None => self.emitter.on(event),
                Some(_) => self.on_round_event(event),
            }
        })
    }

    /// Only the upstream can enforce `parallel_tool_calls: false`. Dropping the extra calls would make the model's
    /// history, and an upstream's stored state, incomplete. So all calls are passed on, and a loss reports it.
    fn count_call(&mut self) -> Result<(), Fault> {
        let Some(calls) = &mut self.sequential_calls else { return Ok(()) };
        *calls += 1;
        match *calls {
            2 => {
                self.add_loss(Loss::new("parallel_tool_calls", "the upstream made several calls at once all the same"))
            }
            _ => Ok(()),
        }
    }

    /// Records the upstream's id of its answer and its name of the model.
    fn set_upstream_ids(&mut self, id: Option<&str>, model: Option<&str>) {
        if let Some(model) = model.filter(|model| !model.is_empty()) {
            self.call_record.set_model_name(model);
        }
        self.emitter.answered_as(id);
        if let Some(upstream_state) = &mut self.upstream_state {
            upstream_state.id = id.map(ToOwned::to_owned);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.set_provider_id(id);
        }
    }

    /// The end of the turn, with what the upstream stores of it.
    pub(crate) fn ending(&self, now_ms: u64) -> Ending {
        let mut ending = recorder::ending(&self.emitter, now_ms);
        // No upstream state for an incomplete answer, because the upstream may have more of it than was received; nor
        // if calls got new ids here, because the upstream does not have those.
        if let (Some(upstream_state), Status::Completed) = (&self.upstream_state, ending.state.status)
            && !self.emitter.has_reassigned_calls()
        {
            let in_session = self.recorder.as_deref().is_some_and(Recorder::has_session);
            ending.upstream = match in_session {
                true => upstream_state.memory_of_session(&answer_text(&ending.output)),
                false => {
                    let output = self.emitter.kept_output();
                    let from = self.rounds.as_ref().map_or(0, |rounds| rounds.start());
                    output.get(from..).and_then(|answer| upstream_state.memory(answer))
                }
            };
        }
        ending
    }

    /// The frames of the response as a stream.
    pub fn into_events(self: Box<Self>) -> TurnEvents {
        TurnEvents::new(self)
    }

    pub(crate) fn past_deadline(&self) -> Fault {
        past_deadline()
    }

    /// Whether neither a recorder nor the meter has reported the turn's end.
    pub(crate) fn is_unreported(&self) -> bool {
        self.meter.is_some() || self.recorder.as_ref().is_some_and(|recorder| !recorder.is_finished())
    }

    /// Reports the end of a turn that is not stored. The recorder reports stored ones, and later calls have no effect.
    pub(crate) fn report_unstored(
        &mut self,
        status: Status,
        error: Option<&ErrorObject>,
        uncounted: Option<UncountedCall>,
    ) {
        if let Some(meter) = self.meter.take() {
            let end = MeteredEnd { status, error, losses: self.losses.len(), ended_at_ms: self.clock.now_ms() };
            meter.report_unstored(end, uncounted);
        }
    }
}
