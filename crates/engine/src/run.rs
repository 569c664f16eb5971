//! One turn from request to answer: a place, images that must be fetched, a model that accepts, and then its events.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Clock, Delivery, Emitter, Fault, FaultKind, Fetch, Ids, Loss, ModelEvent, ModelStream, Start, Stem,
    Store, StoreError,
    store::{Ending, ProcessId, Written},
};
use amalgam_protocol::{Provenance, ResponseSettings};
use tokio::{sync::watch, time::Instant};
use tracing::warn;

use crate::{
    admission::{Admission, Place},
    allowed_tools::Allowed,
    announcement::{Announced, Announcement},
    answer_format::AnswerFormat,
    call_record::{Bodies, CallRecord, Keeping},
    loss_log::log_losses,
    model_call::{self, Accepted, ModelCall},
    partial_usage::AskedModel,
    recorder::{self, Recorder, TurnStorage},
    rounds::{Asking, Rounds, Working},
    running_turns::RunningTurns,
    tasks::Tasks,
    turn_tools::{ToolLimits, TurnTools},
    upstream_state::UpstreamState,
};

/// How turns run.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// The most that a turn may take, from its first byte to its last.
    pub turn_deadline: Duration,
    /// Silence after which a stream gets a sign of life.
    pub keepalive: Duration,
    /// The longest that the caller of a stream waits for its head while no model has accepted.
    pub head_after: Duration,
    /// How long the model calls of turns that are kept are kept too; nothing where they are not.
    pub transcripts: Option<Duration>,
    /// Bytes of uploaded files that one prompt may have, and of images that are fetched for it.
    pub upload_bytes: usize,
    /// How tools run.
    pub tools: ToolLimits,
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

/// Who a turn's response is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// `resp_…`
    pub response_id: String,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
}

/// One turn to run.
#[derive(Debug)]
pub struct TurnStart<'a> {
    /// Who the response is.
    pub identity: &'a Identity,
    /// How the turn is kept; nothing when it is not.
    pub storage: Option<TurnStorage>,
    /// How many events were told of a turn that has waited in the queue; nothing for one that begins now.
    pub resumes_after: Option<u64>,
    /// What the response repeats of its request.
    pub settings: ResponseSettings,
    /// What the model is asked first.
    pub call: ModelCall<'a>,
    /// What the server runs itself, if there is anything.
    pub tools: Option<Box<TurnTools>>,
    /// Whether the items of such calls show the model's id for them.
    pub call_ids: bool,
    /// Ids that no call of the client's may have.
    pub used_calls: HashSet<String>,
    /// The format that the final text has to have, if there is one.
    pub format: Option<AnswerFormat>,
}

/// A turn that a model has accepted.
pub struct Run {
    pub(crate) emitter: Emitter,
    delivery: Delivery,
    pub(crate) now: Now,
    /// What the model has said already.
    pub(crate) first: Vec<ModelEvent>,
    /// The rounds of a turn with tools of the server's.
    pub(crate) rounds: Option<Box<Rounds>>,
    /// Tokens of output that the caller allows.
    pub(crate) output_tokens: Option<u64>,
    pub(crate) started: Instant,
    pub(crate) deadline: Instant,
    pub(crate) keepalive: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) allowed: Allowed,
    pub(crate) format: Option<AnswerFormat>,
    /// Calls of the answer that comes in, where the caller wants one at a time.
    pub(crate) alone: Option<u32>,
    /// Held until the turn is over.
    pub(crate) place: Place,
    pub(crate) losses: Vec<Loss>,
    /// Whether a loss is a fault.
    pub(crate) strict: bool,
    pub(crate) upstream: String,
    /// What the upstream calls the model; empty until one has accepted.
    pub(crate) model: String,
    /// Keeps the turn, if it is kept.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// The call that runs.
    pub(crate) calling: CallRecord,
    /// How many of its events were told before it ran, if it has waited.
    pub(crate) waited: Option<u64>,
    /// Whether the model has said anything.
    pub(crate) spoken: bool,
    /// What the upstream keeps of the call that runs.
    pub(crate) remembering: Option<Box<UpstreamState>>,
    /// What the model of that call was asked, until the upstream says what it cost.
    pub(crate) asked: Option<Box<AskedModel>>,
}

/// What a turn does now.
pub(crate) enum Now {
    /// The model speaks.
    Model(ModelStream),
    /// Calls are dealt with.
    Working(Box<Working>),
    /// The model is asked again.
    Asking(Asking),
}

impl Engine {
    /// An engine over this process's clock, its one way out and its store.
    pub fn new(
        settings: EngineSettings,
        admission: Admission,
        clock: Arc<dyn Clock>,
        fetch: Arc<dyn Fetch>,
        store: Arc<dyn Store>,
        process: ProcessId,
    ) -> Self {
        let bodies = Bodies::new(settings.transcripts.unwrap_or_default());
        let running = Arc::new(RunningTurns::new(store, process, Tasks::default(), Arc::clone(&clock), bodies));
        Self { settings, admission, clock, fetch, running }
    }

    /// Turns that run now.
    pub fn in_flight(&self) -> usize {
        self.admission.in_flight()
    }

    /// Which process this is, to its store.
    pub fn process(&self) -> ProcessId {
        self.running.process
    }

    /// The most that a turn may take.
    pub fn turn_deadline(&self) -> Duration {
        self.settings.turn_deadline
    }

    /// The longest that the caller of a stream waits for its head while no model has accepted.
    pub fn head_after(&self) -> Duration {
        self.settings.head_after
    }

    /// Asks a turn to end, if it runs in this process.
    pub fn cancel(&self, response_id: &str) {
        self.running.cancel(response_id);
    }

    /// Asks a turn to end, if it runs in this process, and waits until what it has said is in the store, for `patience` at
    /// most.
    pub async fn cancel_and_wait(&self, response_id: &str, patience: Duration) {
        self.running.cancel(response_id);
        // After the timeout the caller reads what is stored so far.
        let _ = tokio::time::timeout(patience, self.running.left(response_id)).await;
    }

    /// A response about to be.
    pub fn identity(&self) -> Identity {
        let created_at_ms = self.clock.now_ms();
        Identity { response_id: Ids::Unguessable.response(created_at_ms), created_at_ms }
    }

    /// Starts a turn: comes back when a model has accepted it and, for a stream that is kept, when its beginning is in the
    /// store; or when none will. Dropping the future ends the call.
    pub async fn start(&self, mut start: Box<TurnStart<'_>>) -> Result<Box<Run>, Fault> {
        if start.storage.is_some() {
            self.running.expect_store()?;
        }
        let place = self.admission.enter()?;
        let started = Instant::now();
        let deadline = started + self.settings.turn_deadline;
        let over = place.over();
        let Identity { response_id, created_at_ms } = start.identity.clone();
        let mut calling = CallRecord::new(Keeping {
            transcripts: start.storage.is_some() && self.settings.transcripts.is_some(),
            raw_answer: start.storage.as_ref().is_some_and(|keep| keep.raw_answer),
        });
        let mut recorder = start
            .storage
            .take()
            .map(|keep| Box::new(Recorder::new(Arc::clone(&self.running), response_id.clone(), keep, calling.clone())));
        // A whole answer is written once, at its end: until then its id has not left the server.
        let begin = match &mut recorder {
            Some(recorder) if recorder.streamed || start.resumes_after.is_some() => Some(recorder.begin()),
            _ => None,
        };
        let stopped = recorder.as_ref().map(|recorder| recorder.stopped.clone());
        let announce = Announce::of(&start);
        if begin.is_none() {
            announce.tell();
        }
        // Calls that were decided about come before the model's first word.
        let decided = start.tools.as_ref().is_some_and(|tooling| !tooling.decided.is_empty());
        let accepted = {
            // Pinned where it is: it is not moved into what waits for it.
            let asking = pin!(async {
                match (decided, begin) {
                    (false, begin) => self.begin_and_ask(&start, begin, announce, &mut calling).await.map(Some),
                    (true, Some(begin)) => begun(begin).await.map(|()| None),
                    (true, None) => Ok(None),
                }
            });
            tokio::select! {
                biased;
                accepted = tokio::time::timeout_at(deadline, asking) => {
                    accepted.unwrap_or_else(|_| Err(past_deadline().into()))
                }
                fault = over => Err(fault.into()),
                () = stop_of(stopped) => Err(lost().into()),
            }
        };
        let accepted = match accepted {
            Ok(accepted) => accepted,
            Err(Unaccepted { fault, ours }) => {
                if let Some(mut recorder) = recorder {
                    // A turn that another process runs instead is not at its end.
                    let handed_over = start.resumes_after.is_some() && fault.kind == FaultKind::ShuttingDown;
                    if handed_over || !ours {
                        recorder.forget();
                    } else {
                        calling.end(Some(&fault), None, self.clock.now_ms());
                        recorder.leave_claim();
                        let ending = match fault.kind {
                            FaultKind::Cancelled => recorder::cancelled(),
                            _ => recorder::failed(fault.response_error(), Provenance::default()),
                        };
                        keep_ending(&mut recorder, ending).await;
                    }
                }
                return Err(fault);
            }
        };
        let provenance = accepted.as_ref().map(Accepted::provenance).unwrap_or_default();
        let Accepted { stream, first, losses, upstream, model, remembering, asked } = match accepted {
            Some(accepted) => {
                calling.accepted(&accepted.losses);
                log_losses(&response_id, &accepted.upstream, &accepted.model, &accepted.losses);
                accepted
            }
            None => Accepted::none(),
        };
        let mut emitter = Emitter::new(Start {
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
        let alone = (start.call.request.parallel_tool_calls == Some(false)).then_some(0);
        let waited = start.resumes_after;
        // In a box: it is handed on often, and it is large.
        let mut run = Box::new(Run {
            emitter,
            delivery: start.call.delivery,
            now: Now::Model(stream),
            first,
            rounds: start.tools.map(|tooling| Box::new(Rounds::new(self.clone(), tooling))),
            output_tokens: start.call.request.max_output_tokens,
            started,
            deadline,
            keepalive,
            clock,
            allowed,
            format: start.format,
            alone,
            place,
            losses,
            strict: start.call.strict,
            upstream,
            model,
            recorder,
            calling,
            waited,
            spoken: false,
            remembering,
            asked,
        });
        if decided {
            run.begin_decided()?;
        }
        Ok(run)
    }

    /// Asks the model of a turn whose beginning is written meanwhile, if it is written before its end.
    async fn begin_and_ask(
        &self,
        start: &TurnStart<'_>,
        begin: Option<Beginning>,
        announce: Announce<'_>,
        calling: &mut CallRecord,
    ) -> Result<Accepted, Unaccepted> {
        match begin {
            None => Ok(self.ask_in_turn(&start.call, calling).await?),
            // In boxes: whole answers need no room for these.
            Some(begin) if start.resumes_after.is_some() => Box::pin(self.begin_then_ask(start, begin, calling)).await,
            Some(begin) => Box::pin(self.ask_while_begun(start, begin, announce, calling)).await,
        }
    }

    /// A turn that has waited says first that it runs: if this process dies, it must not be found waiting and be asked of a
    /// model once more.
    async fn begin_then_ask(
        &self,
        start: &TurnStart<'_>,
        begin: Beginning,
        calling: &mut CallRecord,
    ) -> Result<Accepted, Unaccepted> {
        begun(begin).await?;
        Ok(self.ask_in_turn(&start.call, calling).await?)
    }

    /// Writes the beginning while the model is asked: each is of no use without the other.
    async fn ask_while_begun(
        &self,
        start: &TurnStart<'_>,
        begin: Beginning,
        announce: Announce<'_>,
        calling: &mut CallRecord,
    ) -> Result<Accepted, Unaccepted> {
        let begun = async {
            begun(begin).await?;
            announce.tell();
            Ok(())
        };
        let asking = async { Ok::<_, Unaccepted>(self.ask_in_turn(&start.call, calling).await?) };
        let ((), accepted) = tokio::try_join!(begun, asking)?;
        Ok(accepted)
    }
}

/// Who is told that the head of a stream may be shown.
struct Announce<'a> {
    start: Option<(&'a Announcement, &'a TurnStart<'a>)>,
}

impl<'a> Announce<'a> {
    fn of(start: &'a TurnStart<'a>) -> Self {
        let streams = start.call.delivery == Delivery::Stream && start.resumes_after.is_none();
        Self { start: start.call.announcement.filter(|_| streams).map(|announcement| (announcement, start)) }
    }

    /// The beginning is in the store, or is not written before the end.
    fn tell(&self) {
        if let Some((announcement, start)) = self.start {
            let (identity, settings) = (start.identity.clone(), start.settings.clone());
            announcement.stored(Announced { identity, settings, kept: start.call.kept });
        }
    }
}

/// A turn's beginning on its way into the store.
type Beginning = BoxFuture<'static, Result<Written, StoreError>>;

/// Waits until a turn's beginning is written.
async fn begun(begin: Beginning) -> Result<(), Unaccepted> {
    match begin.await {
        Ok(Written::Kept) => Ok(()),
        Ok(Written::Lost) => Err(Unaccepted { fault: lost(), ours: false }),
        // If the write succeeded after all, housekeeping ends the turn, since it does not run.
        Err(error) => Err(Unaccepted { fault: error.into(), ours: false }),
    }
}

/// Why a turn does not run.
struct Unaccepted {
    fault: Fault,
    /// Whether its end is ours to write.
    ours: bool,
}

impl From<Fault> for Unaccepted {
    fn from(fault: Fault) -> Self {
        Self { fault, ours: true }
    }
}

/// Comes when a turn that is kept is asked to end.
async fn stop_of(stopped: Option<watch::Receiver<bool>>) {
    if let Some(mut stopped) = stopped {
        stop(&mut stopped).await;
    } else {
        std::future::pending().await
    }
}

/// Resolves when cancellation is requested; never once it cannot be requested any more.
pub(crate) async fn stop(stopped: &mut watch::Receiver<bool>) {
    let asked = stopped.wait_for(|stopped| *stopped).await.is_ok();
    if !asked {
        std::future::pending().await
    }
}

/// Writes how a turn failed or that it was cancelled; the caller hears of it whether or not that works.
pub(crate) async fn keep_ending(recorder: &mut Recorder, ending: Ending) {
    if let Err(error) = recorder.end(ending).await {
        warn!("a turn that failed could not be written: {error}");
    }
}

/// The response was cancelled, or this process was declared dead while it ran.
pub(crate) fn lost() -> Fault {
    Fault::new(FaultKind::Cancelled, "The response was cancelled.")
}

pub(crate) fn past_deadline() -> Fault {
    Fault::new(FaultKind::Deadline, "The request took longer than the server allows.")
}

impl Run {
    /// What the upstream does not see as it was sent.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The operator's name of the upstream that answers.
    pub fn upstream(&self) -> &str {
        &self.upstream
    }

    /// `upstream/model` of the model that answers, once one has accepted.
    pub fn answered_by(&self) -> Option<&str> {
        self.emitter.provenance().model.as_deref()
    }

    /// Says in the response who answers and what was lost.
    pub(crate) fn tell_provenance(&mut self) {
        self.emitter.answered_by(model_call::provenance(&self.upstream, &self.model, &self.losses));
    }

    /// Something was lost that was not known when the model was asked. In strict mode that fails the turn.
    pub(crate) fn lose(&mut self, loss: Loss) -> Result<(), Fault> {
        warn!(response.id = self.emitter.response_id(), upstream = self.upstream, "{loss}");
        if self.strict {
            let message = format!("Strict mode: the upstream did not do what it was asked for: {loss}.");
            return Err(Fault::new(FaultKind::UpstreamBroken, message));
        }
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
            self.calling.accepted(&self.losses);
            self.tell_provenance();
        }
        Ok(())
    }

    /// How the caller wants its answer.
    pub fn delivery(&self) -> Delivery {
        self.delivery
    }

    /// Says when the turn was asked to end; never for one that is not kept.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        match &self.recorder {
            Some(recorder) => recorder.stopped.clone(),
            None => watch::channel(false).1,
        }
    }

    /// Writes nothing more: another process runs the turn.
    pub(crate) fn forget(&mut self) {
        if let Some(recorder) = &mut self.recorder {
            recorder.forget();
        }
    }

    /// The response's id.
    pub fn response_id(&self) -> &str {
        self.emitter.response_id()
    }
}

impl Drop for Run {
    /// A caller that leaves, or a cancellation, ends the turn where it is; what was said until then stays.
    fn drop(&mut self) {
        let uncounted = self.uncounted();
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| !recorder.is_over()) {
            self.emitter.interrupt();
            recorder.hear(self.emitter.frames(), self.emitter.sequence());
            recorder.leave(recorder::interrupted(&self.emitter), uncounted);
        }
    }
}
