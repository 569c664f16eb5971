//! The events of a streamed response, as the caller's connection asks for them.
//!
//! The turn runs inside this stream: a caller that does not read makes the upstream wait, and one that leaves drops the
//! stream and with it the upstream call. A turn that is stored writes its frames to the store as it goes, and its end
//! before the caller is sent it.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Waker},
    time::Duration,
};

use amalgam_core::{BoxFuture, Fault, FaultKind, StoreError, store::Written};
use amalgam_protocol::{ErrorObject, EventBatch, Status, Usage};
use futures_core::Stream;
use tokio::{
    sync::watch,
    time::{Instant, Sleep, sleep_until},
};
use tracing::warn;

use crate::{
    partial_usage::UncountedCall,
    recorder::{self, Ended},
    run::{Now, Run, lost, stop},
};

/// Frames are handed on at this size even if more are ready: memory a stream stays small.
const FLUSH_BYTES: usize = 32 * 1024;

/// Output that comes within this time of the output before it is one burst.
const SOON: Duration = Duration::from_millis(1);

/// In a burst the scheduler runs other tasks so many times before frames are sent: what arrives meanwhile leaves in the same
/// write.
const YIELDS: u8 = 2;

/// A streamed response.
pub struct TurnEvents {
    run: Box<Run>,
    /// The next moment at which something is due: a sign of life or the deadline.
    alarm: Pin<Box<Sleep>>,
    last_sent: Instant,
    /// When something that the model said was last sent.
    last_said: Option<Instant>,
    /// How often the scheduler ran other tasks while frames wait to be sent.
    yields: u8,
    /// Resolves when the process shuts down, or when cancellation is requested.
    over: BoxFuture<'static, Fault>,
    /// Whether cancellation was requested.
    stopped: watch::Receiver<bool>,
    /// Who is woken by it: asked again only for another one.
    over_wakes: Option<Waker>,
    stage: Stage,
    last_flushed: Instant,
    /// What the call has cost that was given up by a cancellation, once that is counted.
    counted: Option<Arc<OnceLock<Usage>>>,
}

type Writing = BoxFuture<'static, Result<Ended, StoreError>>;

/// How far a stream is.
enum Stage {
    /// The model speaks.
    Running,
    /// How it ended is being written; after that the caller is told.
    Ending(Writing, Last),
    /// Only frames are left.
    Over,
}

/// What the caller is told at the end.
enum Last {
    Concluded { now_ms: u64 },
    Failed(ErrorObject),
    Cancelled,
}

impl TurnEvents {
    /// Goes on with a stream that was begun before its model accepted: `sent` are its frames so far, and `sequence` is the
    /// number of the next one.
    pub(crate) fn after(mut run: Box<Run>, sent: &[u8], sequence: u64) -> Self {
        run.emitter.resume_at(sequence);
        if let Some(recorder) = &mut run.recorder {
            recorder.hear(sent, sequence);
        }
        Self::of(run)
    }

    pub(crate) fn new(mut run: Box<Run>) -> Self {
        match run.waited {
            Some(told) => {
                run.emitter.begin_after_waiting(told);
                if let Some(recorder) = &mut run.recorder {
                    // What was told while it waited is in the store.
                    recorder.starts_at(told);
                }
            }
            None => run.emitter.begin(),
        }
        Self::of(run)
    }

    fn of(run: Box<Run>) -> Self {
        let now = Instant::now();
        let alarm = Box::pin(sleep_until(next_alarm(&run, now)));
        let (place, stopped) = (run.place.over(), run.stopped());
        let over = Box::pin(ended_from_outside(place, stopped.clone()));
        Self {
            run,
            alarm,
            last_sent: now,
            last_said: None,
            yields: 0,
            over,
            stopped,
            over_wakes: None,
            stage: Stage::Running,
            last_flushed: now,
            counted: None,
        }
    }

    /// The items of the turn, once it has ended well: what a connection remembers that is not in the store.
    pub fn output(&self) -> Option<Vec<amalgam_protocol::Json>> {
        use amalgam_protocol::Status::{Completed, Incomplete};
        matches!(self.run.emitter.status(), Completed | Incomplete).then(|| self.run.emitter.kept_output().into_owned())
    }

    /// Lets another process run the turn, if the model has not said anything: then nothing more is written here.
    pub(crate) async fn hand_over(&mut self) -> bool {
        let fresh = matches!(self.stage, Stage::Running) && self.is_fresh();
        if let (true, Some(recorder)) = (fresh, &mut self.run.recorder) {
            // The next process counts the events in the store.
            recorder.flushed().await;
            recorder.forget();
        }
        fresh
    }

    /// Whether it is a background turn that another process can still begin anew.
    fn is_fresh(&self) -> bool {
        self.run.waited.is_some() && !self.run.spoken
    }

    fn send(&mut self) -> Poll<Option<EventBatch>> {
        self.last_sent = Instant::now();
        self.yields = 0;
        self.last_said = self.run.spoken.then_some(self.last_sent);
        let frames = self.run.emitter.take_frames();
        // What is left when a stream ends was kept with its end; its last frames follow from the response itself.
        if let (Stage::Running, Some(recorder)) = (&self.stage, &mut self.run.recorder) {
            recorder.hear(&frames, self.run.emitter.sequence());
        }
        Poll::Ready(Some(EventBatch::from_frames(frames)))
    }

    fn fail(&mut self, fault: &Fault) {
        warn!(
            response.id = self.run.response_id(),
            upstream = self.run.upstream(),
            kind = ?fault.kind,
            detail = fault.detail,
            "stream failed: {fault}",
        );
        self.run.end_call(Some(fault));
        let mut uncounted = None;
        let last = match fault.kind {
            FaultKind::Cancelled => {
                uncounted = self.run.uncounted();
                self.run.emitter.interrupt();
                Last::Cancelled
            }
            _ => Last::Failed(fault.response_error()),
        };
        self.counted = uncounted.as_ref().map(UncountedCall::usage);
        let ending = match &last {
            Last::Failed(error) => recorder::failed(error.clone(), self.run.emitter.provenance().clone()),
            Last::Cancelled | Last::Concluded { .. } => recorder::interrupted(&self.run.emitter),
        };
        match &mut self.run.recorder {
            Some(recorder) => {
                recorder.hear(self.run.emitter.frames(), self.run.emitter.sequence());
                self.stage = Stage::Ending(recorder.end_counted(ending, uncounted), last);
            }
            None => self.tell_last(last),
        }
    }

    /// The model is done: what must be on disk by then is written, then the caller is told.
    fn conclude(&mut self) {
        if let Err(fault) = self.run.check_answer() {
            return self.fail(&fault);
        }
        let now_ms = self.run.clock.now_ms();
        self.run.end_call(None);
        // The last frames are kept with the end, also those that the caller has not asked for yet.
        let ending = self.run.recorder.is_some().then(|| self.run.ending(now_ms));
        let (Some(recorder), Some(ending)) = (&mut self.run.recorder, ending) else {
            return self.tell_last(Last::Concluded { now_ms });
        };
        recorder.hear(self.run.emitter.frames(), self.run.emitter.sequence());
        let writing = recorder.end(ending);
        self.stage = Stage::Ending(writing, Last::Concluded { now_ms });
    }

    fn tell_last(&mut self, last: Last) {
        match last {
            Last::Concluded { now_ms } => self.run.emitter.conclude(now_ms / 1000),
            Last::Failed(error) => self.run.emitter.fail(error),
            Last::Cancelled => {
                if let Some(usage) = self.counted.as_ref().and_then(|counted| counted.get()) {
                    self.run.emitter.counted(*usage);
                }
                self.run.emitter.cancel();
            }
        }
        self.stage = Stage::Over;
    }

    /// Waits for the end to be written.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Stage::Ending(writing, _) = &mut self.stage else { return Poll::Ready(()) };
        let Poll::Ready(written) = writing.as_mut().poll(context) else { return Poll::Pending };
        let Stage::Ending(_, last) = std::mem::replace(&mut self.stage, Stage::Over) else { return Poll::Ready(()) };
        let told = match (written, last) {
            (Ok(Ended::Kept), last) => last,
            // P5: the caller hears what the store says.
            (Ok(Ended::Lost(Some(told))), last) => match (told.status, told.error) {
                (Status::Cancelled, _) => Last::Cancelled,
                (_, Some(error)) => {
                    self.run.emitter.answered_by(told.provenance);
                    Last::Failed(error)
                }
                (_, None) => self.lost(last),
            },
            // A failure is told as a failure, whether or not it could be written.
            (_, last @ Last::Failed(_)) => last,
            (Ok(Ended::Lost(None)), last) => self.lost(last),
            (Err(error), _) => {
                let fault = Fault::from(error);
                warn!(response.id = self.run.response_id(), detail = fault.detail, "the end could not be written");
                Last::Failed(fault.response_error())
            }
        };
        self.tell_last(told);
        Poll::Ready(())
    }

    /// What is told of a turn that is not ours any more, where the store does not say how it ended.
    fn lost(&self, last: Last) -> Last {
        match last {
            Last::Failed(_) => last,
            Last::Concluded { .. } | Last::Cancelled => Last::Failed(lost().response_error()),
        }
    }

    /// Writes frames to the store when they are old or many.
    fn poll_flush(&mut self, context: &mut Context<'_>) {
        loop {
            let Some(recorder) = &mut self.run.recorder else { return };
            let due = self.last_flushed.elapsed() >= recorder.flush_after;
            let Poll::Ready(written) = recorder.poll_flush(due, context) else { return };
            self.last_flushed = Instant::now();
            match written {
                Ok(Written::Kept) => {}
                Ok(Written::Lost) => return self.fail(&lost()),
                Err(error) => return self.fail(&Fault::from(error)),
            }
        }
    }

    /// Looks at the clock: the alarm is set again only when it has rung, not for every frame.
    fn poll_alarm(&mut self, context: &mut Context<'_>) {
        while self.alarm.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= self.run.deadline {
                let fault = self.run.past_deadline();
                return self.fail(&fault);
            }
            if now >= self.last_sent + self.run.keepalive {
                self.run.emitter.keepalive();
                self.last_sent = now;
            }
            self.alarm.as_mut().reset(next_alarm(&self.run, self.last_sent));
        }
    }

    /// Sees to everything that may have happened beside what the model says.
    fn poll_others(&mut self, context: &mut Context<'_>) {
        self.poll_alarm(context);
        if matches!(self.stage, Stage::Running) {
            self.poll_over(context);
        }
        if matches!(self.stage, Stage::Running) {
            self.poll_flush(context);
        }
    }

    /// Whether more of a burst may arrive in a moment. Tools do not come in bursts.
    fn may_gather(&self) -> bool {
        let in_burst = self.last_said.is_some_and(|said| said.elapsed() < SOON);
        in_burst && self.yields < YIELDS && matches!(self.run.now, Now::Model(_))
    }

    fn poll_over(&mut self, context: &mut Context<'_>) {
        // The background task hands the turn over instead.
        if self.is_fresh() {
            return;
        }
        let rung = self.run.place.is_over() || *self.stopped.borrow();
        if !rung && self.over_wakes.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return;
        }
        match self.over.as_mut().poll(context) {
            Poll::Ready(fault) => self.fail(&fault),
            Poll::Pending => self.over_wakes = Some(context.waker().clone()),
        }
    }

    fn poll_model(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let fault = std::task::ready!(self.run.poll_news(context)).err();
        match fault {
            Some(fault) => self.fail(&fault),
            None if self.run.emitter.is_finished() => self.conclude(),
            None => {}
        }
        Poll::Ready(())
    }
}

/// Says why the turn has to end, once it has to.
async fn ended_from_outside(place: impl Future<Output = Fault>, mut stopped: watch::Receiver<bool>) -> Fault {
    tokio::select! {
        fault = place => fault,
        () = stop(&mut stopped) => lost(),
    }
}

/// The next moment at which something is due.
fn next_alarm(run: &Run, last_sent: Instant) -> Instant {
    let due = (last_sent + run.keepalive).min(run.deadline);
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
                Stage::Over => {
                    return match this.run.emitter.has_frames() {
                        true => {
                            this.run.log();
                            this.send()
                        }
                        false => Poll::Ready(None),
                    };
                }
            }
            if this.run.emitter.frames_len() >= FLUSH_BYTES {
                // A model that is never silent never lets the alarm have its turn.
                if Instant::now() >= this.run.deadline {
                    let fault = this.run.past_deadline();
                    this.fail(&fault);
                    continue;
                }
                // Nor the store.
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
            // Output that comes alone leaves at once.
            if !this.may_gather() {
                return this.send();
            }
            this.yields += 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
    }
}
