//! The HTTP client: how connections are made and kept. The only place that names it.
#![expect(clippy::disallowed_types, reason = "this is the one way out to upstreams")]

use std::{
    error::Error,
    future::Future,
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll},
    time::Duration,
};

use amalgam_core::ModelError;
use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;
use tower::Service;

/// The largest head of an answer.
const HEAD_BYTES: usize = 64 * 1024;
/// How long an unused connection is kept; shorter than the 60 s after which most servers close it.
const KEEP: Duration = Duration::from_secs(50);
/// How many unused connections are kept.
const KEPT: usize = 256;

pub(super) type Client = legacy::Client<Connector, Full<Bytes>>;

/// Reading the system's certificates takes tens of milliseconds and a few hundred KiB: done once, when first needed.
static TLS: LazyLock<Result<HttpsConnector<HttpConnector>, String>> = LazyLock::new(|| {
    let builder = HttpsConnectorBuilder::new().with_native_roots().map_err(|error| error.to_string())?;
    Ok(builder.https_or_http().enable_http1().wrap_connector(plain()))
});

pub(super) fn build(secure: bool, connect_timeout: Duration) -> Result<Client, String> {
    let way = match secure {
        false => Way::Plain(plain()),
        true => {
            Way::Tls(TLS.clone().map_err(|error| format!("the system's root certificates cannot be used: {error}"))?)
        }
    };
    Ok(legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEEP)
        .pool_max_idle_per_host(KEPT)
        .http1_max_buf_size(HEAD_BYTES)
        .build(Connector { way, limit: connect_timeout }))
}

fn plain() -> HttpConnector {
    let mut connector = HttpConnector::new();
    // Without it a small request can wait 40 ms on the peer's acknowledgement.
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.enforce_http(false);
    connector
}

/// Makes connections; name resolution, TCP and TLS together take at most `limit`.
#[derive(Clone)]
pub(super) struct Connector {
    way: Way,
    limit: Duration,
}

#[derive(Clone)]
enum Way {
    Plain(HttpConnector),
    Tls(HttpsConnector<HttpConnector>),
}

type BoxError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.way {
            Way::Plain(connector) => connector.poll_ready(cx).map_err(Into::into),
            Way::Tls(connector) => connector.poll_ready(cx),
        }
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        match &mut self.way {
            Way::Plain(connector) => {
                let connecting = connector.call(uri);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(within(limit, connecting).await?)) })
            }
            Way::Tls(connector) => Box::pin(within(limit, connector.call(uri))),
        }
    }
}

async fn within<T, E: Into<BoxError>>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected.map_err(Into::into),
        Err(_elapsed) => Err(format!("no connection within {limit:?}").into()),
    }
}

/// What a failed request means: only what broke before an answer may be tried again.
pub(super) fn error(error: &legacy::Error) -> ModelError {
    let cause = hyper_error(error);
    if cause.is_some_and(hyper::Error::is_parse_too_large) {
        return ModelError::TooLarge(format!("a head of more than {HEAD_BYTES} bytes"));
    }
    match cause.filter(|cause| cause.is_parse()) {
        Some(cause) => ModelError::Unreadable(chain(cause)),
        None => ModelError::Unreachable(chain(error)),
    }
}

fn hyper_error(error: &legacy::Error) -> Option<&hyper::Error> {
    let mut cause = error.source();
    while let Some(current) = cause {
        match current.downcast_ref::<hyper::Error>() {
            Some(found) => return Some(found),
            None => cause = current.source(),
        }
    }
    None
}

/// An error with its causes, for the log.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text.push_str(": ");
        text.push_str(&current.to_string());
        cause = current.source();
    }
    text
}
