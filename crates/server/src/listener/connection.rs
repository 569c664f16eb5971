//! One connection, from its first byte to a close that the client can read.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    time::timeout,
};
use tower::Service;
use tracing::debug;

use super::ListenerConfig;
use super::client_stream::ClientStream;
use super::key_place::ConnectionKey;
use super::places::Activity;
use super::reply::Refusal;
use super::switch::{Switch, Switched};

/// How long a client that was refused may keep sending before the socket is closed under it.
const LINGER: Duration = Duration::from_secs(2);
/// How much of what it sends is thrown away meanwhile.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// The most that a connection buffers in either direction, and so the most that is read at once. A body that fits comes in
/// one piece and need not be put together; a client that does not read costs no more than this.
const BUFFER_BYTES: usize = 128 * 1024;

/// How long a connection that has no place may take to ask for a health check, and to be done with it.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);
const CHECK_TIME: Duration = Duration::from_secs(5);

/// The health routes: they are answered also when every connection slot is taken.
const CHECKS: [&[u8]; 4] = [b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz "];

/// Answers below this size are in the socket soon; of larger ones it is noted when they have left.
const LONG_ANSWER: u64 = 64 * 1024;

/// The client, found among the extensions of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The key that its connection counts for.
    pub key: ConnectionKey,
}

/// What all connections share.
pub(super) struct Connections<S> {
    http: http1::Builder,
    service: S,
    max_head_bytes: usize,
    write_timeout: Duration,
    draining: watch::Receiver<bool>,
}

impl<S: Serves> Connections<S> {
    pub(super) fn new(service: S, config: &ListenerConfig, draining: watch::Receiver<bool>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout)
            .max_header_size(config.max_head_bytes)
            .max_buf_size(BUFFER_BYTES.max(config.max_head_bytes));
        Self { http, service, max_head_bytes: config.max_head_bytes, write_timeout: config.write_timeout, draining }
    }

    /// Serves one client until it leaves, is let go, or the server drains.
    pub(super) async fn run(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, activity: Arc<Activity>) {
        // Without it a stream of small events waits for the client's acknowledgements. It fails only on a socket
        // that is already gone, which the first read will tell.
        let _ = stream.set_nodelay(true);
        let exchange = Arc::new(Exchange::new(activity));
        let socket = ClientStream::new(stream, self.write_timeout, self.max_head_bytes);
        let client = Peer { address: peer, key: ConnectionKey::default() };
        let handler = Handler { service: self.service.clone(), peer: client, exchange: Arc::clone(&exchange) };
        let mut connection = self.http.serve_connection(TokioIo::new(socket), handler);

        let mut draining = self.draining.clone();
        let ended = tokio::select! {
            biased;
            ended = &mut connection => Some(ended),
            () = told(&mut draining) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };

        let parts = connection.into_parts();
        let mut socket = parts.io.into_inner();
        if ended.is_ok()
            && let Some(successor) = exchange.switch.take()
        {
            let stream = socket.with_unread(parts.read_buf);
            return successor(Switched { stream, draining }).await;
        }
        let mut refused = socket.refused();
        if let Err(error) = &ended {
            debug!(%peer, %error, "connection ended early");
            let half_a_head = !parts.read_buf.is_empty();
            // hyper answers most bad heads itself (`client_stream` gives those a body). These it only reports, and it
            // does so between two exchanges, unless the last answer is still stuck in the socket.
            let refusal = if refused || socket.is_stuck() {
                None
            } else if error.is_timeout() && half_a_head {
                Some(Refusal::HeadTimeout)
            } else if error.is_parse() || error.is_incomplete_message() && half_a_head && !exchange.asked() {
                Some(Refusal::BadHead)
            } else {
                None
            };
            if let Some(refusal) = refusal {
                refused = socket.get_mut().write_all(&refusal.bytes(self.max_head_bytes)).await.is_ok();
            }
        }
        if refused || ended.is_ok() && exchange.body_is_unread() {
            linger(socket.get_mut()).await;
        }
    }

    /// Answers a connection that found no place: a health check, and everything else with a refusal.
    pub(super) async fn check_or_refuse(self: Arc<Self>, stream: TcpStream, peer: SocketAddr, refusal: Refusal) {
        match timeout(CHECK_PATIENCE, is_check(&stream)).await {
            Ok(true) => {
                // One that takes longer wants more than to know whether the server lives.
                let _ = timeout(CHECK_TIME, self.run(stream, peer, Arc::new(Activity::new()))).await;
            }
            Ok(false) | Err(_) => refuse(stream, refusal, self.max_head_bytes).await,
        }
    }
}

/// Whether a connection begins with a health check; nothing is taken from it.
async fn is_check(stream: &TcpStream) -> bool {
    let mut beginning = [0; 16];
    loop {
        let Ok(come @ 1..) = stream.peek(&mut beginning).await else { return false };
        let beginning = beginning.get(..come).unwrap_or_default();
        if CHECKS.iter().any(|check| beginning.starts_with(check)) {
            return true;
        }
        if !CHECKS.iter().any(|check| check.starts_with(beginning)) {
            return false;
        }
        // Half of it: peeking would come back with the same at once.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for the drain to begin.
async fn told(draining: &mut watch::Receiver<bool>) {
    // The sender lives as long as the accept loop, which ends all connections when it goes.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Answers a connection that is not served at all.
pub(super) async fn refuse(mut stream: TcpStream, refusal: Refusal, max_head_bytes: usize) {
    // The answer fits into an empty socket, so this does not wait for the client.
    if stream.write_all(&refusal.bytes(max_head_bytes)).await.is_ok() {
        linger(&mut stream).await;
    }
}

/// Closes our side and reads on for a moment.
///
/// A socket closed with bytes unread makes the system send a reset. The client's sending then fails, and most clients
/// never look at the answer after that: instead of 413 or 431 they would see a broken connection.
pub(crate) async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drained = async {
        stream.shutdown().await?;
        // Not inside the future: every connection would carry it for all of its life.
        let mut scrap = vec![0; 4096];
        let mut total = 0;
        while total < LINGER_BYTES {
            match stream.read(&mut scrap).await? {
                0 => break,
                read => total += read,
            }
        }
        std::io::Result::Ok(())
    };
    // Whether the client hung up, broke off or has to be left behind: the connection is over.
    let _ = timeout(LINGER, drained).await;
}

/// What the end of a connection has to know about its requests.
struct Exchange {
    asked: AtomicBool,
    body_unread: AtomicBool,
    switch: Switch,
    activity: Arc<Activity>,
}

// One task reads and writes the flags; atomics only because its parts are shared.
impl Exchange {
    fn new(activity: Arc<Activity>) -> Self {
        Self { asked: AtomicBool::new(false), body_unread: AtomicBool::new(false), switch: Switch::default(), activity }
    }

    fn begin(&self, body: &Incoming) {
        self.activity.begin();
        self.asked.store(true, Ordering::Relaxed);
        self.body_unread.store(!http_body::Body::is_end_stream(body), Ordering::Relaxed);
    }

    fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    fn body_is_unread(&self) -> bool {
        self.body_unread.load(Ordering::Relaxed)
    }

    fn body_ended(&self) {
        self.body_unread.store(false, Ordering::Relaxed);
    }
}

/// What a connection's requests are handed to: a router, or something around one. Always ready, and cheap to clone.
pub trait Serves:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + Unpin>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> Serves for S where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + Unpin>
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// The service as hyper calls it.
struct Handler<S> {
    service: S,
    peer: Peer,
    exchange: Arc<Exchange>,
}

impl<S: Serves> hyper::service::Service<Request<Incoming>> for Handler<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.exchange.begin(request.body());
        request.extensions_mut().insert(self.peer.clone());
        if request.headers().contains_key(header::UPGRADE) {
            request.extensions_mut().insert(self.exchange.switch.clone());
        }
        let (parts, incoming) = request.into_parts();
        let body = if http_body::Body::is_end_stream(&incoming) {
            Body::empty()
        } else {
            Body::new(RequestBody { incoming, exchange: Arc::clone(&self.exchange) })
        };
        let answering = self.service.clone().call(Request::from_parts(parts, body));
        Answering { answering, exchange: Arc::clone(&self.exchange) }
    }
}

/// An answer on its way; notes when the request is done with.
struct Answering<F> {
    answering: F,
    exchange: Arc<Exchange>,
}

impl<F: Future<Output = Result<Response<Body>, Infallible>> + Unpin> Future for Answering<F> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match ready!(Pin::new(&mut self.answering).poll(context)) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        // From here on the connection speaks another protocol, and is at work for as long as it lives.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Poll::Ready(Ok(response));
        }
        let is_short = http_body::Body::size_hint(response.body()).upper().is_some_and(|most| most <= LONG_ANSWER);
        let done = Done(Arc::clone(&self.exchange.activity));
        Poll::Ready(Ok(match is_short {
            true => response,
            false => response.map(|body| Body::new(ResponseBody { body, _done: done })),
        }))
    }
}

/// Notes when it is dropped that nothing runs any more.
struct Done(Arc<Activity>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A response body that takes time.
struct ResponseBody {
    body: Body,
    _done: Done,
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.body)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.body)
    }
}

/// A request body that remembers whether it was read to its end.
struct RequestBody {
    incoming: Incoming,
    exchange: Arc<Exchange>,
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        if frame.is_none() || self.incoming.is_end_stream() {
            self.exchange.body_ended();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
