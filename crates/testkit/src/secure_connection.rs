//! A client's TLS connection to the server under test. Its HTTP is written by hand, so that one connection can be
//! reused.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::certificates::Certificates;

/// How long a handshake or an answer may take.
const PATIENCE: Duration = Duration::from_secs(90);

/// The newest version of TLS that a client offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// An open TLS connection; kept alive between requests.
#[derive(Debug)]
pub struct SecureConnection {
    stream: TlsStream<TcpStream>,
}

impl SecureConnection {
    /// Connects to 127.0.0.1, and trusts only the authority of these certificates.
    pub async fn open(address: SocketAddr, trusted: &Certificates, version: TlsVersion) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(trusted.authority()).expect("the authority has a certificate");
        roots.add(authority).expect("the authority's certificate can be trusted");
        let versions = match version {
            TlsVersion::V1_2 => &TLS12,
            TlsVersion::V1_3 => &TLS13,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[versions])
            .expect("the provider knows this version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let connecting = async {
            let socket = TcpStream::connect(address).await?;
            let name = ServerName::from(address.ip());
            Ok(Self { stream: TlsConnector::from(Arc::new(config)).connect(name, socket).await? })
        };
        tokio::time::timeout(PATIENCE, connecting).await.expect("a handshake ends in time")
    }

    /// The certificate that the server has shown.
    pub fn certificate(&self) -> Vec<u8> {
        let (_, session) = self.stream.get_ref();
        session.peer_certificates().and_then(|chain| chain.first()).expect("a server shows a certificate").to_vec()
    }

    /// The protocol that both sides chose.
    pub fn protocol(&self) -> Option<Vec<u8>> {
        self.stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    }

    /// Sends a POST request with JSON and returns what has arrived with the first bytes of the answer.
    pub async fn begin_post(&mut self, path: &str, body: &str) -> String {
        let exchange = async {
            let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json");
            let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            self.stream.write_all(request.as_bytes()).await.expect("the server takes the request");
            let mut answer = Vec::new();
            self.stream.read_buf(&mut answer).await.expect("the server answers");
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("the server answers in time")
    }

    /// Sends a GET request and returns status and body. The connection stays open.
    pub async fn get(&mut self, path: &str) -> (u16, String) {
        let exchange = async {
            let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
            self.stream.write_all(request.as_bytes()).await.expect("the server takes the request");
            let mut answer = Vec::new();
            loop {
                if let Some(whole) = whole_answer(&answer) {
                    return whole;
                }
                let read = self.stream.read_buf(&mut answer).await.expect("the server answers");
                assert!(read > 0, "the server closed the connection: {}", String::from_utf8_lossy(&answer));
            }
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("the server answers in time")
    }
}

/// Status and body, once all of it has arrived.
fn whole_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let lower = head.to_ascii_lowercase();
    let length: usize = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?.trim().parse().ok()?;
    (body.len() >= length).then(|| (status, body.to_owned()))
}
