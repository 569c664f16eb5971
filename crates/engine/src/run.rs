//! A turn that a model has accepted: what it consists of, and how it ends when its caller leaves.

use std::{sync::Arc, time::Duration};

use amalgam_core::{Clock, Delivery, Fault, FaultKind, Loss, ModelEvent, ModelStream, store::Ending};
use amalgam_emitter::Emitter;
use amalgam_protocol::Status;
use tokio::{sync::watch, time::Instant};
use tracing::warn;

use crate::{
    admission::Slot,
    allowed_tools::Allowed,
    answer_format::AnswerFormat,
    call_record::CallRecord,
    model_call,
    partial_usage::SentRequest,
    recorder::{self, Recorder},
    rounds::{PendingModelCall, Rounds, ToolPhase},
    running_turns::ListedUntilDropped,
    turn_meter::TurnMeter,
    upstream_state::UpstreamState,
};

/// A turn that a model has accepted.
pub struct Run {
    pub(crate) emitter: Emitter,
    pub(crate) delivery: Delivery,
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
    pub(crate) _listed: Option<ListedUntilDropped>,
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
