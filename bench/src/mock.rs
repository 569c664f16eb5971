//! `mock`: a model provider that costs next to nothing and always says the same.
//!
//! The body's `stream` chooses JSON or events, the model name chooses the pace: `paced` sends 50 tokens a second,
//! `slow` two, everything else sends the whole stream at once. Every frame leaves as a write of its own, because
//! that is how providers send tokens and it is what a server has to cope with. Requests that do not have the
//! shape of their API are refused, so a server under test cannot win by sending nonsense. `GET /received-bytes` returns how many
//! bytes of requests there were so far.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answers::{self, Script, StreamUsage};
use crate::args::Args;
use crate::serve::Listen;

/// The model names that the mock lists; it answers to any other name too.
pub(crate) const MODELS: [&str; 4] = ["plain", "burst", "paced", "slow"];

type Answer = Response<Either<Full<Bytes>, Streamed>>;

pub(crate) async fn run(mut args: Args) -> anyhow::Result<()> {
    let listen = Listen::from_args(&mut args)?;
    args.finish()?;
    let mock = Arc::new(Mock::new());
    listen.serve("mock", move |request| answer(Arc::clone(&mock), request)).await
}

/// Everything it can say, rendered once.
pub(crate) struct Mock {
    chat: Bytes,
    chat_stream: Arc<Script>,
    chat_stream_with_usage: Arc<Script>,
    response: Bytes,
    response_stream: Arc<Script>,
    message: Bytes,
    message_stream: Arc<Script>,
    models: Bytes,
    /// Bytes of request bodies.
    received_bytes: AtomicU64,
}

impl Mock {
    pub(crate) fn new() -> Self {
        Self {
            chat: answers::chat_completion(),
            chat_stream: Arc::new(answers::chat_script(StreamUsage::Absent)),
            chat_stream_with_usage: Arc::new(answers::chat_script(StreamUsage::Included)),
            response: answers::response(),
            response_stream: Arc::new(answers::response_script()),
            message: answers::message_whole(),
            message_stream: Arc::new(answers::message_script()),
            models: answers::models(&MODELS),
            received_bytes: AtomicU64::new(0),
        }
    }
}

/// What the mock looks at in a request. The rest of the body has to be JSON and is skipped.
#[derive(Deserialize)]
struct ModelRequest {
    model: String,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    messages: Option<Vec<IgnoredAny>>,
    input: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

pub(crate) async fn answer(mock: Arc<Mock>, request: Request<Incoming>) -> Answer {
    let (head, body) = request.into_parts();
    match (head.method, head.uri.path()) {
        (Method::GET, "/v1/models") => return json(StatusCode::OK, mock.models.clone()),
        (Method::GET, "/received-bytes") => {
            return json(StatusCode::OK, Bytes::from(mock.received_bytes.load(Ordering::Relaxed).to_string()));
        }
        (Method::POST, "/v1/chat/completions" | "/v1/messages" | "/v1/responses") => {}
        (_, path) => return refused(StatusCode::NOT_FOUND, &format!("nothing at {path}")),
    }
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return refused(StatusCode::BAD_REQUEST, &format!("the body broke off: {error}")),
    };
    mock.received_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    let request: ModelRequest = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return refused(StatusCode::BAD_REQUEST, &format!("not a request: {error}")),
    };
    if head.uri.path() == "/v1/responses" {
        match (request.input.is_some(), request.stream) {
            (false, _) => refused(StatusCode::BAD_REQUEST, "missing `input`"),
            (true, false) => json(StatusCode::OK, mock.response.clone()),
            (true, true) => events(&mock.response_stream, &request.model),
        }
    } else {
        if request.messages.is_none_or(|messages| messages.is_empty()) {
            return refused(StatusCode::BAD_REQUEST, "missing `messages`");
        }
        if head.uri.path() == "/v1/messages" {
            return match request.stream {
                false => json(StatusCode::OK, mock.message.clone()),
                true => events(&mock.message_stream, &request.model),
            };
        }
        let usage_wanted = request.stream_options.is_some_and(|options| options.include_usage);
        match (request.stream, usage_wanted) {
            (false, _) => json(StatusCode::OK, mock.chat.clone()),
            (true, true) => events(&mock.chat_stream_with_usage, &request.model),
            (true, false) => events(&mock.chat_stream, &request.model),
        }
    }
}

fn json(status: StatusCode, body: Bytes) -> Answer {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(status: StatusCode, message: &str) -> Answer {
    let message = answers::quoted(message);
    let body =
        format!(r#"{{"error":{{"message":{message},"type":"invalid_request_error","param":null,"code":null}}}}"#);
    json(status, Bytes::from(body))
}

fn events(script: &Arc<Script>, model: &str) -> Answer {
    let pace = match model {
        "paced" => Some(Duration::from_millis(20)),
        "slow" => Some(Duration::from_millis(500)),
        _ => None,
    };
    let mut response = Response::new(Either::Right(Streamed::new(Arc::clone(script), pace)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// A script as a response body.
pub(crate) struct Streamed {
    script: Arc<Script>,
    position: usize,
    /// hyper gathers frames for as long as the body has one ready, and writes when it has none. Being not ready
    /// once before every frame makes each of them a write of its own.
    rested: bool,
    pace: Option<Pace>,
}

struct Pace {
    gap: Duration,
    started_at: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Streamed {
    fn new(script: Arc<Script>, gap: Option<Duration>) -> Self {
        let pace = gap.map(|gap| {
            let started_at = Instant::now();
            Pace { gap, started_at, timer: Box::pin(sleep_until(started_at)) }
        });
        Self { script, position: 0, rested: true, pace }
    }
}

impl Pace {
    /// When a frame may leave: tokens on a fixed grid, so that a late one does not delay the rest of the stream.
    fn due(&self, script: &Script, position: usize) -> Instant {
        let token = position.saturating_sub(script.lead.len()).min(script.tokens.len().saturating_sub(1));
        self.started_at + self.gap * u32::try_from(token).expect("a script has a few hundred frames")
    }
}

impl Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = &mut *self;
        let Some(frame) = this.script.frame(this.position).cloned() else { return Poll::Ready(None) };
        if !this.rested {
            this.rested = true;
            if let Some(pace) = &mut this.pace {
                let due = pace.due(&this.script, this.position);
                if due > pace.timer.deadline() {
                    pace.timer.as_mut().reset(due);
                }
            }
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(pace) = &mut this.pace {
            ready!(pace.timer.as_mut().poll(context));
        }
        this.rested = false;
        this.position += 1;
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.position >= self.script.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_paced_stream_sit_on_a_fixed_grid() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let script = Arc::new(answers::response_script());
            let body = Streamed::new(Arc::clone(&script), Some(Duration::from_millis(20)));
            let pace = body.pace.unwrap();
            let offset = |position| (pace.due(&script, position) - pace.started_at).as_millis();

            assert_eq!(offset(0), 0);
            assert_eq!(offset(script.lead.len()), 0);
            assert_eq!(offset(script.lead.len() + 3), 60);
            assert_eq!(offset(script.len() - 1), 99 * 20);
        });
    }

    #[test]
    fn a_burst_is_never_ready_twice_in_a_row() {
        let script = Arc::new(answers::chat_script(StreamUsage::Included));
        let mut body = Streamed::new(Arc::clone(&script), None);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut frames = 0;

        while !body.is_end_stream() {
            assert!(Pin::new(&mut body).poll_frame(&mut context).is_ready());
            frames += 1;
            if !body.is_end_stream() {
                assert!(Pin::new(&mut body).poll_frame(&mut context).is_pending());
            }
        }

        assert_eq!(frames, script.len());
    }
}
