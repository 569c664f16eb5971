//! Opens connections to one upstream and reuses them.
#![expect(clippy::disallowed_types, reason = "this is the one way out to upstreams")]

use std::{error::Error, future::Future, sync::Arc, sync::LazyLock, time::Duration};

use amalgam_core::ModelError;
use bytes::Bytes;
use http::Uri;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{HttpConnector, proxy::Tunnel},
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tokio_rustls::rustls::{ClientConfig, crypto::ring};
use tower::{Service, ServiceExt};
use x509_cert::{Certificate, der::Decode as _};

use super::{
    exchange::{self, Body, Connection, ExchangeError},
    head::Head,
    pool::Pool,
    proxy::Proxy,
};

/// AnswerReading the system's certificates takes tens of milliseconds and a few hundred KiB, so it is done once, when first
/// needed.
static TLS: LazyLock<Result<ClientConfig, String>> = LazyLock::new(|| {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(builder.with_native_roots().map_err(|error| error.to_string())?.with_no_client_auth())
});

/// The connections to one upstream.
pub(super) struct Client {
    address: Uri,
    way: ConnectRoute,
    proxy: Option<Proxy>,
    /// Name resolution, TCP and TLS together take at most this.
    connect_timeout: Duration,
    pool: Arc<Pool>,
}

enum ConnectRoute {
    /// To the upstream, or to a forwarding proxy.
    Plain(Connector),
    Tls(HttpsConnector<Connector>),
    /// TLS with the upstream, inside a connection that a proxy makes (`CONNECT`).
    Tunnel(HttpsConnector<Tunnel<Connector>>),
}

type Connector = HttpConnector;

/// The error of a proxy that refuses a tunnel.
type TunnelError = <Tunnel<Connector> as Service<Uri>>::Error;

type BoxError = Box<dyn Error + Send + Sync>;

impl Client {
    /// Prepares connections to the host of `address`; connects to nothing yet.
    pub(super) fn new(address: Uri, proxy: Option<Proxy>, connect_timeout: Duration) -> Result<Self, String> {
        let secure = address.scheme_str().is_some_and(|scheme| scheme.eq_ignore_ascii_case("https"));
        let (address, way) = match (secure, &proxy) {
            (false, None) => (address, ConnectRoute::Plain(plain())),
            (false, Some(proxy)) => (proxy.address.clone(), ConnectRoute::Plain(plain())),
            (true, None) => (address, ConnectRoute::Tls(tls(plain())?)),
            (true, Some(proxy)) => {
                let tunnel = Tunnel::new(proxy.address.clone(), plain());
                let tunnel = match &proxy.authorization {
                    Some(authorization) => tunnel.with_auth(authorization.clone()),
                    None => tunnel,
                };
                (address, ConnectRoute::Tunnel(tls(tunnel)?))
            }
        };
        Ok(Self { address, way, proxy, connect_timeout, pool: Arc::default() })
    }

    /// The forwarding proxy, which needs absolute addresses. A tunnelling proxy does not see the requests.
    pub(super) fn forwarding_proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref().filter(|_| matches!(self.way, ConnectRoute::Plain(_)))
    }

    /// Sends a request with an encoded head and waits for the head of its answer.
    ///
    /// The upstream may have closed an idle connection just now. If it cannot have acted on the request, the request is
    /// sent once more on a new connection.
    pub(super) async fn request(&self, head: &Bytes, body: &Bytes) -> Result<(Head, Body), ModelError> {
        if let Some(connection) = self.pool.take() {
            match exchange::exchange(connection, head.clone(), body.clone(), &self.pool).await {
                Err(ExchangeError::NotSent(_stale)) => {}
                answered => return answered.map_err(error),
            }
        }
        let connection = self.connect().await.map_err(|error| match error.is::<TunnelError>() {
            true => ModelError::Proxy(self.problem(&*error)),
            false => ModelError::Unreachable(format!("no connection: {}", self.problem(&*error))),
        })?;
        exchange::exchange(connection, head.clone(), body.clone(), &self.pool).await.map_err(error)
    }

    async fn connect(&self) -> Result<Connection, BoxError> {
        self.stream().await.map(Connection::new)
    }

    async fn stream(&self) -> Result<MaybeHttpsStream<TokioIo<TcpStream>>, BoxError> {
        let address = self.address.clone();
        match &self.way {
            ConnectRoute::Plain(connector) => {
                within(self.connect_timeout, connector.clone().oneshot(address)).await.map(MaybeHttpsStream::Http)
            }
            ConnectRoute::Tls(connector) => within(self.connect_timeout, connector.clone().oneshot(address)).await,
            ConnectRoute::Tunnel(connector) => within(self.connect_timeout, connector.clone().oneshot(address)).await,
        }
    }

    /// Why connecting failed, with the name of the proxy if there is one.
    fn problem(&self, error: &(dyn Error + 'static)) -> String {
        match &self.proxy {
            Some(proxy) => format!("through the proxy {proxy}: {}", chain(error)),
            None => chain(error),
        }
    }
}

fn tls<C>(connector: C) -> Result<HttpsConnector<C>, String> {
    let config = TLS.clone().map_err(|error| format!("the system's root certificates cannot be used: {error}"))?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(config);
    Ok(builder.https_or_http().enable_http1().wrap_connector(connector))
}

fn plain() -> Connector {
    let mut connector = HttpConnector::new();
    // Without it a small request can wait 40 ms for the peer's acknowledgement.
    connector.set_nodelay(true);
    connector.set_keepalive(Some(Duration::from_secs(30)));
    connector.enforce_http(false);
    connector
}

async fn within<T, E: Into<BoxError>>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, E>>,
) -> Result<T, BoxError> {
    match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected.map_err(Into::into),
        Err(_elapsed) => Err(format!("not within {limit:?}").into()),
    }
}

/// Connects to an upstream as a turn would, including TLS, and sends nothing. Returns the time since 1970 at which the
/// upstream's certificate expires, if it has one. The error says why connecting failed.
pub async fn reach(base_url: &str, proxy: Option<Proxy>, patience: Duration) -> Result<Option<Duration>, String> {
    let address = base_url.parse().map_err(|error| format!("it is no address: {error}"))?;
    let client = Client::new(address, proxy, patience)?;
    let stream = client.stream().await.map_err(|error| client.problem(&*error))?;
    let MaybeHttpsStream::Https(stream) = stream else { return Ok(None) };
    let (_, session) = stream.inner().get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    Ok(certificate.and_then(|certificate| {
        let certificate = Certificate::from_der(certificate).ok()?;
        Some(certificate.tbs_certificate.validity.not_after.to_unix_duration())
    }))
}

/// Maps a failed exchange to an error: only a failure before the answer may be retried.
fn error(broken: ExchangeError) -> ModelError {
    match broken {
        ExchangeError::NotSent(error) | ExchangeError::Closed(error) => {
            ModelError::Unreachable(format!("connection broke before the answer: {}", chain(&error)))
        }
        ExchangeError::InvalidHead(error) => error,
    }
}

/// An error with its causes, for the log.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(current) = cause {
        text.push_str(": ");
        text.push_str(&current.to_string());
        cause = current.source();
    }
    text
}
