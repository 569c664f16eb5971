//! Starts a turn: admission, the beginning in the store, and a model that accepts.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Delivery, Fault, FaultKind, Ids, Stem, StoreError, TurnOrigin, TurnQueue, TurnSpan, TurnStep,
    store::WriteOutcome,
};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{Provenance, ResponseSettings};
use tokio::{sync::watch, time::Instant};

use crate::{
    admission::Slot,
    allowed_tools::Allowed,
    announcement::{Announcement, StreamHead},
    answer_format::AnswerFormat,
    call_record::{CallOrigin, CallRecord, CallRecordSettings},
    engine::{Engine, Identity},
    loss_log::log_losses,
    model_call::{AcceptedCall, ModelCall},
    recorder::{self, Recorder, TurnStorage},
    rounds::Rounds,
    run::{Phase, Run, cancellation, past_deadline, wait_for_cancellation, write_ending},
    running_turns::ListedUntilDropped,
    turn_meter::{MeteredEnd, TurnMeter, status_of},
    turn_tools::TurnTools,
};

/// A turn that gets its slot sooner has not waited for it.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// The input of [`Engine::start`].
#[derive(Debug)]
pub struct TurnStart<'a> {
    /// The response's id and creation time.
    pub identity: &'a Identity,
    /// How the turn is stored; `None` if it is not.
    pub storage: Option<TurnStorage>,
    /// The origin of the turn.
    pub origin: TurnOrigin,
    /// When its prompt began to be put together.
    pub began: Instant,
    /// For a turn from the background queue, the number of events already sent; `None` for a new turn.
    pub resumes_after: Option<u64>,
    /// The parameters of the request that the response object repeats.
    pub settings: ResponseSettings,
    /// The first model call.
    pub call: ModelCall<'a>,
    /// The tools that the server runs, if there are any.
    pub tools: Option<Box<TurnTools>>,
    /// Whether items of server-run calls include the model's call id.
    pub call_ids: bool,
    /// Call ids of the history, which calls of the answer must not reuse.
    pub used_calls: HashSet<String>,
    /// The format that the final text must have, if the request names one.
    pub format: Option<AnswerFormat>,
    /// Whether the first events of a stream say how many tokens the prompt has, by our own count.
    pub counts_prompt: bool,
}

/// A turn that has its slot, and that no model has accepted yet.
struct StartingTurn {
    slot: Slot,
    started: Instant,
    deadline: Instant,
    call_record: CallRecord,
    /// Reports the end of a turn that is not stored.
    meter: Option<TurnMeter>,
    listed: ListedUntilDropped,
    /// Writes the turn to the store, if it is stored.
    recorder: Option<Box<Recorder>>,
}

impl TurnStart<'_> {
    /// Whether calls that were approved run before the first model call.
    fn has_approved_calls(&self) -> bool {
        self.tools.as_ref().is_some_and(|turn_tools| !turn_tools.approved.is_empty())
    }
}

impl Engine {
    /// Starts a turn. Returns when a model has accepted it and, for a stored stream, its beginning is in the store; or
    /// with the fault that ended it. Dropping the future ends the upstream call.
    pub async fn start(&self, mut start: Box<TurnStart<'_>>) -> Result<Box<Run>, Fault> {
        match start.storage.is_some() {
            true => self.running.check_store()?,
            false => self.running.unstored.check_room()?,
        }
        let mut starting = self.prepare(&mut start).await?;
        match self.accept(&start, &mut starting).await {
            Ok(accepted) => {
                let sent = accepted.as_ref().and_then(|accepted| accepted.sent_request.as_deref());
                let prompt_tokens = match sent.filter(|_| start.counts_prompt) {
                    // Without a count the stream begins without it.
                    Some(sent) => sent.prompt_tokens().await.ok(),
                    None => None,
                };
                self.run(start, starting, accepted, prompt_tokens)
            }
            Err(error) => {
                let resumed = start.resumes_after.is_some();
                Err(self.end_unstarted(starting, error, resumed).await)
            }
        }
    }

    /// Waits for a slot, and prepares the records of the turn.
    async fn prepare(&self, start: &mut TurnStart<'_>) -> Result<StartingTurn, Fault> {
        let arrived = Instant::now();
        let admitted = self.enter(start).await;
        let started = Instant::now();
        let (limited, slot) = match (admitted, start.call.scope.request()) {
            (Err(fault), Some(request)) if started - arrived >= SHORTEST_WAIT => {
                request.add_span(TurnSpan { error: Some(fault.kind.name()), ..admission_wait(arrived, started) });
                return Err(fault);
            }
            (admitted, _) => admitted?,
        };
        if start.resumes_after.is_some() {
            start.origin.trace = start.origin.trace.map(|parent| self.running.observer.continue_trace(parent));
        }
        let spans = self.spans_before(start, arrived, started);
        let recorded = CallRecordSettings {
            transcripts: start.storage.is_some() && self.settings.transcripts.is_some(),
            raw_answer: start.storage.as_ref().is_some_and(|storage| storage.raw_answer),
        };
        let call_record = CallRecord::new(recorded, CallOrigin::of(&start.origin), spans);
        if let Some((turn, hold)) = limited {
            call_record.set_limited(turn, hold);
        }
        let meter = TurnMeter::new(
            &self.running,
            call_record.clone(),
            start.call.scope,
            start.identity,
            std::mem::take(&mut start.origin),
            start.storage.is_some(),
        );
        let listed = meter.list();
        let response_id = start.identity.response_id.clone();
        let (recorder, meter) = match start.storage.take() {
            // The recorder reports stored turns.
            Some(storage) => {
                let running = Arc::clone(&self.running);
                (Some(Box::new(Recorder::new(running, response_id, storage, call_record.clone(), meter))), None)
            }
            None => (None, Some(meter)),
        };
        let deadline = started + self.settings.turn_deadline;
        Ok(StartingTurn { slot, started, deadline, call_record, meter, listed, recorder })
    }

    /// Writes the beginning, if it is written before the end, and calls the model; none if approved calls run first.
    async fn accept(
        &self,
        start: &TurnStart<'_>,
        starting: &mut StartingTurn,
    ) -> Result<Option<AcceptedCall>, StartError> {
        let StartingTurn { recorder, slot, deadline, call_record, .. } = starting;
        // A whole answer is written once, at its end: no caller knows its id before that.
        let begin = match recorder {
            Some(recorder) if recorder.streamed || start.resumes_after.is_some() => Some(recorder.begin()),
            _ => None,
        };
        let cancelled = recorder.as_ref().map(|recorder| recorder.cancelled.clone());
        let announce = PendingAnnouncement::of(start);
        if begin.is_none() {
            announce.send();
        }
        // Pinned in place, because `timeout_at` would otherwise move this large future.
        let accepting = pin!(async {
            match (start.has_approved_calls(), begin) {
                (false, begin) => self.begin_and_call(start, begin, announce, call_record).await.map(Some),
                (true, Some(begin)) => wait_until_begun(begin).await.map(|()| None),
                (true, None) => Ok(None),
            }
        });
        tokio::select! {
            biased;
            accepted = tokio::time::timeout_at(*deadline, accepting) => {
                accepted.unwrap_or_else(|_| Err(past_deadline().into()))
            }
            fault = slot.shutdown() => Err(fault.into()),
            () = cancellation_of(cancelled) => Err(cancellation().into()),
        }
    }

    /// Ends a turn that no model has accepted, and returns its fault.
    async fn end_unstarted(&self, starting: StartingTurn, error: StartError, resumed: bool) -> Fault {
        let StartingTurn { mut call_record, meter, recorder, .. } = starting;
        let StartError { fault, owns_turn } = error;
        if let Some(meter) = meter {
            call_record.end(Some(&fault), None, self.clock.now_ms());
            let error = fault.response_error();
            let ended_at_ms = self.clock.now_ms();
            let end = MeteredEnd { status: status_of(fault.kind), error: Some(&error), losses: 0, ended_at_ms };
            meter.report_unstored(end, None);
        }
        if let Some(mut recorder) = recorder {
            // Another process runs the turn instead, so its end is not written here.
            let handed_over = resumed && fault.kind == FaultKind::ShuttingDown;
            if handed_over || !owns_turn {
                recorder.release();
            } else {
                call_record.end(Some(&fault), None, self.clock.now_ms());
                recorder.exclude_claim();
                let ending = match fault.kind {
                    FaultKind::Cancelled => recorder::cancelled(),
                    _ => recorder::failed(fault.response_error(), Provenance::default()),
                };
                write_ending(&mut recorder, ending).await;
            }
        }
        fault
    }

    /// The run of a turn that a model has accepted, or whose approved calls run first.
    fn run(
        &self,
        start: Box<TurnStart<'_>>,
        starting: StartingTurn,
        accepted: Option<AcceptedCall>,
        prompt_tokens: Option<u64>,
    ) -> Result<Box<Run>, Fault> {
        let StartingTurn { slot, started, deadline, mut call_record, meter, listed, recorder } = starting;
        let Identity { response_id, created_at_ms } = start.identity.clone();
        let has_approved_calls = start.has_approved_calls();
        let provenance = accepted.as_ref().map(AcceptedCall::provenance).unwrap_or_default();
        let AcceptedCall { stream, first, losses, upstream, model, upstream_state, sent_request } = match accepted {
            Some(accepted) => {
                call_record.set_losses(&accepted.losses);
                log_losses(&response_id, &accepted.upstream, &accepted.model, &accepted.losses);
                accepted
            }
            None => AcceptedCall::none(),
        };
        let mut emitter = Emitter::new(ResponseStart {
            ids: Stem::of(&response_id).map_or(Ids::Unguessable, Ids::Within),
            response_id,
            created_at: created_at_ms / 1000,
            settings: start.settings,
            delivery: start.call.delivery,
            call_ids: start.call_ids,
        });
        emitter.answered_by(provenance);
        emitter.avoid_calls(start.used_calls);
        if let Some(tokens) = prompt_tokens {
            emitter.expect_prompt(tokens);
        }
        // Boxed, because it is large and passed on often.
        let mut run = Box::new(Run {
            emitter,
            delivery: start.call.delivery,
            phase: Phase::Streaming(stream),
            first,
            rounds: start.tools.map(|turn_tools| Box::new(Rounds::new(self.clone(), turn_tools))),
            output_tokens: start.call.request.max_output_tokens,
            started,
            deadline,
            keepalive: self.settings.keepalive,
            clock: Arc::clone(&self.clock),
            allowed: Allowed::by(start.call.request.tool_choice.as_ref()),
            format: start.format,
            sequential_calls: (start.call.request.parallel_tool_calls == Some(false)).then_some(0),
            slot,
            losses,
            strict: start.call.strict,
            upstream,
            model,
            recorder,
            meter,
            _listed: Some(listed),
            call_record,
            resumed_after: start.resumes_after,
            has_output: false,
            upstream_state,
            sent_request,
        });
        if has_approved_calls {
            run.start_approved_calls()?;
        }
        Ok(run)
    }

    /// Calls the model. If the beginning is written before the end, it is written before or during the call.
    async fn begin_and_call(
        &self,
        start: &TurnStart<'_>,
        begin: Option<Beginning>,
        announce: PendingAnnouncement<'_>,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, StartError> {
        match begin {
            None => Ok(self.call_model(&start.call, call_record).await?),
            // Boxed, so that the futures of whole answers stay small.
            Some(begin) if start.resumes_after.is_some() => {
                Box::pin(self.begin_then_call(start, begin, call_record)).await
            }
            Some(begin) => Box::pin(self.begin_while_calling(start, begin, announce, call_record)).await,
        }
    }

    /// Marks a queued turn as running before the model is called. Otherwise a crash of this process would leave it in
    /// the queue, and another process would call the model a second time.
    async fn begin_then_call(
        &self,
        start: &TurnStart<'_>,
        begin: Beginning,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, StartError> {
        wait_until_begun(begin).await?;
        Ok(self.call_model(&start.call, call_record).await?)
    }

    /// Writes the beginning while the model is called. If either fails, the other is dropped.
    async fn begin_while_calling(
        &self,
        start: &TurnStart<'_>,
        begin: Beginning,
        announce: PendingAnnouncement<'_>,
        call_record: &mut CallRecord,
    ) -> Result<AcceptedCall, StartError> {
        let beginning = async {
            wait_until_begun(begin).await?;
            announce.send();
            Ok(())
        };
        let accepting = async { Ok::<_, StartError>(self.call_model(&start.call, call_record).await?) };
        let ((), accepted) = tokio::try_join!(beginning, accepting)?;
        Ok(accepted)
    }

    /// Reports how long a background turn has waited until it was taken from the queue.
    fn report_background_wait(&self, created_at_ms: u64, taken: Instant) -> Option<TurnSpan> {
        let waited = Duration::from_millis(self.clock.now_ms().saturating_sub(created_at_ms));
        self.running.observer.waited(TurnQueue::Background, waited);
        let created = Instant::now().checked_sub(waited)?.min(taken);
        Some(TurnSpan::ended(TurnStep::Queue(TurnQueue::Background), created.into_std(), taken.into_std()))
    }

    /// The spans of a turn before it starts.
    fn spans_before(&self, start: &TurnStart<'_>, arrived: Instant, started: Instant) -> Vec<TurnSpan> {
        let mut spans = start.call.scope.request().map(|request| request.take_spans()).unwrap_or_default();
        if start.resumes_after.is_some() {
            spans.extend(self.report_background_wait(start.identity.created_at_ms, start.began));
        }
        spans.push(TurnSpan::ended(TurnStep::Prompt, start.began.into_std(), arrived.into_std()));
        if started - arrived >= SHORTEST_WAIT {
            self.running.observer.waited(TurnQueue::Admission, started - arrived);
            spans.push(admission_wait(arrived, started));
        }
        spans
    }
}

/// The span of a wait for a slot.
fn admission_wait(arrived: Instant, started: Instant) -> TurnSpan {
    TurnSpan::ended(TurnStep::Queue(TurnQueue::Admission), arrived.into_std(), started.into_std())
}

/// Sends the head of a stream to the wire once the beginning is in the store.
struct PendingAnnouncement<'a> {
    start: Option<(&'a Announcement, &'a TurnStart<'a>)>,
}

impl<'a> PendingAnnouncement<'a> {
    fn of(start: &'a TurnStart<'a>) -> Self {
        let streams = start.call.delivery == Delivery::Stream && start.resumes_after.is_none();
        Self { start: start.call.announcement.filter(|_| streams).map(|announcement| (announcement, start)) }
    }

    /// Called when the beginning is in the store, or at once if it is not written before the end.
    fn send(&self) {
        if let Some((announcement, start)) = self.start {
            let (identity, settings) = (start.identity.clone(), start.settings.clone());
            announcement.stored(StreamHead { identity, settings, stored: start.call.stored });
        }
    }
}

/// The write of a turn's beginning.
type Beginning = BoxFuture<'static, Result<WriteOutcome, StoreError>>;

/// Waits until a turn's beginning is written.
async fn wait_until_begun(begin: Beginning) -> Result<(), StartError> {
    match begin.await {
        Ok(WriteOutcome::Kept) => Ok(()),
        Ok(WriteOutcome::Lost) => Err(StartError { fault: cancellation(), owns_turn: false }),
        // If the write succeeded after all, housekeeping ends the turn, since it does not run.
        Err(error) => Err(StartError { fault: error.into(), owns_turn: false }),
    }
}

/// Why a turn does not start.
struct StartError {
    fault: Fault,
    /// Whether this process has to write the turn's end.
    owns_turn: bool,
}

impl From<Fault> for StartError {
    fn from(fault: Fault) -> Self {
        Self { fault, owns_turn: true }
    }
}

/// Resolves when cancellation of a stored turn is requested.
async fn cancellation_of(cancelled: Option<watch::Receiver<bool>>) {
    if let Some(mut cancelled) = cancelled {
        wait_for_cancellation(&mut cancelled).await;
    } else {
        std::future::pending().await
    }
}
