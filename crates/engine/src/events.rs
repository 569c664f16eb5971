//! The events of a streamed response.
//!
//! The turn runs inside this stream: a caller that does not read makes the upstream wait, and a caller that disconnects
//! drops the stream and with it the upstream call. A stored turn writes its frames to the store as it runs, and its end
//! before the caller receives it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use amalgam_core::{BoxFuture, Fault, FaultKind, StoreError, store::WriteOutcome};
use amalgam_protocol::{ErrorObject, EventBatch, Status, Usage};
use futures_core::Stream;
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};
use tracing::{debug, warn};

use crate::{
    partial_usage::UncountedCall,
    recorder::{self, EndResult},
    run::{Phase, Run, cancellation, wait_for_cancellation},
    turn_meter::status_of,
};

/// Frames are sent at this size even if more are ready, so that a stream needs little memory.
const FLUSH_BYTES: usize = 32 * 1024;

/// Output that follows earlier output within this time belongs to one burst.
const BURST_GAP: Duration = Duration::from_millis(1);

/// How often the stream yields to the scheduler during a burst before it sends, so that output that arrives meanwhile
/// leaves in the same write.
const YIELDS: u8 = 2;

/// A streamed response.
pub struct TurnEvents {
    run: Box<Run>,
    /// Fires at the next keepalive, flush or deadline.
    timer: Pin<Box<Sleep>>,
    last_sent_at: Instant,
    /// When the last output was sent.
    last_output_at: Option<Instant>,
    /// How often the stream has yielded since frames were ready.
    yields: u8,
    /// Resolves when the process shuts down, or when cancellation is requested.
    interruption: BoxFuture<'static, Fault>,
    /// Whether cancellation was requested.
    cancelled: watch::Receiver<bool>,
    /// The waker that `interruption` has registered. It is polled again only for another waker.
    interruption_waker: Option<Waker>,
    stage: Stage,
    last_flushed: Instant,
    /// The estimated usage of a call that a cancellation interrupted, once it is computed.
    estimated_usage: Option<Arc<OnceLock<Usage>>>,
}

type Writing = BoxFuture<'static, Result<EndResult, StoreError>>;

/// The stage of a stream.
enum Stage {
    /// The turn runs.
    Running,
    /// The end is being written; the terminal event follows.
    Ending(Writing, TerminalEvent),
    /// Only buffered frames are left.
    Finished,
}

/// The last event of a stream.
enum TerminalEvent {
    Concluded { now_ms: u64 },
    Failed(ErrorObject),
    Cancelled,
}

impl TurnEvents {
    /// Continues a stream that began before its model accepted. `sent` holds its frames so far; `sequence` is the
    /// number of the next frame.
    pub(crate) fn resume(mut run: Box<Run>, sent: &[u8], sequence: u64) -> Self {
        run.emitter.resume_at(sequence);
        if let Some(recorder) = &mut run.recorder {
            recorder.record_frames(sent, sequence);
        }
        run.emitter.announce_prompt();
        Self::start(run)
    }

    pub(crate) fn new(mut run: Box<Run>) -> Self {
        match run.resumed_after {
            Some(sequence) => {
                run.emitter.begin_after_waiting(sequence);
                if let Some(recorder) = &mut run.recorder {
                    // The frames before are in the store.
                    recorder.start_at(sequence);
                }
            }
            None => run.emitter.begin(),
        }
        Self::start(run)
    }

    fn start(run: Box<Run>) -> Self {
        let now = Instant::now();
        let timer = Box::pin(sleep_until(next_timer(&run, now)));
        let (shutdown, cancelled) = (run.slot.shutdown(), run.cancelled());
        let interruption = Box::pin(wait_for_interruption(shutdown, cancelled.clone()));
        Self {
            run,
            timer,
            last_sent_at: now,
            last_output_at: None,
            yields: 0,
            interruption,
            cancelled,
            interruption_waker: None,
            stage: Stage::Running,
            last_flushed: now,
            estimated_usage: None,
        }
    }

    /// The output items, once the turn has ended successfully. A connection remembers them for turns that are not
    /// stored.
    pub fn output(&self) -> Option<Vec<amalgam_protocol::Json>> {
        use amalgam_protocol::Status::{Completed, Incomplete};
        matches!(self.run.emitter.status(), Completed | Incomplete).then(|| self.run.emitter.kept_output().into_owned())
    }

    /// Hands the turn over to another process, if it has produced no output. Returns whether it did; then nothing more
    /// is written here.
    pub(crate) async fn hand_over(&mut self) -> bool {
        let handed_over = matches!(self.stage, Stage::Running) && self.can_hand_over();
        if let (true, Some(recorder)) = (handed_over, &mut self.run.recorder) {
            // The next process counts the events in the store.
            recorder.wait_for_flush().await;
            recorder.release();
        }
        handed_over
    }

    /// Whether this is a background turn that another process can still start again.
    fn can_hand_over(&self) -> bool {
        self.run.resumed_after.is_some() && !self.run.has_output
    }

    fn send(&mut self) -> Poll<Option<EventBatch>> {
        self.last_sent_at = Instant::now();
        self.yields = 0;
        self.last_output_at = self.run.has_output.then_some(self.last_sent_at);
        let frames = self.run.emitter.take_frames();
        // Frames after the end are not recorded: they were written with it, and terminal frames are derived from the
        // response.
        if let (Stage::Running, Some(recorder)) = (&self.stage, &mut self.run.recorder) {
            recorder.record_frames(&frames, self.run.emitter.sequence());
        }
        Poll::Ready(Some(EventBatch::from_frames(frames)))
    }

    fn fail(&mut self, fault: &Fault) {
        // The line of the request reports the failed turn.
        debug!(
            response.id = self.run.response_id(),
            upstream = self.run.upstream(),
            class = fault.kind.name(),
            detail = fault.detail,
            quote = fault.quote,
            "stream failed: {fault}",
        );
        self.run.end_call(Some(fault));
        let mut uncounted = None;
        let last = match fault.kind {
            FaultKind::Cancelled => {
                uncounted = self.run.uncounted();
                self.run.emitter.interrupt();
                TerminalEvent::Cancelled
            }
            _ => TerminalEvent::Failed(fault.response_error()),
        };
        self.estimated_usage = uncounted.as_ref().map(UncountedCall::usage);
        let ending = match &last {
            TerminalEvent::Failed(_) => recorder::failed_by(fault, &self.run.emitter),
            TerminalEvent::Cancelled | TerminalEvent::Concluded { .. } => recorder::interrupted(&self.run.emitter),
        };
        match &mut self.run.recorder {
            Some(recorder) => {
                recorder.record_frames(self.run.emitter.frames(), self.run.emitter.sequence());
                self.stage = Stage::Ending(recorder.end_counted(ending, uncounted), last);
            }
            None => {
                let error = match &last {
                    TerminalEvent::Failed(error) => Some(error.clone()),
                    TerminalEvent::Cancelled | TerminalEvent::Concluded { .. } => None,
                };
                self.run.report_unstored(status_of(fault.kind), error.as_ref(), uncounted);
                self.emit_terminal(last);
            }
        }
    }

    /// Writes the end; the terminal event follows the write.
    fn conclude(&mut self) {
        if let Err(fault) = self.run.check_answer() {
            return self.fail(&fault);
        }
        let now_ms = self.run.clock.now_ms();
        self.run.end_call(None);
        // All remaining frames are written with the end, including those that the caller has not received yet.
        let ending = self.run.recorder.is_some().then(|| self.run.ending(now_ms));
        let (Some(recorder), Some(ending)) = (&mut self.run.recorder, ending) else {
            self.run.report_unstored(self.run.emitter.status(), None, None);
            return self.emit_terminal(TerminalEvent::Concluded { now_ms });
        };
        recorder.record_frames(self.run.emitter.frames(), self.run.emitter.sequence());
        let writing = recorder.end(ending);
        self.stage = Stage::Ending(writing, TerminalEvent::Concluded { now_ms });
    }

    fn emit_terminal(&mut self, last: TerminalEvent) {
        match last {
            TerminalEvent::Concluded { now_ms } => self.run.emitter.conclude(now_ms / 1000),
            TerminalEvent::Failed(error) => self.run.emitter.fail(error),
            TerminalEvent::Cancelled => {
                if let Some(usage) = self.estimated_usage.as_ref().and_then(|estimated_usage| estimated_usage.get()) {
                    self.run.emitter.counted(*usage);
                }
                self.run.emitter.cancel();
            }
        }
        self.stage = Stage::Finished;
    }

    /// Waits for the end to be written.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Stage::Ending(writing, _) = &mut self.stage else { return Poll::Ready(()) };
        let Poll::Ready(written) = writing.as_mut().poll(context) else { return Poll::Pending };
        let Stage::Ending(_, last) = std::mem::replace(&mut self.stage, Stage::Finished) else {
            return Poll::Ready(());
        };
        let terminal = match (written, last) {
            (Ok(EndResult::Stored(_)), last) => last,
            // P5: the caller receives the state that is stored.
            (Ok(EndResult::Superseded(Some(state))), last) => match (state.status, state.error) {
                (Status::Cancelled, _) => TerminalEvent::Cancelled,
                (_, Some(error)) => {
                    self.run.emitter.answered_by(state.provenance);
                    TerminalEvent::Failed(error)
                }
                (_, None) => self.terminal_if_lost(last),
            },
            // A failure stays a failure, whether or not it could be written.
            (_, last @ TerminalEvent::Failed(_)) => last,
            (Ok(EndResult::Superseded(None)), last) => self.terminal_if_lost(last),
            (Err(error), _) => {
                let fault = Fault::from(error);
                warn!(response.id = self.run.response_id(), detail = fault.detail, "the end could not be written");
                TerminalEvent::Failed(fault.response_error())
            }
        };
        self.emit_terminal(terminal);
        Poll::Ready(())
    }

    /// The terminal event of a turn that was lost to another process, if the stored state is not known.
    fn terminal_if_lost(&self, last: TerminalEvent) -> TerminalEvent {
        match last {
            TerminalEvent::Failed(_) => last,
            TerminalEvent::Concluded { .. } | TerminalEvent::Cancelled => {
                TerminalEvent::Failed(cancellation().response_error())
            }
        }
    }

    /// Writes frames to the store when they are due.
    fn poll_flush(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(recorder) = &mut self.run.recorder else { return };
            let due = self.last_flushed.elapsed() >= recorder.flush_after;
            let Poll::Ready(written) = recorder.poll_flush(due, context) else { return };
            self.last_flushed = Instant::now();
            match written {
                Ok(WriteOutcome::Kept) => {}
                Ok(WriteOutcome::Lost) => return self.fail(&cancellation()),
                Err(error) => return self.fail(&Fault::from(error)),
            }
        }
    }

    /// Handles the timer. It is reset only after it has fired, not for every frame.
    fn poll_timer(&mut self, context: &mut Context<'_>) {
        while self.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= self.run.deadline {
                let fault = self.run.past_deadline();
                return self.fail(&fault);
            }
            if now >= self.last_sent_at + self.run.keepalive {
                self.run.emitter.keepalive();
                self.last_sent_at = now;
            }
            self.timer.as_mut().reset(next_timer(&self.run, self.last_sent_at));
        }
    }

    /// Handles everything except the model: timer, interruption, writes of frames.
    fn poll_others(&mut self, context: &mut Context<'_>) {
        self.poll_timer(context);
        if matches!(self.stage, Stage::Running) {
            self.poll_interruption(context);
        }
        if matches!(self.stage, Stage::Running) {
            self.poll_flush(context);
        }
    }

    /// Whether more output of a burst may follow soon. Tool output does not come in bursts.
    fn may_coalesce(&self) -> bool {
        let in_burst = self.last_output_at.is_some_and(|at| at.elapsed() < BURST_GAP);
        in_burst && self.yields < YIELDS && matches!(self.run.phase, Phase::Streaming(_))
    }

    fn poll_interruption(&mut self, context: &mut Context<'_>) {
        // The background task hands the turn over instead.
        if self.can_hand_over() {
            return;
        }
        let interrupted = self.run.slot.is_shutting_down() || *self.cancelled.borrow();
        if !interrupted && self.interruption_waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return;
        }
        match self.interruption.as_mut().poll(context) {
            Poll::Ready(fault) => self.fail(&fault),
            Poll::Pending => self.interruption_waker = Some(context.waker().clone()),
        }
    }

    fn poll_model(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let fault = std::task::ready!(self.run.poll_progress(context)).err();
        match fault {
            Some(fault) => self.fail(&fault),
            None if self.run.emitter.is_finished() => self.conclude(),
            None => {}
        }
        Poll::Ready(())
    }
}

/// Resolves with the reason why the turn must end.
async fn wait_for_interruption(shutdown: impl Future<Output = Fault>, mut cancelled: watch::Receiver<bool>) -> Fault {
    tokio::select! {
        fault = shutdown => fault,
        () = wait_for_cancellation(&mut cancelled) => cancellation(),
    }
}

/// When the timer must fire next.
fn next_timer(run: &Run, last_sent_at: Instant) -> Instant {
    let due = (last_sent_at + run.keepalive).min(run.deadline);
    match &run.recorder {
        Some(recorder) if recorder.streamed => due.min(Instant::now() + recorder.flush_after),
        _ => due,
    }
}

impl Stream for TurnEvents {
    type Item = EventBatch;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<EventBatch>> {
        let this = self.get_mut();
        loop {
            match this.stage {
                Stage::Running => {}
                Stage::Ending(..) => {
                    if this.poll_end(context).is_ready() {
                        continue;
                    }
                    return match this.run.emitter.has_frames() {
                        true => this.send(),
                        false => Poll::Pending,
                    };
                }
                Stage::Finished => {
                    return match this.run.emitter.has_frames() {
                        true => this.send(),
                        false => Poll::Ready(None),
                    };
                }
            }
            if this.run.emitter.frames_len() >= FLUSH_BYTES {
                // A model that always has output ready would keep the timer from being polled.
                if Instant::now() >= this.run.deadline {
                    let fault = this.run.past_deadline();
                    this.fail(&fault);
                    continue;
                }
                // The same holds for writes of frames.
                this.poll_flush(context);
                if !matches!(this.stage, Stage::Running) {
                    continue;
                }
                return this.send();
            }
            if this.poll_model(context).is_ready() {
                continue;
            }
            this.poll_others(context);
            if !matches!(this.stage, Stage::Running) {
                continue;
            }
            if !this.run.emitter.has_frames() {
                return Poll::Pending;
            }
            // Output outside of a burst is sent at once.
            if !this.may_coalesce() {
                return this.send();
            }
            this.yields += 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
    }
}
