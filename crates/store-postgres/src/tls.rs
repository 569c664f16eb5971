//! Which certificates of a server are accepted. The TLS session itself, and its channel binding, are
//! `tokio-postgres-rustls`.
use std::{fs::File, io, path::Path, sync::Arc};

use tokio_postgres::{Socket, tls::MakeTlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::address::Trust;

/// A TLS session with a server.
pub(super) type Session = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Opens TLS sessions; cheap to clone. Reads the authorities: the file's, or the system's. Blocks.
pub(super) fn connector(trust: Trust, roots: Option<&Path>) -> io::Result<MakeRustlsConnect> {
    let provider = Arc::new(ring::default_provider());
    let authorities = match trust {
        Trust::Any => None,
        Trust::Authority | Trust::Host => {
            let roots = Arc::new(authorities(roots)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
            Some(verifier.build().map_err(io::Error::other)?)
        }
    };
    let verifier = Arc::new(Verifier { trust, authorities, provider: Arc::clone(&provider) });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn authorities(file: Option<&Path>) -> io::Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    match file {
        Some(path) => {
            for certificate in CertificateDer::pem_reader_iter(File::open(path)?) {
                store.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    match store.is_empty() {
        true => Err(io::Error::new(io::ErrorKind::NotFound, "no authority to check certificates against")),
        false => Ok(store),
    }
}

/// Checks a certificate as strictly as the address requires; signatures of the handshake always.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    authorities: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        let verified = authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is checked last, so all other errors were found before.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.trust == Trust::Authority => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
