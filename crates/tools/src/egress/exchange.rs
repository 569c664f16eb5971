//! One request and its answer on a connection that is used once.

use std::pin::pin;

use amalgam_core::BoxFuture;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header, response::Parts};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::OwnedSemaphorePermit,
};

use super::EgressError;
use super::target::Target;

/// The maximum size of the head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The maximum that is reserved for a declared length.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// Headers of the connection, and headers that hyper writes itself.
pub(super) const CONNECTION_HEADERS: [HeaderName; 10] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    header::ACCEPT_ENCODING,
];

pub(super) fn request(target: &Target, method: Method, mut headers: HeaderMap, body: Bytes) -> Request<Full<Bytes>> {
    for name in CONNECTION_HEADERS {
        headers.remove(name);
    }
    headers.insert(header::HOST, target.host_header());
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    // A limit of bytes would mean little for compressed content.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let agent = concat!("amalgam/", env!("CARGO_PKG_VERSION"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(agent));

    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target.path.clone());
    *request.headers_mut() = headers;
    request
}

/// An answer whose head has arrived. Reading the body drives the connection; dropping the answer closes it.
pub(crate) struct Answer {
    /// Status and headers.
    pub(crate) head: Parts,
    body: Incoming,
    // Driven here instead of in a task, so that dropping this value closes the connection.
    connection: Option<BoxFuture<'static, ()>>,
    // The connection lives as long as its sender.
    _sender: http1::SendRequest<Full<Bytes>>,
    // Counts as a request in progress until it is dropped.
    _turn: OwnedSemaphorePermit,
    limit: usize,
    left: usize,
}

/// Sends the request. The answer's body may have at most `limit` bytes.
pub(super) async fn open<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    limit: usize,
    turn: OwnedSemaphorePermit,
) -> Result<Answer, EgressError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    // The answer reports the connection's error too; what arrived before it must still be read.
    let mut connection: Option<BoxFuture<'static, ()>> = Some(Box::pin(async {
        let _ = connection.await;
    }));
    let response = driven(&mut connection, sender.send_request(request)).await.map_err(broken)?;
    let (head, body) = response.into_parts();
    if body.size_hint().lower() > limit as u64 {
        return Err(EgressError::TooLarge { limit });
    }
    Ok(Answer { head, body, connection, _sender: sender, _turn: turn, limit, left: limit })
}

impl Answer {
    /// The next piece of the body; `None` at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, EgressError> {
        loop {
            let Some(frame) = driven(&mut self.connection, self.body.frame()).await else { return Ok(None) };
            let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
            match self.left.checked_sub(piece.len()) {
                Some(left) => self.left = left,
                None => return Err(EgressError::TooLarge { limit: self.limit }),
            }
            return Ok(Some(piece));
        }
    }

    /// Reads the whole body.
    pub(crate) async fn collect(mut self) -> Result<Response<Bytes>, EgressError> {
        let stated = self.body.size_hint().lower() as usize;
        let mut whole = BytesMut::with_capacity(stated.min(MAX_TRUSTED_LENGTH));
        while let Some(piece) = self.piece().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(Response::from_parts(self.head, whole.freeze()))
    }
}

/// Waits for `work` while driving the connection.
async fn driven<T>(connection: &mut Option<BoxFuture<'static, ()>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Some(moving) = connection {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = moving => {}
        }
        // A finished future must not be polled again.
        *connection = None;
    }
    work.await
}

fn broken(error: hyper::Error) -> EgressError {
    EgressError::Broken(error.into())
}
