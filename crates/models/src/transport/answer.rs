//! The body of an answer: an event stream or a whole document, bounded in time and size.

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
    exchange::{Body, BodyRead},
    head::Head,
    refusal::{Secrets, explanation},
};

/// The maximum size of a whole answer.
const WHOLE_BYTES: usize = 32 * 1024 * 1024;
/// The maximum length of a line in an event stream.
const LINE_BYTES: usize = 4 * 1024 * 1024;
/// The maximum size of an event stream.
const STREAM_BYTES: u64 = 256 * 1024 * 1024;
/// The maximum size and time of what follows the last event; it is read so that the connection can be reused.
const TAIL_BYTES: usize = 64 * 1024;
const TAIL_TIME: Duration = Duration::from_secs(1);

/// What reading an answer needs.
pub(super) struct AnswerReading<'a> {
    pub(super) idle_timeout: Duration,
    pub(super) permit: Permit,
    pub(super) secrets: &'a Secrets,
    /// Records the exact bytes of the answer.
    pub(super) recorder: Option<&'a CallRecorder>,
}

/// Decodes an answer that has start. For an event stream, `body` is the rest of it.
pub(super) fn read<D: Decode>(
    start: Result<AnswerStart, ModelError>,
    body: Body,
    mut decoder: D,
    AnswerReading { idle_timeout, permit, secrets, recorder }: AnswerReading<'_>,
) -> Result<ModelStream, ModelError> {
    let body = match start {
        Ok(AnswerStart::Whole(whole)) => whole,
        Ok(AnswerStart::Events { first }) => {
            let idle_timer = IdleTimer::new(idle_timeout);
            return Ok(Box::pin(Answer {
                body: Some(body),
                first,
                reader: Reader::new(LINE_BYTES),
                decoder,
                idle_timer,
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
    Ok(Box::pin(SingleBatch(Some(events))))
}

/// The beginning of an answer.
pub(super) enum AnswerStart {
    /// An event stream, of which these bytes have arrived.
    Events { first: Vec<u8> },
    /// A whole document.
    Whole(Bytes),
}

/// Distinguishes an event stream from a whole document: by the content type, or by the first character.
pub(super) async fn begin(
    head: &Head,
    body: &mut Body,
    delivery: Delivery,
    idle_timeout: Duration,
    recorder: Option<&CallRecorder>,
) -> Result<AnswerStart, ModelError> {
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
        return Ok(AnswerStart::Events { first: Vec::new() });
    }
    if delivery == Delivery::Whole {
        // No idle timeout for the first bytes: some servers send the head at once, and the body when the model is done.
        let mut first = Vec::new();
        if !body.is_over() {
            poll_fn(|context| body.poll_fill(context, &mut first)).await.map_err(|_broken| ModelError::CutShort)?;
        }
        first.reserve_exact(usize::try_from(body.left().unwrap_or_default()).unwrap_or_default().min(WHOLE_BYTES));
        return whole(body, first, idle_timeout).await.map(AnswerStart::Whole);
    }
    let mut first = Vec::new();
    while first.trim_ascii().is_empty() {
        first.clear();
        if piece(body, &mut first, idle_timeout).await? == BodyRead::End {
            return Err(ModelError::Unreadable("an empty answer".to_owned()));
        }
    }
    match first.trim_ascii_start().first() {
        Some(b'{' | b'[') => whole(body, first, idle_timeout).await.map(AnswerStart::Whole),
        Some(b'<') => Err(page(body, first, idle_timeout, recorder).await),
        _ => Ok(AnswerStart::Events { first }),
    }
}

/// The error of an HTML page in place of an answer. The page is recorded; `first` is its beginning.
async fn page(body: &mut Body, first: Vec<u8>, idle_timeout: Duration, recorder: Option<&CallRecorder>) -> ModelError {
    if let Some(recorder) = recorder {
        // Boxed, because pages are rare.
        recorder.record(&Box::pin(explanation(body, first, idle_timeout)).await);
    }
    ModelError::Unreadable("an HTML page".to_owned())
}

/// Reads the rest of a body that begins with `bytes`.
pub(super) async fn whole(body: &mut Body, mut bytes: Vec<u8>, idle_timeout: Duration) -> Result<Bytes, ModelError> {
    let too_large = || ModelError::TooLarge(format!("an answer of more than {WHOLE_BYTES} bytes"));
    // The declared length is checked before memory is reserved.
    let left = usize::try_from(body.left().unwrap_or_default()).unwrap_or(usize::MAX);
    if bytes.len().saturating_add(left) > WHOLE_BYTES {
        return Err(too_large());
    }
    while !body.is_over() {
        let has_bytes = !bytes.is_empty();
        if piece(body, &mut bytes, idle_timeout).await? == BodyRead::End {
            break;
        }
        if bytes.len() > WHOLE_BYTES {
            return Err(too_large());
        }
        if !has_bytes {
            // Most bodies arrive at once; a larger one gets exactly the memory that it needs.
            bytes.reserve_exact(usize::try_from(body.left().unwrap_or_default()).unwrap_or_default());
        }
    }
    Ok(bytes.into())
}

/// Appends the next bytes, within the idle timeout.
async fn piece(body: &mut Body, bytes: &mut Vec<u8>, idle_timeout: Duration) -> Result<BodyRead, ModelError> {
    let next = poll_fn(|context| body.poll_fill(context, bytes));
    match tokio::time::timeout(idle_timeout, next).await {
        Ok(arrived) => arrived.map_err(|_broken| ModelError::CutShort),
        Err(_elapsed) => Err(ModelError::Silent(idle_timeout)),
    }
}

/// A whole answer as a stream of one batch.
struct SingleBatch(Option<Vec<ModelEvent>>);

impl Stream for SingleBatch {
    type Item = Result<Vec<ModelEvent>, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// A streamed answer: one batch of events for each read.
struct Answer<D> {
    /// `None` when nothing more is read.
    body: Option<Body>,
    /// Bytes that were read before the stream began.
    first: Vec<u8>,
    reader: Reader,
    decoder: D,
    idle_timer: IdleTimer,
    received: u64,
    /// Taken when the result of the request is known.
    permit: Option<Permit>,
    /// Returned after the events before it.
    error: Option<ModelError>,
    secrets: Secrets,
    /// Records the exact bytes of the answer.
    recorder: Option<CallRecorder>,
    /// Whether the data of the final event is recorded too.
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
        // A burst has an event every few hundred bytes.
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

    /// Handles the end of the body. A last event without a blank line after it counts too.
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

    /// Handles a broken connection. The answer is complete if its final event has arrived, even if the body has not
    /// ended.
    fn on_disconnect(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        while let Some(frame) = self.reader.end() {
            // An incomplete event is ignored.
            if self.decoder.frame(frame, events).is_err() {
                break;
            }
        }
        match is_over(events) {
            true => Ok(()),
            false => Err(ModelError::CutShort),
        }
    }

    /// Handles the result of a read: the end, an error, or neither.
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

/// Reads what follows the last event, usually `[DONE]` and the last chunk, so that the connection can be reused. If it
/// has not arrived yet, a task waits for it for [`TAIL_TIME`].
fn drain(mut body: Body) {
    let mut rest = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(read) = body.poll_fill(&mut context, &mut rest) {
        if !matches!(read, Ok(BodyRead::Data)) || rest.len() > TAIL_BYTES {
            return;
        }
    }
    body.pool().spawn(async move {
        let read = async {
            while rest.len() <= TAIL_BYTES {
                let Ok(BodyRead::Data) = piece(&mut body, &mut rest, TAIL_TIME).await else { return };
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
                false => Poll::Ready(Ok(BodyRead::Data)),
            };
            let stepped = match arrived {
                Poll::Pending => {
                    let silent = ready!(this.idle_timer.poll(cx));
                    Err(ModelError::Silent(silent))
                }
                Poll::Ready(Ok(BodyRead::Data)) => {
                    this.idle_timer.reset();
                    this.piece(piece, &mut events)
                }
                Poll::Ready(Ok(BodyRead::End)) => this.end(&mut events),
                Poll::Ready(Err(_broken)) => this.on_disconnect(&mut events),
            };
            this.settle(stepped, &mut events);
            if !events.is_empty() {
                return Poll::Ready(Some(Ok(events)));
            }
        }
    }
}

/// The idle timeout. The timer is not reset for each read; when it fires, it compares the time of the last read.
struct IdleTimer {
    limit: Duration,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl IdleTimer {
    fn new(limit: Duration) -> Self {
        Self { limit, since: Instant::now(), timer: Box::pin(tokio::time::sleep(limit)) }
    }

    fn reset(&mut self) {
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
