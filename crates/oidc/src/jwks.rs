//! The public keys of a token issuer: read from a file or fetched, cached, and loaded again when a token names an
//! unknown key.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use amalgam_core::{Fetch, StoreError};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};
use tracing::{info, warn};

/// The maximum size of a key set.
const MAX_SET_BYTES: usize = 256 * 1024;
/// The maximum number of keys that are used of a set.
const MAX_KEYS: usize = 100;
/// A set is loaded again after this time, so that a withdrawn key does not stay valid.
const LIFE: Duration = Duration::from_secs(600);
/// The minimum time between two loads, even if tokens name unknown keys.
const MIN_RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The location of an issuer's keys.
#[derive(Clone)]
pub enum JwksLocation {
    /// A file on this machine.
    File(PathBuf),
    /// A URL of the operator's configuration.
    Url {
        /// The URL.
        url: String,
        /// The HTTP client.
        fetch: Arc<dyn Fetch>,
    },
}

impl std::fmt::Debug for JwksLocation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.fmt(formatter),
            Self::Url { url, .. } => url.fmt(formatter),
        }
    }
}

/// A signature with the data that it covers.
#[derive(Clone, Copy)]
pub struct SignedMessage<'a> {
    /// The algorithm that the token names.
    pub algorithm: &'a str,
    /// The key that the token names.
    pub key_id: Option<&'a str>,
    /// What is signed.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

/// The keys of one issuer.
pub struct Jwks {
    location: JwksLocation,
    /// The minimum time between two loads, whatever tokens name.
    reload_interval: Duration,
    keys: RwLock<Option<CachedKeys>>,
    /// When the key set was last fetched; the task that holds the lock is fetching it.
    loaded_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct CachedKeys {
    keys: Arc<[PublicKey]>,
    at: Instant,
}

impl Jwks {
    /// The keys at a location, for tokens that any caller may send.
    pub fn new(location: JwksLocation) -> Self {
        Self { location, reload_interval: MIN_RELOAD_INTERVAL, keys: RwLock::new(None), loaded_at: Mutex::new(None) }
    }

    /// The keys at a location, for tokens that the issuer itself has just sent: an unknown key is a new one and not a guess, so
    /// that each may load the keys again.
    pub fn for_answers_of_the_issuer(location: JwksLocation) -> Self {
        Self { reload_interval: Duration::ZERO, ..Self::new(location) }
    }

    /// Whether one of the issuer's keys verifies the signature; an error if no keys are available.
    pub async fn verify(&self, signed: SignedMessage<'_>) -> Result<bool, StoreError> {
        if !ALGORITHMS.contains(&signed.algorithm) {
            return Ok(false);
        }
        let cached = self.cached();
        let key = cached.as_ref().and_then(|cached| find(&cached.keys, signed));
        let fresh = cached.as_ref().is_some_and(|cached| cached.at.elapsed() < LIFE);
        if let (Some(key), true) = (key, fresh) {
            return Ok(key.verify(signed));
        }
        self.reload().await;
        match self.cached() {
            Some(cached) => Ok(find(&cached.keys, signed).is_some_and(|key| key.verify(signed))),
            None => Err(StoreError::Unavailable("the keys of the token issuer are not available".to_owned())),
        }
    }

    fn cached(&self) -> Option<CachedKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys, unless another request has just done so.
    async fn reload(&self) {
        let mut loaded_at = self.loaded_at.lock().await;
        // Without any keys the issuer is asked more often, since every request with a token waits for them.
        let pause = if self.cached().is_some() { self.reload_interval } else { self.reload_interval / 20 };
        if loaded_at.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        *loaded_at = Some(Instant::now());
        let location = &self.location;
        match self.read().await.and_then(|bytes| parse(&bytes)) {
            Ok(keys) => {
                info!(keys = keys.len(), "read {} keys for tokens from {location:?}", keys.len());
                let cached = CachedKeys { keys: keys.into(), at: Instant::now() };
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(cached);
            }
            Err(problem) => warn!("could not get the keys for tokens from {location:?}: {problem}"),
        }
    }

    async fn read(&self) -> Result<Bytes, String> {
        match &self.location {
            JwksLocation::Url { url, fetch } => match fetch.fetch(url, MAX_SET_BYTES).await {
                Ok(fetched) => Ok(fetched.bytes),
                Err(fault) => Err(fault.into_detail()),
            },
            JwksLocation::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
            }
        }
    }
}

fn read_file(path: &std::path::Path) -> std::io::Result<Bytes> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_SET_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// The supported algorithms. Shared-secret algorithms do not belong in a public set.
const ALGORITHMS: [&str; 3] = ["RS256", "ES256", "EdDSA"];

/// A public key with its one algorithm.
struct PublicKey {
    id: Option<String>,
    kind: Kind,
}

enum Kind {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256([u8; 65]),
    Ed25519([u8; 32]),
}

impl PublicKey {
    fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::Rsa { .. } => "RS256",
            Kind::P256(_) => "ES256",
            Kind::Ed25519(_) => "EdDSA",
        }
    }

    fn verify(&self, signed: SignedMessage<'_>) -> bool {
        match &self.kind {
            Kind::Rsa { modulus, exponent } => RsaPublicKeyComponents { n: modulus, e: exponent }
                .verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed.message, signed.signature)
                .is_ok(),
            Kind::P256(point) => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                .verify(signed.message, signed.signature)
                .is_ok(),
            Kind::Ed25519(point) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed.message, signed.signature).is_ok()
            }
        }
    }
}

/// The key that the token names; without a name, the only key of its algorithm.
fn find<'k>(keys: &'k [PublicKey], signed: SignedMessage<'_>) -> Option<&'k PublicKey> {
    let mut fitting = keys.iter().filter(|key| {
        key.algorithm() == signed.algorithm && (signed.key_id.is_none() || key.id.as_deref() == signed.key_id)
    });
    let first = fitting.next()?;
    match (signed.key_id, fitting.next()) {
        (None, Some(_)) => None,
        _ => Some(first),
    }
}

/// Parses a set; skips keys of unsupported kinds.
fn parse(bytes: &[u8]) -> Result<Vec<PublicKey>, String> {
    let set: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON".to_owned())?;
    let keys = set["keys"].as_array().ok_or("it has no list `keys`")?;
    let usable: Vec<PublicKey> = keys.iter().filter_map(public_key).take(MAX_KEYS).collect();
    match usable.is_empty() {
        true => Err("it has no key for RS256, ES256 or EdDSA".to_owned()),
        false => Ok(usable),
    }
}

fn public_key(key: &Value) -> Option<PublicKey> {
    let bytes = |name: &str| URL_SAFE_NO_PAD.decode(key[name].as_str()?.trim_end_matches('=')).ok();
    let kind = match (key["kty"].as_str()?, key["crv"].as_str()) {
        ("RSA", _) => Kind::Rsa { modulus: without_zeros(bytes("n")?), exponent: without_zeros(bytes("e")?) },
        ("EC", Some("P-256")) => {
            let mut point = [4; 65];
            point[1..33].copy_from_slice(bytes("x")?.as_array::<32>()?);
            point[33..].copy_from_slice(bytes("y")?.as_array::<32>()?);
            Kind::P256(point)
        }
        ("OKP", Some("Ed25519")) => Kind::Ed25519(*bytes("x")?.as_array::<32>()?),
        _ => return None,
    };
    let public = PublicKey { id: key["kid"].as_str().map(str::to_owned), kind };
    let for_signing = key["use"].as_str().is_none_or(|purpose| purpose == "sig");
    let for_this = key["alg"].as_str().is_none_or(|algorithm| algorithm == public.algorithm());
    (for_signing && for_this).then_some(public)
}

fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}
