//! A TLS terminator in front of a plain server, as model providers have one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::certificates::Certificates;
use crate::serving::Serving;

/// A running TLS front. Bytes that its server writes at once are one record; if its server resets a connection, the
/// front ends it without a close message.
#[derive(Debug)]
pub struct Front {
    serving: Serving,
    connections: Arc<AtomicUsize>,
    hang_up: Arc<Notify>,
}

impl Front {
    /// Starts a TLS front for the server at `behind`, with this certificate.
    pub fn before(behind: SocketAddr, certificates: &Certificates) -> Self {
        let chain = vec![CertificateDer::from_pem_file(certificates.certificate()).expect("a certificate is there")];
        let key = PrivateKeyDer::from_pem_file(certificates.key()).expect("its key is there");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the usual versions are known")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("the key is the certificate's");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (connections, hang_up) = (Arc::<AtomicUsize>::default(), Arc::<Notify>::default());
        let (counted, told) = (Arc::clone(&connections), Arc::clone(&hang_up));
        let serving = Serving::start(move |listener| accept(listener, acceptor, behind, counted, told));
        Self { serving, connections, hang_up }
    }

    /// Ends all connections, used or not, without a close message. Later connections are served.
    pub fn hang_up(&self) {
        self.hang_up.notify_one();
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.serving.address()
    }

    /// The value of `base_url` in a configuration: `https://127.0.0.1:PORT/v1`.
    pub fn base_url(&self) -> String {
        format!("https://{}/v1", self.address())
    }

    /// The number of completed TLS handshakes.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    behind: SocketAddr,
    agreed: Arc<AtomicUsize>,
    hang_up: Arc<Notify>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                connections.spawn(pass_on(socket, acceptor.clone(), behind, Arc::clone(&agreed)));
            }
            () = hang_up.notified() => connections.shutdown().await,
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass_on(socket: TcpStream, acceptor: TlsAcceptor, behind: SocketAddr, agreed: Arc<AtomicUsize>) {
    socket.set_nodelay(true).expect("an open socket takes TCP_NODELAY");
    // A client that rejects the certificate disconnects.
    let Ok(mut secure) = acceptor.accept(socket).await else { return };
    agreed.fetch_add(1, Ordering::SeqCst);
    let mut plain = TcpStream::connect(behind).await.expect("the server behind the front listens");
    plain.set_nodelay(true).expect("an open socket takes TCP_NODELAY");
    // Both connections end together.
    let _ = copy_bidirectional(&mut secure, &mut plain).await;
}
