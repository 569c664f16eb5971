//! One request and its answer over a connection that is used once.

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

/// The largest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most that is reserved on the other side's word about its length.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// Headers of the connection, which is ours, and those that hyper writes by what it sends.
pub(super) const NOT_THE_CALLERS: [HeaderName; 10] = [
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
    for name in NOT_THE_CALLERS {
        headers.remove(name);
    }
    headers.insert(header::HOST, target.host_header());
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    // A limit on bytes means little once they unpack into more.
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let agent = concat!("amalgam/", env!("CARGO_PKG_VERSION"));
    headers.entry(header::USER_AGENT).or_insert(HeaderValue::from_static(agent));

    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target.path.clone());
    *request.headers_mut() = headers;
    request
}

/// An answer whose head has arrived. Reading its pieces moves the connection; dropping it closes the connection.
pub(crate) struct Answer {
    /// Status and headers.
    pub(crate) head: Parts,
    body: Incoming,
    // Driven here, so that leaving this value ends the connection; there is no task that could outlive it.
    connection: Option<BoxFuture<'static, ()>>,
    // The connection lives as long as its sender exists.
    _sender: http1::SendRequest<Full<Bytes>>,
    // One of the requests under way, until this is dropped.
    _turn: OwnedSemaphorePermit,
    limit: usize,
    left: usize,
}

/// Sends the request; the answer's body may have at most `limit` bytes.
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
    // Its error reaches the answer too; what arrived before the end is still to be read.
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
    /// The next piece of the body; nothing at its end.
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

    /// The whole body.
    pub(crate) async fn collect(mut self) -> Result<Response<Bytes>, EgressError> {
        let stated = self.body.size_hint().lower() as usize;
        let mut whole = BytesMut::with_capacity(stated.min(MAX_TRUSTED_LENGTH));
        while let Some(piece) = self.piece().await? {
            whole.extend_from_slice(&piece);
        }
        Ok(Response::from_parts(self.head, whole.freeze()))
    }
}

/// Waits for `work` while the connection moves.
async fn driven<T>(connection: &mut Option<BoxFuture<'static, ()>>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    if let Some(moving) = connection {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = moving => {}
        }
        // A finished future is not asked again.
        *connection = None;
    }
    work.await
}

fn broken(error: hyper::Error) -> EgressError {
    EgressError::Broken(error.into())
}
