//! The frames of a streamed response, as the caller's connection asks for them.
//!
//! The turn runs inside this stream: a caller that does not read makes the upstream wait, and one that leaves drops the
//! stream and with it the upstream call.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use amalgam_core::{BoxFuture, Fault, ModelError};
use amalgam_protocol::ErrorObject;
use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::warn;

use crate::run::Run;

/// Frames are handed on at this size even if more are ready: memory a stream stays small.
const FLUSH_BYTES: usize = 32 * 1024;

/// Frames that are ready within this time of each other are one burst: they leave together, in one write.
const SOON: Duration = Duration::from_millis(1);

/// The longest that a frame waits for others while news keep coming.
const LONGEST_WAIT: Duration = Duration::from_millis(2);

/// A streamed response.
pub struct Frames {
    run: Run,
    tell: fn(&Fault) -> ErrorObject,
    /// The next moment at which something is due: a sign of life or the deadline.
    alarm: Pin<Box<Sleep>>,
    last_sent: Instant,
    /// Since when frames are waiting.
    waiting_since: Option<Instant>,
    /// The turn of the scheduler that they wait for.
    turn: Option<Turn>,
    /// Comes when the process cannot wait for the turn any longer.
    over: BoxFuture<'static, Fault>,
    /// Who is woken by it: asked again only for another one.
    over_wakes: Option<Waker>,
    ended: bool,
}

impl Frames {
    pub(crate) fn new(mut run: Run, tell: fn(&Fault) -> ErrorObject) -> Self {
        run.emitter.begin();
        let now = Instant::now();
        let alarm = Box::pin(sleep_until((now + run.keepalive).min(run.deadline)));
        let over = run.place.over();
        Self { run, tell, alarm, last_sent: now, waiting_since: None, turn: None, over, over_wakes: None, ended: false }
    }

    fn send(&mut self) -> Poll<Option<Bytes>> {
        self.turn = None;
        self.waiting_since = None;
        self.last_sent = Instant::now();
        Poll::Ready(Some(self.run.emitter.take_frames().into()))
    }

    fn fail(&mut self, fault: &Fault) {
        warn!(
            response.id = self.run.response_id(),
            upstream = self.run.upstream(),
            kind = ?fault.kind,
            detail = fault.detail,
            "stream failed: {fault}",
        );
        self.run.emitter.fail((self.tell)(fault));
        self.ended = true;
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
            let next = (self.last_sent + self.run.keepalive).min(self.run.deadline);
            self.alarm.as_mut().reset(next);
        }
    }

    fn poll_over(&mut self, context: &mut Context<'_>) {
        let rung = self.run.place.is_over();
        if !rung && self.over_wakes.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return;
        }
        match self.over.as_mut().poll(context) {
            Poll::Ready(fault) => self.fail(&fault),
            Poll::Pending => self.over_wakes = Some(context.waker().clone()),
        }
    }

    fn poll_model(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let fault = match self.run.stream.as_mut().poll_next(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(batch))) => self.run.take(batch).err(),
            Poll::Ready(Some(Err(error))) => Some(error.into_fault()),
            Poll::Ready(None) => Some(ModelError::CutShort.into_fault()),
        };
        match fault {
            Some(fault) => self.fail(&fault),
            None if self.run.emitter.is_finished() => {
                self.run.emitter.conclude(self.run.clock.now_ms() / 1000);
                self.ended = true;
            }
            None => {}
        }
        Poll::Ready(())
    }
}

impl Stream for Frames {
    type Item = Bytes;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = self.get_mut();
        loop {
            if this.ended {
                return match this.run.emitter.has_frames() {
                    true => {
                        this.run.log();
                        this.send()
                    }
                    false => Poll::Ready(None),
                };
            }
            if this.run.emitter.frames_len() >= FLUSH_BYTES {
                // A model that is never silent never lets the alarm have its turn.
                if Instant::now() >= this.run.deadline {
                    let fault = this.run.past_deadline();
                    this.fail(&fault);
                    continue;
                }
                return this.send();
            }
            if this.poll_model(context).is_ready() {
                if let Some(turn) = &mut this.turn {
                    turn.news = true;
                }
                continue;
            }
            this.poll_alarm(context);
            if !this.ended {
                this.poll_over(context);
            }
            if this.ended {
                continue;
            }
            if !this.run.emitter.has_frames() {
                return Poll::Pending;
            }
            let now = Instant::now();
            let since = *this.waiting_since.get_or_insert(now);
            // A frame that comes alone leaves at once; one that comes soon after another is likely not to be the last.
            if now.duration_since(this.last_sent) >= SOON || now.duration_since(since) >= LONGEST_WAIT {
                return this.send();
            }
            match &mut this.turn {
                Some(turn) if turn.is_over() && !turn.news => return this.send(),
                Some(turn) if !turn.is_over() => turn.wake(context.waker()),
                _ => this.turn = Some(Turn::begin(context.waker())),
            }
            return Poll::Pending;
        }
    }
}

/// One turn of the scheduler: it is over when everybody else has run and the network was looked at. A connection may ask
/// for more frames several times in between; only the scheduler's own call counts.
struct Turn {
    bell: Arc<Bell>,
    /// Something came since it began.
    news: bool,
}

#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Turn {
    fn begin(waker: &Waker) -> Self {
        let turn = Self { bell: Arc::default(), news: false };
        turn.wake(waker);
        // The first look at this future asks the scheduler to call back at the end of its turn.
        let bell = Waker::from(Arc::clone(&turn.bell));
        let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&bell));
        turn
    }

    fn is_over(&self) -> bool {
        self.bell.rung.load(Ordering::Acquire)
    }

    /// Says who is to be woken at the end.
    fn wake(&self, waker: &Waker) {
        self.bell.set(Some(waker.clone()));
        // It may have rung just now.
        if self.is_over() {
            waker.wake_by_ref();
        }
    }
}

impl Bell {
    fn set(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.waker.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.store(true, Ordering::Release);
        if let Some(waker) = self.set(None) {
            waker.wake();
        }
    }
}
