//! One turn from request to answer: admission, the beginning in the store, a model that accepts, then its events.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Clock, Delivery, Fault, FaultKind, Fetch, Ids, Loss, ModelEvent, ModelStream, Stem, Store, StoreError,
    TurnObserver, TurnOrigin, TurnQueue, TurnSpan, TurnStep, TurnSummary,
    store::{Ending, ProcessId, WriteOutcome},
};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{Provenance, ResponseSettings, Status};
use tokio::{sync::watch, time::Instant};
use tracing::warn;

use crate::{
    admission::{Admission, Slot},
    allowed_tools::Allowed,
    announcement::{Announcement, StreamHead},
    answer_format::AnswerFormat,
    call_record::{CallRecord, CallRecordSettings, RequestBodies},
    loss_log::log_losses,
    model_call::{self, AcceptedCall, ModelCall},
    partial_usage::SentRequest,
    recorder::{self, Recorder, TurnStorage},
    rounds::{PendingModelCall, Rounds, ToolPhase},
    running_turns::{ListedUntilDropped, RunningTurns},
    turn_meter::{MeteredEnd, TurnMeter, status_of},
    turn_tools::{ToolLimits, TurnTools},
    upstream_state::UpstreamState,
};

/// A turn that gets its slot sooner has not waited for it.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// Limits and intervals of turns.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// The longest duration of a turn, from its first byte to its last.
    pub turn_deadline: Duration,
    /// The silence after which a stream sends a keepalive event.
    pub keepalive: Duration,
    /// The longest time that the caller of a stream waits for the response head while no model has accepted.
    pub head_after: Duration,
    /// How long the transcripts of stored turns are stored; `None` if they are not.
    pub transcripts: Option<Duration>,
    /// The largest total size of the uploaded files of one prompt, and of the images that are fetched for it.
    pub upload_bytes: usize,
    /// Limits of server-run tools.
    pub tools: ToolLimits,
    /// The output tokens that limits reserve for a call whose request does not bound them.
    pub reserve_output_tokens: u64,
}

/// Runs turns.
#[derive(Clone)]
pub struct Engine {
    pub(crate) settings: EngineSettings,
    pub(crate) admission: Admission,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) running: Arc<RunningTurns>,
}

/// The id and the creation time of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `resp_…`
    pub response_id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

/// The input of [`Engine::start`].
#[derive(Debug)]
pub struct TurnStart<'a> {
    /// The response's id and creation time.
    pub identity: &'a Identity,
    /// How the turn is stored; `None` if it is not.
    pub storage: Option<TurnStorage>,
    /// Where the turn comes from.
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
}

/// A turn that a model has accepted.
pub struct Run {
    pub(crate) emitter: Emitter,
    delivery: Delivery,
    pub(crate) phase: Phase,
    /// Events that were read before the run was built.
    pub(crate) first: Vec<ModelEvent>,
    /// The rounds of a turn with server-run tools.
    pub(crate) rounds: Option<Box<Rounds>>,
    /// The caller's limit of output tokens.
    pub(crate) output_tokens: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    pub(crate) keepalive: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) allowed: Allowed,
    pub(crate) format: Option<AnswerFormat>,
    /// Counts the calls of the current answer, if the caller set `parallel_tool_calls: false`.
    pub(crate) sequential_calls: Option<u32>,
    /// Released when the turn ends.
    pub(crate) slot: Slot,
    pub(crate) losses: Vec<Loss>,
    /// Whether a loss fails the turn.
    pub(crate) strict: bool,
    pub(crate) upstream: String,
    /// The upstream's name of the model; empty until a model has accepted.
    pub(crate) model: String,
    /// Writes the turn to the store, if it is stored.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// Reports the end of a turn that is not stored, once.
    pub(crate) meter: Option<TurnMeter>,
    /// Lists the turn as running.
    _listed: Option<ListedUntilDropped>,
    /// The current model call.
    pub(crate) call_record: CallRecord,
    /// For a turn from the background queue, the number of events sent before it ran.
    pub(crate) resumed_after: Option<u64>,
    /// Whether the turn has produced output.
    pub(crate) has_output: bool,
    /// What the upstream stores of the current call.
    pub(crate) upstream_state: Option<Box<UpstreamState>>,
    /// The request of the current call, until the upstream reports its usage.
    pub(crate) sent_request: Option<Box<SentRequest>>,
}

/// What a turn waits for.
pub(crate) enum Phase {
    /// Events of the model.
    Streaming(ModelStream),
    /// Server-run tool calls.
    RunningTools(Box<ToolPhase>),
    /// A model that accepts the next round.
    CallingModel(PendingModelCall),
}

impl Engine {
    /// An engine with this process's clock, HTTP client for callers' addresses and store.
    pub fn new(
        settings: EngineSettings,
        admission: Admission,
        clock: Arc<dyn Clock>,
        fetch: Arc<dyn Fetch>,
        store: Arc<dyn Store>,
        process: ProcessId,
        observer: Arc<dyn TurnObserver>,
    ) -> Self {
        let bodies = RequestBodies::new(settings.transcripts.unwrap_or_default());
        let running = Arc::new(RunningTurns::new(store, process, observer, Arc::clone(&clock), bodies));
        Self { settings, admission, clock, fetch, running }
    }

    /// The same engine, with the same running turns, and other settings for new turns.
    #[must_use]
    pub fn with_settings(&self, settings: EngineSettings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// Is told about turns.
    pub fn observer(&self) -> &Arc<dyn TurnObserver> {
        &self.running.observer
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

    /// The number of turns that run now.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// The number of turns that wait until they may run.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// The turns that run in this process, stored or not.
    pub fn running_turns(&self) -> Vec<TurnSummary> {
        self.running.summaries()
    }

    /// The id of this process in the store.
    pub fn process(&self) -> ProcessId {
        self.running.process
    }

    /// The longest duration of a turn.
    pub fn turn_deadline(&self) -> Duration {
        self.settings.turn_deadline
    }

    /// The longest time that the caller of a stream waits for the response head while no model has accepted.
    pub fn head_after(&self) -> Duration {
        self.settings.head_after
    }

    /// Cancels a turn, if it runs in this process.
    pub fn cancel(&self, response_id: &str) {
        self.running.cancel(response_id);
    }

    /// Cancels a turn, if it runs in this process, and waits at most `patience` until its end is in the store.
    pub async fn cancel_and_wait(&self, response_id: &str, patience: Duration) {
        self.running.cancel(response_id);
        // After the timeout the caller reads what is stored so far.
        let _ = tokio::time::timeout(patience, self.running.wait_until_ended(response_id)).await;
    }

    /// A new response id, created now.
    pub fn identity(&self) -> Identity {
        let created_at_ms = self.clock.now_ms();
        Identity { response_id: Ids::Unguessable.response(created_at_ms), created_at_ms }
    }

    /// Starts a turn. Returns when a model has accepted it and, for a stored stream, its beginning is in the store; or
    /// with the fault that ended it. Dropping the future ends the upstream call.
    pub async fn start(&self, mut start: Box<TurnStart<'_>>) -> Result<Box<Run>, Fault> {
        match start.storage.is_some() {
            true => self.running.check_store()?,
            false => self.running.unstored.check_room()?,
        }
        let arrived = Instant::now();
        let admitted = self.enter(&start).await;
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
        let spans = self.spans_before(&start, arrived, started);
        let deadline = started + self.settings.turn_deadline;
        let shutdown = slot.shutdown();
        let Identity { response_id, created_at_ms } = start.identity.clone();
        let recorded = CallRecordSettings {
            transcripts: start.storage.is_some() && self.settings.transcripts.is_some(),
            raw_answer: start.storage.as_ref().is_some_and(|storage| storage.raw_answer),
        };
        let mut call_record = CallRecord::new(recorded, start.origin.trace, spans);
        if let Some((turn, hold)) = limited {
            call_record.set_limited(turn, hold);
        }
        let mut meter = Some(TurnMeter::new(
            &self.running,
            call_record.clone(),
            start.call.scope,
            start.identity,
            std::mem::take(&mut start.origin),
            start.storage.is_some(),
        ));
        let listed = meter.as_ref().map(TurnMeter::list);
        let mut recorder = start.storage.take().zip(meter.clone()).map(|(storage, meter)| {
            Box::new(Recorder::new(Arc::clone(&self.running), response_id.clone(), storage, call_record.clone(), meter))
        });
        // The recorder reports stored turns.
        meter = meter.filter(|_| recorder.is_none());
        // A whole answer is written once, at its end: no caller knows its id before that.
        let begin = match &mut recorder {
            Some(recorder) if recorder.streamed || start.resumes_after.is_some() => Some(recorder.begin()),
            _ => None,
        };
        let cancelled = recorder.as_ref().map(|recorder| recorder.cancelled.clone());
        let announce = PendingAnnouncement::of(&start);
        if begin.is_none() {
            announce.send();
        }
        // Approved calls run before the first model call.
        let has_approved_calls = start.tools.as_ref().is_some_and(|turn_tools| !turn_tools.approved.is_empty());
        let accepted = {
            // Pinned in place, because `timeout_at` would otherwise move this large future.
            let accepting = pin!(async {
                match (has_approved_calls, begin) {
                    (false, begin) => self.begin_and_call(&start, begin, announce, &mut call_record).await.map(Some),
                    (true, Some(begin)) => wait_until_begun(begin).await.map(|()| None),
                    (true, None) => Ok(None),
                }
            });
            tokio::select! {
                biased;
                accepted = tokio::time::timeout_at(deadline, accepting) => {
                    accepted.unwrap_or_else(|_| Err(past_deadline().into()))
                }
                fault = shutdown => Err(fault.into()),
                () = cancellation_of(cancelled) => Err(cancellation().into()),
            }
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(StartError { fault, owns_turn }) => {
                if let Some(meter) = meter {
                    call_record.end(Some(&fault), None, self.clock.now_ms());
                    let error = fault.response_error();
                    let end = MeteredEnd {
                        status: status_of(fault.kind),
                        error: Some(&error),
                        losses: 0,
                        ended_at_ms: self.clock.now_ms(),
                    };
                    meter.report_unstored(end, None);
                }
                if let Some(mut recorder) = recorder {
                    // Another process runs the turn instead, so its end is not written here.
                    let handed_over = start.resumes_after.is_some() && fault.kind == FaultKind::ShuttingDown;
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
                return Err(fault);
            }
        };
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
        let keepalive = self.settings.keepalive;
        let clock = Arc::clone(&self.clock);
        let allowed = Allowed::by(start.call.request.tool_choice.as_ref());
        let sequential_calls = (start.call.request.parallel_tool_calls == Some(false)).then_some(0);
        let resumed_after = start.resumes_after;
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
            keepalive,
            clock,
            allowed,
            format: start.format,
            sequential_calls,
            slot,
            losses,
            strict: start.call.strict,
            upstream,
            model,
            recorder,
            meter,
            _listed: listed,
            call_record,
            resumed_after,
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

/// Resolves when cancellation is requested; never, if the sender is dropped.
pub(crate) async fn wait_for_cancellation(cancelled: &mut watch::Receiver<bool>) {
    let requested = cancelled.wait_for(|cancelled| *cancelled).await.is_ok();
    if !requested {
        std::future::pending().await
    }
}

/// Writes the end of a failed or cancelled turn. The caller receives the fault even if the write fails.
pub(crate) async fn write_ending(recorder: &mut Recorder, ending: Ending) {
    if let Err(error) = recorder.end(ending).await {
        warn!("the end of a failed turn could not be written: {error}");
    }
}

/// The fault of a turn that was cancelled, or whose process was declared dead while it ran.
pub(crate) fn cancellation() -> Fault {
    Fault::new(FaultKind::Cancelled, "The response was cancelled.")
}

pub(crate) fn past_deadline() -> Fault {
    Fault::new(FaultKind::Deadline, "The request took longer than the server allows.")
}

impl Run {
    /// The parts of the request that the upstream does not receive.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The configured name of the upstream that answers.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// `upstream/model` of the model that answers, once one has accepted.
    pub fn answered_by(&self) -> Option<&str> {
        self.emitter.provenance().model.as_deref()
    }

    /// Updates model and losses in the response object.
    pub(crate) fn update_provenance(&mut self) {
        self.emitter.answered_by(model_call::provenance(&self.upstream, &self.model, &self.losses));
    }

    /// Adds a loss that is found after the model call. In strict mode it fails the turn.
    pub(crate) fn add_loss(&mut self, loss: Loss) -> Result<(), Fault> {
        warn!(response.id = self.emitter.response_id(), upstream = self.upstream, "{loss}");
        if self.strict {
            let message = format!("Strict mode: the upstream did not do what it was asked for: {loss}.");
            return Err(Fault::new(FaultKind::UpstreamBroken, message));
        }
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
            self.call_record.set_losses(&self.losses);
            self.update_provenance();
        }
        Ok(())
    }

    /// Whether the caller receives a stream or a whole answer.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Becomes `true` when cancellation is requested; never for a turn that is not stored.
    pub(crate) fn cancelled(&self) -> watch::Receiver<bool> {
        match &self.recorder {
            Some(recorder) => recorder.cancelled.clone(),
            None => watch::channel(false).1,
        }
    }

    /// Stops recording: another process runs the turn.
    pub(crate) fn release(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.release();
        }
    }

    /// The response's id.
    pub fn response_id(&self) -> &str {
        self.emitter.response_id()
    }
}

impl Drop for Run {
    /// A disconnected caller or a cancellation ends the turn; its output so far is stored.
    fn drop(&mut self) {
        let uncounted = self.uncounted();
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| !recorder.is_finished()) {
            self.emitter.interrupt();
            recorder.record_frames(self.emitter.frames(), self.emitter.sequence());
            recorder.end_detached(recorder::interrupted(&self.emitter), uncounted);
        } else {
            self.call_record.end(Some(&cancellation()), None, self.clock.now_ms());
            self.report_unstored(Status::Cancelled, None, uncounted);
        }
    }
}
