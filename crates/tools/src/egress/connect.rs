//! From a name to a connection: resolving, and connecting to an address that was checked.

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

/// More addresses than this are not tried.
const MAX_ADDRESSES: usize = 4;
/// How long one of several addresses may take before the next is tried.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Finds the addresses of a name.
///
/// It is asked once for each request, and the connection goes to what it answered: a name that means something else a
/// moment later changes nothing. An answer without any address is an error.
pub trait Resolve: Send + Sync {
    /// All addresses of `name`, in the order in which to try them.
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// Resolves as the operating system does.
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

/// Addresses that were checked, and nothing else that could be connected to.
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
                    // A request is one small write; this only spares it a wait. Failing means a socket already gone.
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

/// The certificates that we believe: the system's, loaded when the first one is needed.
#[derive(Default)]
pub(super) struct Trust(OnceCell<Arc<ClientConfig>>);

impl Trust {
    /// Connects with TLS. The certificate has to be for the host in the URL, whichever address was taken.
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
    // Hundreds of files, or one long one: not a job for the threads that serve.
    let loaded = spawn_blocking(|| {
        let provider = tokio_rustls::rustls::crypto::ring::default_provider();
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        Ok(Arc::new(builder.with_native_roots()?.with_no_client_auth()))
    });
    loaded.await.map_err(io::Error::other)?
}
