//! Records the model calls of a turn: what each used, and transcripts.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use amalgam_core::{
    CallRecorder, CallSummary, Candidate, Clock, Fault, FaultKind, LimitSubject, Loss, MAX_SPANS, PreparedRequest,
    Price, RawAnswer, TraceContext, TurnOrigin, TurnSpan, TurnStep, UsedAmounts,
    store::{HoldSettlement, Transcript},
};
use amalgam_protocol::{Json, Usage, Writer};
use bytes::Bytes;
use tokio::time::Instant;

use crate::limiter::{CallTerms, Hold, LimitedTurn, NOTHING};

/// The model calls of one turn, shared by the code that makes them and the code that stores them.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallRecord {
    calls: Arc<Mutex<Calls>>,
    /// Whether the model of the running call has produced output.
    has_output: bool,
}

#[derive(Debug, Default)]
struct Calls {
    settings: CallRecordSettings,
    /// The turn's place in a trace, and its request.
    origin: CallOrigin,
    /// What the finished calls used.
    metered: MeteredCalls,
    /// The transcripts of finished calls, if they are stored.
    finished: Vec<Transcript>,
    /// The last answer as it was received.
    raw: Option<RawAnswer>,
    running: Option<RunningCall>,
    /// The caller, if limits may apply.
    limited: Option<Arc<LimitedTurn>>,
    /// The reservations of the turn itself: one, and one for each fallback that has limits of its own.
    turn_holds: Vec<String>,
    /// The limits of fallbacks that have counted the turn.
    counted: Vec<LimitSubject>,
}

/// The request that a turn's calls are made for.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallOrigin {
    /// The turn's place in a trace.
    pub(crate) trace: Option<TraceContext>,
    /// The caller's `tracestate`.
    pub(crate) trace_state: Option<Arc<str>>,
    pub(crate) request_id: Option<Arc<str>>,
}

impl CallOrigin {
    pub(crate) fn of(origin: &TurnOrigin) -> Self {
        let trace_state = origin.request.as_ref().and_then(|request| request.trace_state().cloned());
        Self { trace: origin.trace, trace_state, request_id: origin.request_id.clone() }
    }
}

/// The settings for the record of a turn's calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallRecordSettings {
    /// Whether requests and answers are stored, for as long as the configuration says.
    pub(crate) transcripts: bool,
    /// The last answer as it was received, for as long as the response is stored.
    pub(crate) raw_answer: bool,
}

/// The usage of a turn's calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeteredCalls {
    /// The finished model calls.
    pub(crate) calls: Vec<MeteredCall>,
    /// The names of server-run tools, one for each call.
    pub(crate) tools: Vec<String>,
    /// The parts of the turn that took time.
    pub(crate) spans: Vec<TurnSpan>,
    /// The reservations of the turn itself.
    turn_holds: Vec<String>,
}

/// The usage of one call.
#[derive(Debug, Clone)]
pub(crate) struct MeteredCall {
    pub(crate) summary: CallSummary,
    price: Option<Price>,
    /// The reservation of the call, until it is settled.
    hold: Option<String>,
    /// Whether the upstream refused it, so that nothing was used.
    refused: bool,
}

impl MeteredCall {
    /// The end of the call's reservation, once. A call of unknown usage counts as it was reserved.
    fn settlement(&mut self, now_ms: u64) -> Option<HoldSettlement> {
        let hold_id = self.hold.take()?;
        let used = match self.summary.usage {
            Some(usage) => Some(UsedAmounts { tokens: usage.total(), cost: self.summary.cost }),
            None => self.refused.then_some(NOTHING),
        };
        Some(HoldSettlement { hold_id, used, now_ms })
    }
}

impl MeteredCalls {
    fn add_span(&mut self, span: TurnSpan) {
        if self.spans.len() < MAX_SPANS {
            self.spans.push(span);
        }
    }

    /// The ends of the reservations of the calls and of the turn.
    pub(crate) fn settlements(&mut self, now_ms: u64) -> Vec<HoldSettlement> {
        let turn = self.turn_holds.drain(..).map(|hold_id| HoldSettlement { hold_id, used: None, now_ms });
        self.calls.iter_mut().filter_map(|call| call.settlement(now_ms)).chain(turn).collect()
    }

    /// Adds the usage of the last call, which was interrupted before its upstream reported it.
    pub(crate) fn add_usage(&mut self, usage: Option<Usage>) {
        if let (Some(usage), Some(call)) = (usage, self.calls.last_mut())
            && call.summary.usage.is_none()
        {
            call.summary.usage = Some(usage);
            call.summary.cost = call.price.map(|price| price.cost(&usage));
        }
    }
}

#[derive(Debug)]
struct RunningCall {
    upstream: String,
    model: String,
    /// The upstream's name of the model in its answer, if it is another one.
    named: Option<String>,
    price: Option<Price>,
    hold: Option<String>,
    /// Whether it has a request and an answer to record.
    calls_upstream: bool,
    request: Bytes,
    recorder: CallRecorder,
    asked_at_ms: u64,
    first_token_ms: Option<u64>,
    losses: Vec<String>,
    provider: &'static str,
    span_id: u64,
    asked_at: Instant,
    first_token_at: Option<Instant>,
}

impl CallRecord {
    /// The record of a turn with this origin, with its spans so far.
    pub(crate) fn new(settings: CallRecordSettings, origin: CallOrigin, spans: Vec<TurnSpan>) -> Self {
        let metered = MeteredCalls { spans, ..MeteredCalls::default() };
        Self { calls: Arc::new(Mutex::new(Calls { settings, origin, metered, ..Calls::default() })), has_output: false }
    }

    /// Adds a part of the turn that began at `start` and has just ended.
    pub(crate) fn add_span(&self, step: TurnStep, start: Instant, error: Option<&'static str>) {
        let (start, end) = (start.into_std(), Instant::now().into_std());
        self.add_finished(TurnSpan { error, ..TurnSpan::ended(step, start, end) });
    }

    /// Adds a part of the turn.
    pub(crate) fn add_finished(&self, span: TurnSpan) {
        self.calls().metered.add_span(span);
    }

    /// A place in the trace for a request to another server.
    pub(crate) fn trace_of_call(&self) -> Option<TraceContext> {
        self.calls().origin.trace.map(TraceContext::of_call)
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits apply to the turn of this caller.
    pub(crate) fn set_limited(&self, limited: LimitedTurn, hold: Option<Hold>) {
        let mut calls = self.calls();
        calls.limited = Some(Arc::new(limited));
        calls.turn_holds.extend(hold.map(Hold::into_id));
    }

    /// Those of these limits that have not counted the turn yet.
    pub(crate) fn uncounted(&self, mut subjects: Vec<LimitSubject>) -> Vec<LimitSubject> {
        let calls = self.calls();
        subjects.retain(|subject| !calls.counted.contains(subject));
        subjects
    }

    /// These limits of a fallback have counted the turn.
    pub(crate) fn set_counted(&self, subjects: Vec<LimitSubject>, hold: Option<Hold>) {
        let mut calls = self.calls();
        calls.counted.extend(subjects);
        calls.turn_holds.extend(hold.map(Hold::into_id));
    }

    /// The caller, if limits may apply.
    pub(crate) fn limited(&self) -> Option<Arc<LimitedTurn>> {
        self.calls().limited.clone()
    }

    /// The settlements of finished calls, of a turn that continues.
    pub(crate) fn take_settlements(&self, now_ms: u64) -> Vec<HoldSettlement> {
        self.calls().metered.calls.iter_mut().filter_map(|call| call.settlement(now_ms)).collect()
    }

    /// Begins a call.
    pub(crate) fn begin(
        &mut self,
        candidate: &Candidate,
        terms: CallTerms,
        prepared: &mut PreparedRequest,
        now_ms: u64,
    ) {
        self.has_output = false;
        let mut calls = self.calls();
        // A model without a request body calls no upstream.
        let calls_upstream = !prepared.body.is_empty();
        let recorder = match calls.settings {
            CallRecordSettings { raw_answer: true, .. } => CallRecorder::keeping_last(),
            CallRecordSettings { transcripts: true, .. } => CallRecorder::default(),
            _ => CallRecorder::counting_only(),
        };
        prepared.answer_context.recorder = calls_upstream.then(|| recorder.clone());
        let trace = calls.origin.trace.map(TraceContext::of_call);
        prepared.answer_context.trace = trace;
        prepared.answer_context.trace_state = calls.origin.trace_state.clone();
        prepared.answer_context.request_id = calls.origin.request_id.clone();
        calls.running = Some(RunningCall {
            upstream: candidate.upstream.clone(),
            model: candidate.name.clone(),
            named: None,
            price: terms.price,
            hold: terms.hold.map(Hold::into_id),
            calls_upstream,
            request: match calls.settings.transcripts {
                true => prepared.body.clone(),
                false => Bytes::new(),
            },
            recorder,
            asked_at_ms: now_ms,
            first_token_ms: None,
            losses: match calls.settings.transcripts {
                true => prepared.losses.iter().map(ToString::to_string).collect(),
                false => Vec::new(),
            },
            provider: candidate.model.provider_name(),
            span_id: trace.map_or(0, |trace| trace.span_id),
            asked_at: Instant::now(),
            first_token_at: None,
        });
    }

    /// Sets all losses of the running call.
    pub(crate) fn set_losses(&mut self, losses: &[Loss]) {
        let mut calls = self.calls();
        let transcripts = calls.settings.transcripts;
        if let Some(running) = calls.running.as_mut().filter(|_| transcripts) {
            running.losses = losses.iter().map(ToString::to_string).collect();
        }
    }

    /// Sets the upstream's name of the model.
    pub(crate) fn set_model_name(&mut self, model: &str) {
        if let Some(running) = self.calls().running.as_mut().filter(|running| running.model != model) {
            running.named = Some(model.to_owned());
        }
    }

    /// Records the time of the first output.
    pub(crate) fn on_output(&mut self, clock: &dyn Clock) {
        if std::mem::replace(&mut self.has_output, true) {
            return;
        }
        if let Some(running) = self.calls().running.as_mut() {
            running.first_token_ms = Some(clock.now_ms().saturating_sub(running.asked_at_ms));
            running.first_token_at = Some(Instant::now());
        }
    }

    /// Ends the running call with a failure; another call follows.
    pub(crate) fn failed(&mut self, why: &dyn fmt::Display, kind: FaultKind, now_ms: u64) {
        self.calls().close(Some(CallFailure::new(why, kind)), None, now_ms);
    }

    /// Ends the running call.
    pub(crate) fn end(&mut self, fault: Option<&Fault>, usage: Option<Usage>, now_ms: u64) {
        self.calls().close(fault.map(|fault| CallFailure::new(fault, fault.kind)), usage, now_ms);
    }

    /// Adds server-run tool calls by the names of their tools.
    pub(crate) fn add_tools<'a>(&self, names: impl Iterator<Item = &'a str>) {
        self.calls().metered.tools.extend(names.map(ToOwned::to_owned));
    }

    /// The model calls that have finished, and the names of server-run tools. The turn goes on.
    pub(crate) fn finished_calls(&self) -> (Vec<CallSummary>, Vec<String>) {
        let metered = &self.calls().metered;
        (metered.calls.iter().map(|call| call.summary.clone()).collect(), metered.tools.clone())
    }

    /// Takes what the calls used at the end of a turn; call it after [`Self::take`].
    pub(crate) fn take_metered(&self) -> MeteredCalls {
        let mut calls = self.calls();
        let turn_holds = std::mem::take(&mut calls.turn_holds);
        MeteredCalls { turn_holds, ..std::mem::take(&mut calls.metered) }
    }

    /// Takes all calls at the end of a turn. A call that still runs ends with the reason `why`.
    pub(crate) fn take(&self, why: &Fault, now_ms: u64) -> Vec<Transcript> {
        let mut calls = self.calls();
        // It is unknown how much the upstream has done.
        calls.close(Some(CallFailure { refused: false, ..CallFailure::new(why, why.kind) }), None, now_ms);
        std::mem::take(&mut calls.finished)
    }

    /// Takes the last answer as it was received, if it is stored.
    pub(crate) fn take_raw(&self) -> Option<RawAnswer> {
        self.calls().raw.take()
    }
}

/// Why a call failed.
struct CallFailure<'a> {
    /// The text for the transcript.
    why: &'a dyn fmt::Display,
    class: &'static str,
    /// Whether the upstream did not begin to answer.
    refused: bool,
}

impl<'a> CallFailure<'a> {
    fn new(why: &'a dyn fmt::Display, kind: FaultKind) -> Self {
        Self { why, class: kind.name(), refused: is_refusal(kind) }
    }
}

/// Whether an upstream that fails in this way has not begun to answer, so that nothing was used.
fn is_refusal(kind: FaultKind) -> bool {
    matches!(
        kind,
        FaultKind::UpstreamBusy
            | FaultKind::UpstreamQuota
            | FaultKind::UpstreamCredential
            | FaultKind::UpstreamRejected
            | FaultKind::UpstreamUnknownModel
            | FaultKind::ContextLength
            | FaultKind::ContentPolicy
            | FaultKind::UpstreamDown
    )
}

impl Calls {
    /// Ends the running call.
    fn close(&mut self, error: Option<CallFailure<'_>>, usage: Option<Usage>, now_ms: u64) {
        let Some(running) = self.running.take() else { return };
        let answer = running.recorder.take();
        self.metered.add_span(TurnSpan {
            id: running.span_id,
            start: running.asked_at.into_std(),
            end: Instant::now().into_std(),
            step: TurnStep::ModelCall {
                call: self.metered.calls.len(),
                first_token: running.first_token_at.map(Instant::into_std),
                provider: running.provider,
                answered_as: running.named.as_deref().map(Into::into),
            },
            error: error.as_ref().map(|error| error.class),
        });
        let duration_ms = now_ms.saturating_sub(running.asked_at_ms);
        self.metered.calls.push(MeteredCall {
            summary: CallSummary {
                upstream: running.upstream.clone(),
                model: running.model.clone(),
                asked_at_ms: running.asked_at_ms,
                first_token_ms: running.first_token_ms,
                duration_ms,
                retries: answer.retries,
                usage,
                cost: usage.and_then(|usage| Some(running.price?.cost(&usage))),
                failed: error.is_some(),
            },
            price: running.price,
            hold: running.hold,
            refused: error.as_ref().is_some_and(|error| error.refused) && running.first_token_ms.is_none(),
        });
        if !running.calls_upstream {
            return;
        }
        if self.settings.raw_answer {
            let model = running.named.or_else(|| Some(running.model.clone()));
            self.raw = Some(RawAnswer::of(&answer, model, error.is_some()));
        }
        if !self.settings.transcripts {
            return;
        }
        self.finished.push(Transcript {
            number: u32::try_from(self.finished.len()).unwrap_or(u32::MAX),
            upstream: running.upstream,
            model: running.model,
            asked_at_ms: running.asked_at_ms,
            first_token_ms: running.first_token_ms,
            duration_ms,
            retries: answer.retries,
            base: None,
            request: running.request,
            response: answer.body.slice(..answer.body.len().min(CallRecorder::KEPT_BYTES)),
            cut: answer.cut || answer.body.len() > CallRecorder::KEPT_BYTES,
            usage: usage.map(|usage| {
                let mut writer = Writer::with_capacity(256);
                usage.write(&mut writer);
                Json::from_writer(writer)
            }),
            losses: running.losses,
            error: error.map(|error| error.why.to_string()),
        });
    }
}
