//! Drives a turn to its end, whatever it does on the way.

use std::{
    future::poll_fn,
    task::{Context, Poll},
};

use amalgam_core::{Fault, FaultKind, Loss, ModelError, ModelEvent, array_of, store::Ending};
use amalgam_protocol::Status;
use futures_util::FutureExt;
use tracing::debug;

use crate::{
    events::TurnEvents,
    recorder::{self, Ended, Recorder},
    run::{Now, Run, keep_ending, lost, past_deadline, stop},
    thread::answer_text,
};

impl Run {
    /// The whole response. Dropping the future ends the upstream call.
    pub async fn finish(mut self: Box<Self>) -> Result<Vec<u8>, Fault> {
        let deadline = self.deadline;
        // An answer that came whole is here already: it needs no timers.
        let driven = match self.drive().now_or_never() {
            Some(driven) => driven,
            None => {
                let over = self.place.over();
                tokio::select! {
                    biased;
                    driven = tokio::time::timeout_at(deadline, self.drive()) => {
                        driven.unwrap_or_else(|_| Err(past_deadline()))
                    }
                    fault = over => Err(fault),
                }
            }
        };
        self.end(driven).await
    }

    /// The same without anybody who waits for the answer. Whether another process has to run the turn.
    pub(crate) async fn finish_in_background(mut self: Box<Self>) -> bool {
        let deadline = self.deadline;
        let over = self.place.over();
        let mut stopped = self.stopped();
        let driven = tokio::select! {
            biased;
            () = stop(&mut stopped) => return false,
            driven = tokio::time::timeout_at(deadline, self.drive()) => driven.unwrap_or_else(|_| Err(past_deadline())),
            fault = over => match self.spoken && self.rounds.is_some() {
                // What its tools have done cannot be done again elsewhere.
                true => Err(fault),
                false => {
                    self.forget();
                    return true;
                }
            }
        };
        if let Err(fault) = self.end(driven).await {
            debug!("a background turn failed: {fault}");
        }
        false
    }

    async fn end(mut self: Box<Self>, driven: Result<(), Fault>) -> Result<Vec<u8>, Fault> {
        let now_ms = self.clock.now_ms();
        if let Err(fault) = driven.and_then(|()| self.check_answer()) {
            self.end_call(Some(&fault));
            let failed = recorder::failed(fault.response_error(), self.emitter.provenance().clone());
            if let Some(recorder) = &mut self.recorder {
                keep_ending(recorder, failed).await;
            }
            return Err(fault);
        }
        self.end_call(None);
        let ending = self.recorder.is_some().then(|| self.ending(now_ms));
        if let (Some(recorder), Some(ending)) = (&mut self.recorder, ending) {
            match recorder.end(ending).await? {
                Ended::Kept => {}
                Ended::Lost(_) => return Err(lost()),
            }
        }
        self.emitter.conclude(now_ms / 1000);
        self.log();
        Ok(self.emitter.response())
    }

    /// A turn of a session must have an answer. RNCC-33
    pub(crate) fn check_answer(&mut self) -> Result<(), Fault> {
        self.check_format()?;
        let speaks = self.recorder.as_deref().is_some_and(Recorder::speaks);
        // An answer that a limit has cut may have come to no word: that is its end, and no failure.
        let cut = matches!(self.emitter.incomplete_reason(), Some("max_output_tokens" | "max_turn_tokens"));
        match speaks && !cut && answer_text(&array_of(self.emitter.output())).is_empty() {
            true => Err(Fault::new(FaultKind::UpstreamBroken, "The model gave no answer.")),
            false => Ok(()),
        }
    }

    /// Takes down how the model's call went.
    pub(crate) fn end_call(&mut self, fault: Option<&Fault>) {
        if self.recorder.is_some() {
            self.calling.end(fault, self.emitter.usage_of_call(), self.clock.now_ms());
        }
    }

    async fn drive(&mut self) -> Result<(), Fault> {
        while !self.emitter.is_finished() {
            poll_fn(|context| self.poll_news(context)).await?;
        }
        Ok(())
    }

    /// Goes on with whatever the turn does now.
    pub(crate) fn poll_news(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.show_listings() {
            return Poll::Ready(Ok(()));
        }
        match &mut self.now {
            Now::Model(_) if !self.first.is_empty() => {
                let first = std::mem::take(&mut self.first);
                Poll::Ready(self.take(first))
            }
            Now::Model(stream) => Poll::Ready(match std::task::ready!(stream.as_mut().poll_next(context)) {
                Some(Ok(batch)) => self.take(batch),
                Some(Err(error)) => Err(error.into_fault()),
                None => Err(ModelError::CutShort.into_fault()),
            }),
            Now::Working(_) => self.poll_work(context),
            Now::Asking(_) => self.poll_asking(context),
        }
    }

    pub(crate) fn take(&mut self, batch: Vec<ModelEvent>) -> Result<(), Fault> {
        self.calling.said(&*self.clock);
        self.emitter.expect(batch.len());
        batch.into_iter().try_for_each(|event| {
            match &event {
                ModelEvent::Begun { id, model } => self.answered_as(id.as_deref(), model.as_deref()),
                ModelEvent::CallStart { .. } => {
                    self.spoken = true;
                    self.count_call()?;
                }
                ModelEvent::Loss(loss) => return self.lose(loss.clone()),
                ModelEvent::Usage(_) => (self.spoken, self.asked) = (true, None),
                _ => self.spoken = true,
            }
            self.allowed.check(&event)?;
            match self.rounds {
                None => self.emitter.on(event),
                Some(_) => self.take_in_round(event),
            }
        })
    }

    /// `parallel_tool_calls: false` is the upstream's to keep. A call that was left out here would be missing to the model, and
    /// to an upstream that keeps what it said; so all of them are handed on, and that is told.
    fn count_call(&mut self) -> Result<(), Fault> {
        let Some(calls) = &mut self.alone else { return Ok(()) };
        *calls += 1;
        match *calls {
            2 => self.lose(Loss::new("parallel_tool_calls", "the upstream made several calls at once all the same")),
            _ => Ok(()),
        }
    }

    /// The upstream has said what it calls its answer and its model.
    fn answered_as(&mut self, id: Option<&str>, model: Option<&str>) {
        if let Some(model) = model.filter(|model| !model.is_empty()) {
            self.calling.named(model);
        }
        self.emitter.answered_as(id);
        if let Some(remembering) = &mut self.remembering {
            remembering.id = id.map(ToOwned::to_owned);
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.answered_as(id);
        }
    }

    /// How the turn ended, with what the upstream keeps of it.
    pub(crate) fn ending(&self, now_ms: u64) -> Ending {
        let mut ending = recorder::ending(&self.emitter, now_ms);
        // Of an answer that was cut short the two sides may have different pieces, and a call that has a new id here is not
        // known by it there.
        if let (Some(remembering), Status::Completed) = (&self.remembering, ending.told.status)
            && !self.emitter.has_reassigned_calls()
        {
            let speaks = self.recorder.as_deref().is_some_and(Recorder::speaks);
            ending.upstream = match speaks {
                true => remembering.memory_of_thread(&answer_text(&ending.output)),
                false => {
                    let output = self.emitter.kept_output();
                    let from = self.rounds.as_ref().map_or(0, |rounds| rounds.from());
                    output.get(from..).and_then(|answer| remembering.memory(answer))
                }
            };
        }
        ending
    }

    /// The frames of the response as they come.
    pub fn into_events(self: Box<Self>) -> TurnEvents {
        TurnEvents::new(self)
    }

    pub(crate) fn past_deadline(&self) -> Fault {
        past_deadline()
    }

    pub(crate) fn log(&self) {
        let usage = self.emitter.usage().unwrap_or_default();
        debug!(
            response.id = self.emitter.response_id(),
            upstream = self.upstream,
            status = self.emitter.status().name(),
            input_tokens = usage.input_tokens,
            output_tokens = usage.output_tokens,
            duration_ms = self.started.elapsed().as_millis() as u64,
            "turn ended",
        );
    }
}
