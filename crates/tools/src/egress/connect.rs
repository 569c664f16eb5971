//! Resolves names, and connects to checked addresses.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use amalgam_core::BoxFuture;
use hyper_rustls::ConfigBuilderExt as _;
use tokio::{net::TcpStream, sync::OnceCell, task::spawn_blocking, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream, rustls::ClientConfig, rustls::pki_types::ServerName};

use super::EgressError;
use super::target::{Host, Target};

/// The maximum number of addresses to try.
const MAX_ADDRESSES: usize = 4;
/// The timeout of one address before the next is tried.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Resolves names.
///
/// Called once for each request. The connection uses the addresses that it returned, so a name that changes afterwards
/// (DNS rebinding) has no effect. An answer without addresses is an error.
pub trait Resolve: Send + Sync {
    /// All addresses of `name`, in the order in which to try them.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Resolves with the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect();
            match found.is_empty() {
                true => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
                false => Ok(found),
            }
        })
    }
}

/// Checked addresses, the only ones that can be connected to.
pub(super) struct Pinned(Vec<SocketAddr>);

impl Pinned {
    pub(super) fn new(addresses: Vec<IpAddr>, port: u16) -> Self {
        Self(addresses.into_iter().take(MAX_ADDRESSES).map(|address| SocketAddr::new(address, port)).collect())
    }

    #[cfg(test)]
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.0
    }

    pub(super) async fn connect(&self, target: &Target) -> Result<TcpStream, EgressError> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in &self.0 {
            match timeout(ATTEMPT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    // Only avoids a delay. It fails only on a closed socket.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(EgressError::Unreachable { host: target.host.to_string(), source: failure })
    }
}

/// The system's root certificates, loaded when they are first needed.
#[derive(Default)]
pub(super) struct Trust(OnceCell<Arc<ClientConfig>>);

impl Trust {
    /// Connects with TLS. The certificate must match the host in the URL.
    pub(super) async fn connect(&self, pinned: &Pinned, target: &Target) -> Result<TlsStream<TcpStream>, EgressError> {
        let config = self.0.get_or_try_init(load).await.map_err(EgressError::NoRoots)?;
        let name = match &target.host {
            Host::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_| EgressError::BadUrl("its host is not valid"))?
            }
            Host::Address(address) => ServerName::from(*address),
        };
        let stream = pinned.connect(target).await?;
        TlsConnector::from(Arc::clone(config))
            .connect(name, stream)
            .await
            .map_err(|source| EgressError::Unreachable { host: target.host.to_string(), source })
    }
}

async fn load() -> io::Result<Arc<ClientConfig>> {
    // Reads hundreds of files, or a long one, so it runs on the blocking pool.
    let loaded = spawn_blocking(|| {
        let provider = tokio_rustls::rustls::crypto::ring::default_provider();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        Ok(Arc::new(builder.with_native_roots()?.with_no_client_auth()))
    });
    loaded.await.map_err(io::Error::other)?
}
