//! The body of an answer: events as they come, or the whole of it, bounded in time and size.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use amalgam_core::{CallRecorder, Delivery, ModelError, ModelEvent, ModelStream};
use amalgam_protocol::{Frame, Reader};
use bytes::Bytes;
use futures_core::Stream;
use tokio::time::{Instant, Sleep};

use crate::decode::Decode;

use super::{
    breaker::Permit,
    exchange::{Arrived, Body},
    head::Head,
    refusal::{Secrets, explanation},
};

/// The largest answer that is read as a whole.
const WHOLE_BYTES: usize = 32 * 1024 * 1024;
/// The longest line of an event stream.
const LINE_BYTES: usize = 4 * 1024 * 1024;
/// The most that one event stream may send.
const STREAM_BYTES: u64 = 256 * 1024 * 1024;
/// What may follow the last event, and how long we wait for it, so that the connection can be used again.
const TAIL_BYTES: usize = 64 * 1024;
const TAIL_TIME: Duration = Duration::from_secs(1);

/// How an answer is read, and for whom.
pub(super) struct Reading<'a> {
    pub(super) idle_timeout: Duration,
    pub(super) permit: Permit,
    pub(super) secrets: &'a Secrets,
    /// Who wants to know exactly what comes.
    pub(super) recorder: Option<&'a CallRecorder>,
}

/// Reads an answer that has begun as it really came; `body` is the rest of one that comes in events.
pub(super) fn read<D: Decode>(
    begun: Result<Begun, ModelError>,
    body: Body,
    mut decoder: D,
    Reading { idle_timeout, permit, secrets, recorder }: Reading<'_>,
) -> Result<ModelStream, ModelError> {
    let body = match begun {
        Ok(Begun::Whole(whole)) => whole,
        Ok(Begun::Events { first }) => {
            let silence = Silence::new(idle_timeout);
            return Ok(Box::pin(Answer {
                body: Some(body),
                first,
                reader: Reader::new(LINE_BYTES),
                decoder,
                silence,
                received: 0,
                permit: Some(permit),
                error: None,
                secrets: secrets.clone(),
                keeps_last: recorder.is_some_and(CallRecorder::keeps_last),
                recorder: recorder.cloned(),
            }));
        }
        Err(error) => {
            permit.conclude(Some(&error));
            return Err(error);
        }
    };
    if let Some(recorder) = recorder {
        recorder.whole(&body);
    }
    let mut events = Vec::new();
    let decoded = decoder.whole(body, &mut events);
    permit.conclude(decoded.as_ref().err());
    decoded.map_err(|error| secrets.clean_error(error))?;
    secrets.clean_events(&mut events);
    Ok(Box::pin(Once(Some(events))))
}

/// An answer that has begun.
pub(super) enum Begun {
    /// It comes in events, of which these bytes are here.
    Events { first: Vec<u8> },
    /// It is here, all of it.
    Whole(Bytes),
}

/// Tells an event stream from a whole answer: by the content type, and by the first character where that is not clear.
pub(super) async fn begin(
    head: &Head,
    body: &mut Body,
    delivery: Delivery,
    idle_timeout: Duration,
    recorder: Option<&CallRecorder>,
) -> Result<Begun, ModelError> {
    let coding = head.get("content-encoding").unwrap_or_default();
    if !(coding.is_empty() || coding.eq_ignore_ascii_case("identity")) {
        return Err(ModelError::Unreadable(format!("an answer coded as `{coding}`, which was not asked for")));
    }
    let content_type = head.get("content-type").unwrap_or_default();
    let is = |kind: &str| content_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind));
    if is("text/html") {
        return Err(page(body, Vec::new(), idle_timeout, recorder).await);
    }
    if is("text/event-stream") {
        return Ok(Begun::Events { first: Vec::new() });
    }
    if delivery == Delivery::Whole {
        // Some servers send the head at once, and everything else when the model is done.
        let mut first = Vec::new();
        if !body.is_over() {
            poll_fn(|context| body.poll_fill(context, &mut first)).await.map_err(|_broken| ModelError::CutShort)?;
        }
        first.reserve_exact(usize::try_from(body.left().unwrap_or_default()).unwrap_or_default().min(WHOLE_BYTES));
        return whole(body, first, idle_timeout).await.map(Begun::Whole);
    }
    let mut first = Vec::new();
    while first.trim_ascii().is_empty() {
        first.clear();
        if piece(body, &mut first, idle_timeout).await? == Arrived::End {
            return Err(ModelError::Unreadable("an empty answer".to_owned()));
        }
    }
    match first.trim_ascii_start().first() {
        Some(b'{' | b'[') => whole(body, first, idle_timeout).await.map(Begun::Whole),
        Some(b'<') => Err(page(body, first, idle_timeout, recorder).await),
        _ => Ok(Begun::Events { first }),
    }
}

/// What a page instead of an answer means; its text is kept, `first` of it is here.
async fn page(body: &mut Body, first: Vec<u8>, idle_timeout: Duration, recorder: Option<&CallRecorder>) -> ModelError {
    if let Some(recorder) = recorder {
        // In a box: few answers are pages.
        recorder.record(&Box::pin(explanation(body, first, idle_timeout)).await);
    }
    ModelError::Unreadable("an HTML page".to_owned())
}

/// The whole body, of which `bytes` are here.
pub(super) async fn whole(body: &mut Body, mut bytes: Vec<u8>, idle_timeout: Duration) -> Result<Bytes, ModelError> {
    let too_large = || ModelError::TooLarge(format!("an answer of more than {WHOLE_BYTES} bytes"));
    // What the head says bounds what is read, and room is made only for what the bound allows.
    let left = usize::try_from(body.left().unwrap_or_default()).unwrap_or(usize::MAX);
    if bytes.len().saturating_add(left) > WHOLE_BYTES {
        return Err(too_large());
    }
    while !body.is_over() {
        let begun = !bytes.is_empty();
        if piece(body, &mut bytes, idle_timeout).await? == Arrived::End {
            break;
        }
        if bytes.len() > WHOLE_BYTES {
            return Err(too_large());
        }
        if !begun {
            // Most bodies come in one piece and need no more room than that.
            bytes.reserve_exact(usize::try_from(body.left().unwrap_or_default()).unwrap_or_default());
        }
    }
    Ok(bytes.into())
}

/// Appends the next piece.
async fn piece(body: &mut Body, bytes: &mut Vec<u8>, idle_timeout: Duration) -> Result<Arrived, ModelError> {
    let next = poll_fn(|context| body.poll_fill(context, bytes));
    match tokio::time::timeout(idle_timeout, next).await {
        Ok(arrived) => arrived.map_err(|_broken| ModelError::CutShort),
        Err(_elapsed) => Err(ModelError::Silent(idle_timeout)),
    }
}

/// A whole answer as a stream of one batch.
struct Once(Option<Vec<ModelEvent>>);

impl Stream for Once {
    type Item = Result<Vec<ModelEvent>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// An answer that is read as it comes: one batch of events for each piece of the network.
struct Answer<D> {
    /// Taken when nothing more is read from it.
    body: Option<Body>,
    /// A piece that was read before the stream began.
    first: Vec<u8>,
    reader: Reader,
    decoder: D,
    silence: Silence,
    received: u64,
    /// Taken when it is known how the answer went.
    permit: Option<Permit>,
    /// Waits behind the events that came before it.
    error: Option<ModelError>,
    secrets: Secrets,
    /// Who wants to know exactly what comes.
    recorder: Option<CallRecorder>,
    /// Whether that is so for the event that ends the stream, too.
    keeps_last: bool,
}

impl<D: Decode> Answer<D> {
    fn piece(&mut self, piece: Vec<u8>, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.received += piece.len() as u64;
        if self.received > STREAM_BYTES {
            return Err(ModelError::TooLarge(format!("a stream of more than {STREAM_BYTES} bytes")));
        }
        if let Some(recorder) = &self.recorder {
            recorder.record(&piece);
        }
        // A burst brings an event every few hundred bytes.
        events.reserve(piece.len() / 256);
        self.reader.push(piece.into());
        while let Some(frame) = self.reader.frame().map_err(|error| ModelError::TooLarge(error.to_string()))? {
            self.frame(frame, events)?;
            if is_over(events) {
                break;
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: Frame, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        let data = self.keeps_last.then(|| frame.data.clone());
        let decoded = self.decoder.frame(frame, events);
        if let (Some(data), Some(recorder)) = (data, &self.recorder)
            && (decoded.is_err() || is_over(events))
        {
            recorder.last(data);
        }
        decoded
    }

    /// The body is over: what no blank line has ended counts too.
    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        while let Some(frame) = self.reader.end() {
            self.frame(frame, events)?;
            if is_over(events) {
                return Ok(());
            }
        }
        self.decoder.end(events)?;
        match is_over(events) {
            true => Ok(()),
            false => Err(ModelError::CutShort),
        }
    }

    /// The connection broke off. An answer whose last event had arrived by then is complete, also without what ends the body.
    fn broken(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        while let Some(frame) = self.reader.end() {
            // Half an event is none.
            if self.decoder.frame(frame, events).is_err() {
                break;
            }
        }
        match is_over(events) {
            true => Ok(()),
            false => Err(ModelError::CutShort),
        }
    }

    /// Notes what a step brought: the end, an error, or neither.
    fn settle(&mut self, stepped: Result<(), ModelError>, events: &mut [ModelEvent]) {
        match stepped {
            Err(error) => {
                self.conclude(Some(&error));
                self.body = None;
                self.error = Some(self.secrets.clean_error(error));
            }
            Ok(()) if is_over(events) => {
                self.conclude(None);
                self.secrets.clean_events(events);
                if let Some(body) = self.body.take() {
                    drain(body);
                }
            }
            Ok(()) => {}
        }
    }

    fn conclude(&mut self, error: Option<&ModelError>) {
        if let Some(permit) = self.permit.take() {
            permit.conclude(error);
        }
    }
}

fn is_over(events: &[ModelEvent]) -> bool {
    matches!(events.last(), Some(ModelEvent::Finish(_)))
}

/// Reads what follows the last event, usually `[DONE]` and the end of the last chunk, so that the connection is used
/// again. Usually it has arrived already; if not, the connection is closed without waiting.
fn drain(mut body: Body) {
    let mut rest = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(read) = body.poll_fill(&mut context, &mut rest) {
        if !matches!(read, Ok(Arrived::Some)) || rest.len() > TAIL_BYTES {
            return;
        }
    }
    body.pool().later(async move {
        let read = async {
            while rest.len() <= TAIL_BYTES {
                let Ok(Arrived::Some) = piece(&mut body, &mut rest, TAIL_TIME).await else { return };
            }
        };
        let _ = tokio::time::timeout(TAIL_TIME, read).await;
    });
}

impl<D: Decode> Stream for Answer<D> {
    type Item = Result<Vec<ModelEvent>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut events = Vec::new();
        loop {
            if let Some(error) = this.error.take() {
                return Poll::Ready(Some(Err(error)));
            }
            let Some(body) = &mut this.body else { return Poll::Ready(None) };
            let mut piece = std::mem::take(&mut this.first);
            let arrived = match piece.is_empty() {
                true => body.poll_fill(cx, &mut piece),
                false => Poll::Ready(Ok(Arrived::Some)),
            };
            let stepped = match arrived {
                Poll::Pending => {
                    let silent = ready!(this.silence.poll(cx));
                    Err(ModelError::Silent(silent))
                }
                Poll::Ready(Ok(Arrived::Some)) => {
                    this.silence.broken();
                    this.piece(piece, &mut events)
                }
                Poll::Ready(Ok(Arrived::End)) => this.end(&mut events),
                Poll::Ready(Err(_broken)) => this.broken(&mut events),
            };
            this.settle(stepped, &mut events);
            if !events.is_empty() {
                return Poll::Ready(Some(Ok(events)));
            }
        }
    }
}

/// Notices a long silence. The timer is not set anew for each piece: when it rings, it looks at the last one.
struct Silence {
    limit: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { limit, since: Instant::now(), timer: Box::pin(tokio::time::sleep(limit)) }
    }

    fn broken(&mut self) {
        self.since = Instant::now();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let due = self.since + self.limit;
            if due <= Instant::now() {
                return Poll::Ready(self.limit);
            }
            self.timer.as_mut().reset(due);
        }
    }
}
