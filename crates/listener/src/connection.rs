//! Serves one connection, from its first byte to a close that the client can read.

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
    sync::watch,
    time::timeout,
};
use tower::Service;
use tracing::debug;

use super::ListenerConfig;
use super::client_stream::ClientStream;
use super::connection_limits::Activity;
use super::key_connections::ConnectionKey;
use super::refusal_meter::{RefusalMeter, RefusalReason};
use super::reply::Refusal;
use super::socket::{AcceptedSocket, ClientSocket};
use super::switch::{Switch, Switched};

/// How long a refused client may keep sending before the socket is closed.
const LINGER: Duration = Duration::from_secs(2);
/// How many of these bytes are discarded.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// The maximum buffer of a connection in either direction, and so the maximum size of a read. A body that fits arrives
/// as one chunk and is not copied; a client that does not read costs no more than this.
const BUFFER_BYTES: usize = 128 * 1024;

/// The timeouts of a connection beyond the limit: for its handshake and for requesting a health check, and for the check.
const CHECK_START_TIMEOUT: Duration = Duration::from_secs(1);
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The health routes, which are served even beyond the connection limit.
const CHECKS: [&[u8]; 4] = [b"GET /healthz ", b"GET /readyz ", b"HEAD /healthz ", b"HEAD /readyz "];

/// Smaller responses are in the socket soon; for larger ones the end is recorded.
const LONG_ANSWER: u64 = 64 * 1024;

/// The client, in the extensions of every request.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The key that the connection counts for.
    pub key: ConnectionKey,
}

/// The state that all connections share.
pub(super) struct Connections<S> {
    http: http1::Builder,
    service: S,
    max_head_bytes: usize,
    handshake_timeout: Duration,
    write_timeout: Duration,
    draining: watch::Receiver<bool>,
    refusals: RefusalMeter,
}

impl<S: HttpService> Connections<S> {
    pub(super) fn new(service: S, config: &ListenerConfig, draining: watch::Receiver<bool>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(config.header_timeout)
            .max_header_size(config.max_head_bytes)
            .max_buf_size(BUFFER_BYTES.max(config.max_head_bytes));
        Self {
            http,
            service,
            max_head_bytes: config.max_head_bytes,
            handshake_timeout: config.header_timeout,
            write_timeout: config.write_timeout,
            draining,
            refusals: config.refusals.clone(),
        }
    }

    /// Serves one client until it disconnects, times out, or the server drains.
    pub(super) async fn run(self: Arc<Self>, accepted: AcceptedSocket, peer: SocketAddr, activity: Arc<Activity>) {
        let mut draining = self.draining.clone();
        let established = tokio::select! {
            biased;
            established = timeout(self.handshake_timeout, accepted.establish()) => established,
            // Nothing was requested yet.
            () = drain_begins(&mut draining) => return,
        };
        match established {
            Ok(Ok(stream)) => {
                let socket = ClientStream::new(stream, self.write_timeout, self.max_head_bytes);
                self.serve(socket, peer, activity).await;
            }
            Ok(Err(error)) => self.refusals.refused(RefusalReason::Tls, peer, Some(error.to_string())),
            Err(_) => self.refusals.refused(RefusalReason::Tls, peer, Some("not finished in time".to_owned())),
        }
    }

    /// Serves the requests of a connection.
    async fn serve(self: Arc<Self>, socket: ClientStream, peer: SocketAddr, activity: Arc<Activity>) {
        let exchange = Arc::new(Exchange::new(activity));
        let client = Peer { address: peer, key: ConnectionKey::default() };
        let handler = Handler { service: self.service.clone(), peer: client, exchange: Arc::clone(&exchange) };
        let mut connection = self.http.serve_connection(TokioIo::new(socket), handler);

        let mut draining = self.draining.clone();
        let ended = tokio::select! {
            biased;
            ended = &mut connection => Some(ended),
            () = drain_begins(&mut draining) => None,
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
        if refused {
            // hyper has answered a bad head itself.
            self.refusals.refused(RefusalReason::BadHead, peer, ended.as_ref().err().map(ToString::to_string));
        }
        if let Err(error) = &ended {
            debug!(%peer, %error, "connection ended early");
            let half_a_head = !parts.read_buf.is_empty();
            // hyper answers most bad heads itself (`client_stream` gives those a body). These it only reports, and it
            // does so between two requests, unless the last response is still in the socket.
            let refusal = if refused || socket.is_stuck() {
                None
            } else if error.is_timeout() && half_a_head {
                Some(Refusal::HeadTimeout)
            } else if error.is_parse() || error.is_incomplete_message() && half_a_head && !exchange.has_request() {
                Some(Refusal::BadHead)
            } else {
                None
            };
            if let Some(refusal) = refusal {
                self.refusals.refused(refusal.into(), peer, Some(error.to_string()));
                refused = socket.get_mut().write_all(&refusal.bytes(self.max_head_bytes)).await.is_ok();
            }
        }
        if refused || ended.is_ok() && exchange.body_is_unread() {
            linger(socket.get_mut()).await;
        }
    }

    /// Serves a connection beyond the limit: a health check, or a refusal.
    pub(super) async fn check_or_refuse(self: Arc<Self>, accepted: AcceptedSocket, peer: SocketAddr, refusal: Refusal) {
        let Ok(Ok(mut stream)) = timeout(CHECK_START_TIMEOUT, accepted.establish()).await else { return };
        match timeout(CHECK_START_TIMEOUT, beginning_of_check(&mut stream)).await {
            Ok(Some(beginning)) => {
                let socket = ClientStream::new(stream, self.write_timeout, self.max_head_bytes);
                let serving = self.serve(socket.beginning_with(beginning), peer, Arc::new(Activity::new()));
                // A longer connection wants more than a health check.
                let _ = timeout(CHECK_TIMEOUT, serving).await;
            }
            Ok(None) | Err(_) => answer_refusal(stream, refusal, self.max_head_bytes).await,
        }
    }
}

/// The first bytes of a connection that requests a health check; none for any other.
async fn beginning_of_check(stream: &mut ClientSocket) -> Option<Vec<u8>> {
    let mut beginning = Vec::with_capacity(64);
    loop {
        if stream.read_buf(&mut beginning).await.ok()? == 0 {
            return None;
        }
        if CHECKS.iter().any(|check| beginning.starts_with(check)) {
            return Some(beginning);
        }
        if !CHECKS.iter().any(|check| check.starts_with(&beginning)) {
            return None;
        }
    }
}

/// Waits for the drain to begin.
async fn drain_begins(draining: &mut watch::Receiver<bool>) {
    // The accept loop owns the sender, and ends all connections when it stops.
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Refuses a connection.
pub(super) async fn refuse(accepted: AcceptedSocket, refusal: Refusal, max_head_bytes: usize) {
    if let Ok(Ok(stream)) = timeout(CHECK_START_TIMEOUT, accepted.establish()).await {
        answer_refusal(stream, refusal, max_head_bytes).await;
    }
}

async fn answer_refusal(mut stream: ClientSocket, refusal: Refusal, max_head_bytes: usize) {
    let answer = async {
        stream.write_all(&refusal.bytes(max_head_bytes)).await?;
        stream.flush().await
    };
    // The response fits into an empty socket, so this does not wait for the client.
    if answer.await.is_ok() {
        linger(&mut stream).await;
    }
}

/// Closes the write side and reads on for a moment.
///
/// Closing a socket with unread bytes makes the system send a reset. The client's sending then fails, and most clients
/// never read the response after that: instead of a 413 or 431 they would see a broken connection.
pub async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let drained = async {
        stream.shutdown().await?;
        // On the heap: every connection's future would carry it.
        let mut discarded = vec![0; 4096];
        let mut total = 0;
        while total < LINGER_BYTES {
            match stream.read(&mut discarded).await? {
                0 => break,
                read => total += read,
            }
        }
        std::io::Result::Ok(())
    };
    // However this ends, the connection is closed.
    let _ = timeout(LINGER, drained).await;
}

/// What the end of a connection has to know about its requests.
struct Exchange {
    has_request: AtomicBool,
    body_unread: AtomicBool,
    switch: Switch,
    activity: Arc<Activity>,
}

// One task reads and writes the flags; they are atomics only because they are shared.
impl Exchange {
    fn new(activity: Arc<Activity>) -> Self {
        Self {
            has_request: AtomicBool::new(false),
            body_unread: AtomicBool::new(false),
            switch: Switch::default(),
            activity,
        }
    }

    fn begin(&self, body: &Incoming) {
        self.activity.begin();
        self.has_request.store(true, Ordering::Relaxed);
        self.body_unread.store(!http_body::Body::is_end_stream(body), Ordering::Relaxed);
    }

    fn has_request(&self) -> bool {
        self.has_request.load(Ordering::Relaxed)
    }

    fn body_is_unread(&self) -> bool {
        self.body_unread.load(Ordering::Relaxed)
    }

    fn body_ended(&self) {
        self.body_unread.store(false, Ordering::Relaxed);
    }
}

/// A service for requests: a router, or a wrapper around one. Always ready, and cheap to clone.
pub trait HttpService:
    Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + Unpin>
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> HttpService for S where
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

impl<S: HttpService> hyper::service::Service<Request<Incoming>> for Handler<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ExchangeFuture<S::Future>;

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
        let response_future = self.service.clone().call(Request::from_parts(parts, body));
        ExchangeFuture { response_future, exchange: Arc::clone(&self.exchange) }
    }
}

/// A pending response; records the end of its request.
struct ExchangeFuture<F> {
    response_future: F,
    exchange: Arc<Exchange>,
}

impl<F: Future<Output = Result<Response<Body>, Infallible>> + Unpin> Future for ExchangeFuture<F> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = match ready!(Pin::new(&mut self.response_future).poll(context)) {
            Ok(response) => response,
            Err(never) => match never {},
        };
        // From here on the connection speaks another protocol, and counts as busy until it closes.
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Poll::Ready(Ok(response));
        }
        let is_short = http_body::Body::size_hint(response.body()).upper().is_some_and(|max| max <= LONG_ANSWER);
        let end_on_drop = EndOnDrop(Arc::clone(&self.exchange.activity));
        Poll::Ready(Ok(match is_short {
            true => response,
            false => response.map(|body| Body::new(ResponseBody { body, _end: end_on_drop })),
        }))
    }
}

/// Records on drop that no request runs any more.
struct EndOnDrop(Arc<Activity>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A streamed response body.
struct ResponseBody {
    body: Body,
    _end: EndOnDrop,
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

/// A request body that records whether it was read to its end.
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
