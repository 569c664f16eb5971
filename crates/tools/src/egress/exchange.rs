//! One request and its answer over a connection that is used once.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::EgressError;
use super::target::Target;

/// The largest head of an answer.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The most that is reserved on the other side's word about its length.
const MAX_TRUSTED_LENGTH: usize = 1024 * 1024;

/// Headers of the connection, which is ours, and those that hyper writes by what it sends.
const NOT_THE_CALLERS: [HeaderName; 10] = [
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

pub(super) async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    limit: usize,
) -> Result<Response<Bytes>, EgressError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(MAX_HEAD_BYTES).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let answer = async {
        let (parts, body) = sender.send_request(request).await.map_err(broken)?.into_parts();
        Ok(Response::from_parts(parts, collect(body, limit).await?))
    };
    // Both run here, so that leaving this future ends the connection; there is no task that could outlive it.
    let (mut answer, mut connection) = (pin!(answer), pin!(connection));
    tokio::select! {
        biased;
        answer = &mut answer => answer,
        // Its error reaches the answer too; what arrived before the end is still to be read.
        _ = &mut connection => answer.await,
    }
}

async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, EgressError> {
    let too_large = || EgressError::TooLarge { limit };
    let stated = body.size_hint().lower();
    if stated > limit as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::with_capacity((stated as usize).min(MAX_TRUSTED_LENGTH));
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(broken)?.into_data() else { continue };
        if piece.len() > limit - whole.len() {
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

fn broken(error: hyper::Error) -> EgressError {
    EgressError::Broken(error.into())
}
