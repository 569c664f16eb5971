//! The server's certificate: read from files, checked, and replaced while connections are open.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use arc_swap::ArcSwap;
use thiserror::Error;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
        version::{TLS12, TLS13},
    },
};
use x509_cert::{Certificate, der::Decode as _, time::Time};

/// A larger file is neither a certificate chain nor a key.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The files of a certificate chain and its private key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{} does not contain {expected}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: &'static str,
    },
    /// The key is not the certificate's.
    #[error("the key in {} does not belong to the certificate in {}", files.key.display(), files.certificate.display())]
    Mismatch {
        /// Both files.
        files: CertificateFiles,
    },
    /// The key is of a kind that is not supported.
    #[error("the key in {} cannot be used", path.display())]
    UnsupportedKey {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: rustls::Error,
    },
}

/// The period in which a certificate is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validity {
    /// Seconds since 1970.
    pub not_before: u64,
    /// Seconds since 1970.
    pub not_after: u64,
    /// `not_after` as a date.
    pub expires: String,
}

/// The settings of TLS connections, with the current certificate. Cheap to clone; all clones have the same certificate.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    current: Arc<CurrentCertificate>,
    files: CertificateFiles,
    /// The contents that were read last, good or not, so that an unchanged error is reported once.
    seen: Arc<Mutex<FileContents>>,
}

#[derive(Debug, PartialEq, Eq)]
struct FileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

#[derive(Debug)]
struct CurrentCertificate(ArcSwap<LoadedCertificate>);

#[derive(Debug)]
struct LoadedCertificate {
    certified: Arc<CertifiedKey>,
    validity: Validity,
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified))
    }
}

impl ServerTls {
    /// Reads the certificate and its key.
    pub fn load(files: CertificateFiles) -> Result<Self, TlsError> {
        let contents = read(&files)?;
        let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(parse(&files, &contents)?)));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider supports both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), current, files, seen: Arc::new(Mutex::new(contents)) })
    }

    /// Reads the files again. True if they have changed and the new certificate is used from now on; after an error the old
    /// one stays. An error is returned once for the same contents.
    pub fn refresh(&self) -> Result<bool, TlsError> {
        let contents = read(&self.files)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == contents {
            return Ok(false);
        }
        let parsed = parse(&self.files, &contents);
        *seen = contents;
        self.current.0.store(Arc::new(parsed?));
        Ok(true)
    }

    /// When the current certificate is valid.
    pub fn validity(&self) -> Validity {
        self.current.0.load().validity.clone()
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.config))
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

fn read(files: &CertificateFiles) -> Result<FileContents, TlsError> {
    Ok(FileContents { certificate: read_file(&files.certificate)?, key: read_file(&files.key)? })
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |source| TlsError::Unreadable { path: path.to_owned(), source };
    match fs::metadata(path).map_err(unreadable)? {
        metadata if metadata.len() > MAX_FILE_BYTES => {
            Err(unreadable(io::Error::new(io::ErrorKind::FileTooLarge, "the file is larger than 1 MiB")))
        }
        _ => fs::read(path).map_err(unreadable),
    }
}

fn parse(files: &CertificateFiles, contents: &FileContents) -> Result<LoadedCertificate, TlsError> {
    let invalid = |path: &Path, expected| TlsError::Invalid { path: path.to_owned(), expected };
    let no_certificate = || invalid(&files.certificate, "a certificate in PEM");
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&contents.certificate)
        .collect::<Result<_, _>>()
        .map_err(|_| no_certificate())?;
    let validity = chain.first().and_then(validity).ok_or_else(no_certificate)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key)
        .map_err(|_| invalid(&files.key, "a private key in PEM, without a passphrase"))?;
    let certified = CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::Mismatch { files: files.clone() },
        rustls::Error::InvalidCertificate(_) => no_certificate(),
        source => TlsError::UnsupportedKey { path: files.key.clone(), source },
    })?;
    Ok(LoadedCertificate { certified: Arc::new(certified), validity })
}

fn validity(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let validity = Certificate::from_der(certificate).ok()?.tbs_certificate.validity;
    let seconds = |time: Time| time.to_unix_duration().as_secs();
    Some(Validity {
        not_before: seconds(validity.not_before),
        not_after: seconds(validity.not_after),
        expires: validity.not_after.to_string(),
    })
}
