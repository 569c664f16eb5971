//! The body of an answer: events as they come, or the whole of it, bounded in time and size.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use amalgam_core::{Delivery, ModelError, ModelEvent, ModelStream, Prepared, Tap};
use amalgam_protocol::Reader;
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{
    Response,
    header::{CONTENT_ENCODING, CONTENT_TYPE},
};
use http_body::Body;
use hyper::{body::Incoming, rt::Executor};
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, Sleep};

use crate::decode::Decode;

use super::{breaker::Permit, refusal::Secrets};

/// The largest answer that is read as a whole.
const WHOLE_BYTES: usize = 32 * 1024 * 1024;
/// The longest line of an event stream.
const LINE_BYTES: usize = 4 * 1024 * 1024;
/// The most that one event stream may send.
const STREAM_BYTES: u64 = 256 * 1024 * 1024;
/// What may follow the last event, and how long we wait for it, so that the connection can be used again.
const TAIL_BYTES: usize = 64 * 1024;
const TAIL_TIME: Duration = Duration::from_secs(1);

/// Reads the answer as it was asked for, or as it really came.
pub(super) async fn read<D: Decode>(
    response: Response<Incoming>,
    prepared: &Prepared,
    idle_timeout: Duration,
    mut decoder: D,
    permit: Permit,
    secrets: Secrets,
) -> Result<ModelStream, ModelError> {
    let tap = prepared.note.tap.clone();
    let body = match begin(response, prepared.delivery, idle_timeout).await {
        Ok(Begun::Whole(body)) => body,
        Ok(Begun::Events { body, first }) => {
            return Ok(Box::pin(Answer { tap, ..Answer::new(body, first, idle_timeout, decoder, permit, secrets) }));
        }
        Err(error) => {
            permit.conclude(Some(&error));
            return Err(error);
        }
    };
    if let Some(tap) = tap {
        tap.hear(&body);
    }
    let mut events = Vec::new();
    let decoded = decoder.whole(body, &mut events);
    permit.conclude(decoded.as_ref().err());
    decoded.map_err(|error| secrets.clean_error(error))?;
    secrets.clean_events(&mut events);
    Ok(Box::pin(Once(Some(events))))
}

enum Begun {
    Events { body: Incoming, first: Bytes },
    Whole(Bytes),
}

/// Tells an event stream from a whole answer: by the content type, and by the first character where that is not clear.
async fn begin(response: Response<Incoming>, delivery: Delivery, idle_timeout: Duration) -> Result<Begun, ModelError> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let coding = header(CONTENT_ENCODING);
    if !(coding.is_empty() || coding.eq_ignore_ascii_case("identity")) {
        return Err(ModelError::Unreadable(format!("an answer coded as `{coding}`, which was not asked for")));
    }
    let content_type = header(CONTENT_TYPE).to_ascii_lowercase();
    let mut body = response.into_body();
    if content_type.starts_with("text/html") {
        return Err(ModelError::Unreadable("an HTML page".to_owned()));
    }
    if delivery == Delivery::Whole && !content_type.starts_with("text/event-stream") {
        return whole(&mut body, idle_timeout).await.map(Begun::Whole);
    }
    if content_type.starts_with("text/event-stream") {
        return Ok(Begun::Events { body, first: Bytes::new() });
    }
    let first = loop {
        match piece(&mut body, idle_timeout).await? {
            None => return Err(ModelError::Unreadable("an empty answer".to_owned())),
            Some(piece) if piece.trim_ascii().is_empty() => {}
            Some(piece) => break piece,
        }
    };
    match first.trim_ascii_start().first() {
        Some(b'{' | b'[') => whole_after(first, &mut body, idle_timeout).await.map(Begun::Whole),
        Some(b'<') => Err(ModelError::Unreadable("an HTML page".to_owned())),
        _ => Ok(Begun::Events { body, first }),
    }
}

/// The whole body.
pub(super) async fn whole(body: &mut Incoming, idle_timeout: Duration) -> Result<Bytes, ModelError> {
    match piece(body, idle_timeout).await? {
        Some(first) => whole_after(first, body, idle_timeout).await,
        None => Ok(Bytes::new()),
    }
}

/// The whole body, of which `first` is here. A body of one piece is not copied.
async fn whole_after(first: Bytes, body: &mut Incoming, idle_timeout: Duration) -> Result<Bytes, ModelError> {
    let too_large = || ModelError::TooLarge(format!("an answer of more than {WHOLE_BYTES} bytes"));
    // What the head says bounds what is read, and room is made only for what the bound allows.
    let left = body.size_hint().exact().unwrap_or_default();
    if u64::try_from(first.len()).unwrap_or(u64::MAX).saturating_add(left) > WHOLE_BYTES as u64 {
        return Err(too_large());
    }
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut bytes = BytesMut::with_capacity(first.len() + usize::try_from(left).unwrap_or_default());
    bytes.extend_from_slice(&first);
    while let Some(piece) = piece(body, idle_timeout).await? {
        if bytes.len() + piece.len() > WHOLE_BYTES {
            return Err(too_large());
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// The next piece, or nothing at the end.
async fn piece(body: &mut Incoming, idle_timeout: Duration) -> Result<Option<Bytes>, ModelError> {
    let next = async {
        loop {
            match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                None => return Ok(None),
                Some(Err(_broken)) => return Err(ModelError::CutShort),
                // Trailers are of no interest.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    };
    tokio::time::timeout(idle_timeout, next).await.map_err(|_elapsed| ModelError::Silent(idle_timeout))?
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
    body: Option<Incoming>,
    /// A piece that was read before the stream began.
    first: Bytes,
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
    tap: Option<Tap>,
}

impl<D: Decode> Answer<D> {
    fn new(body: Incoming, first: Bytes, idle_timeout: Duration, decoder: D, permit: Permit, secrets: Secrets) -> Self {
        Self {
            body: Some(body),
            first,
            reader: Reader::new(LINE_BYTES),
            decoder,
            silence: Silence::new(idle_timeout),
            received: 0,
            permit: Some(permit),
            error: None,
            secrets,
            tap: None,
        }
    }

    fn piece(&mut self, piece: Bytes, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        self.received += piece.len() as u64;
        if self.received > STREAM_BYTES {
            return Err(ModelError::TooLarge(format!("a stream of more than {STREAM_BYTES} bytes")));
        }
        if let Some(tap) = &self.tap {
            tap.hear(&piece);
        }
        self.reader.push(piece);
        while let Some(frame) = self.reader.frame().map_err(|error| ModelError::TooLarge(error.to_string()))? {
            self.decoder.frame(frame, events)?;
            if is_over(events) {
                break;
            }
        }
        Ok(())
    }

    /// The body is over: what no blank line has ended counts too.
    fn end(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError> {
        while let Some(frame) = self.reader.end() {
            self.decoder.frame(frame, events)?;
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

    /// Takes note of what a step brought: the end, an error, or neither.
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

/// Reads what follows the last event, usually `[DONE]` and the end of the last chunk, so that the connection goes back
/// to the pool. Nobody waits for it, and it is bounded like the pool's own tasks.
fn drain(mut body: Incoming) {
    if body.is_end_stream() || tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    TokioExecutor::new().execute(async move {
        let mut room = TAIL_BYTES;
        let rest = async {
            while let Ok(Some(piece)) = piece(&mut body, TAIL_TIME).await {
                match room.checked_sub(piece.len()) {
                    Some(left) => room = left,
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(TAIL_TIME, rest).await;
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
            let stepped = if this.first.is_empty() {
                match Pin::new(body).poll_frame(cx) {
                    Poll::Pending => {
                        let silent = ready!(this.silence.poll(cx));
                        Err(ModelError::Silent(silent))
                    }
                    Poll::Ready(None) => this.end(&mut events),
                    Poll::Ready(Some(Err(_broken))) => Err(ModelError::CutShort),
                    Poll::Ready(Some(Ok(frame))) => {
                        this.silence.broken();
                        match frame.into_data() {
                            Ok(piece) => this.piece(piece, &mut events),
                            Err(_trailers) => Ok(()),
                        }
                    }
                }
            } else {
                let first = std::mem::take(&mut this.first);
                this.piece(first, &mut events)
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
