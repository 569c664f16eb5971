//! TLS to a server: its certificate is issued by a trusted authority, or is exactly the expected one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
        pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
    },
};

/// Which certificates of a server are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trust {
    /// Those for its name, of authorities that the system trusts.
    Authorities,
    /// The one in this file, under any name: the server of this machine may be reached as 127.0.0.1.
    Certificate(PathBuf),
}

/// A TLS session over a connection to this host.
pub(super) async fn connect(stream: TcpStream, host: &str, trust: &Trust) -> anyhow::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).with_context(|| format!("'{host}' is not a host name"))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let config = match trust {
        Trust::Authorities => builder.with_root_certificates(authorities()?).with_no_client_auth(),
        Trust::Certificate(file) => {
            let verifier = ExactCertificate { expected: certificate(file)?, provider };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
    };
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

fn authorities() -> anyhow::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        bail!("the system has no certificates of authorities; install ca-certificates, or set SSL_CERT_FILE");
    }
    Ok(store)
}

/// The first certificate of a file: the server's own.
fn certificate(file: &Path) -> anyhow::Result<CertificateDer<'static>> {
    CertificateDer::from_pem_file(file).with_context(|| format!("reading the certificate {}", file.display()))
}

/// Accepts one certificate. The server must have its key, as always.
#[derive(Debug)]
struct ExactCertificate {
    expected: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ExactCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match *end_entity == self.expected {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
