//! The public keys of an issuer of tokens: read from a file or fetched, kept for a while, looked for again when a token
//! names one that is not among them.

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

/// The largest set of keys.
const LARGEST: usize = 256 * 1024;
/// The most keys of a set that are kept.
const MOST_KEYS: usize = 100;
/// A set is looked at again after this long, so that a key which was withdrawn is not believed for ever.
const LIFE: Duration = Duration::from_secs(600);
/// The time between two looks, whatever tokens say.
const PAUSE: Duration = Duration::from_secs(60);

/// Where the keys of an issuer are.
#[derive(Clone)]
pub enum JwksPlace {
    /// A file on this machine.
    File(PathBuf),
    /// An address that the operator named, and how to get there.
    Url {
        /// The address.
        url: String,
        /// The way out.
        fetch: Arc<dyn Fetch>,
    },
}

impl std::fmt::Debug for JwksPlace {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) => path.fmt(formatter),
            Self::Url { url, .. } => url.fmt(formatter),
        }
    }
}

/// Something that is said to be signed by the issuer.
#[derive(Clone, Copy)]
pub(super) struct Signed<'a> {
    pub(super) algorithm: &'a str,
    pub(super) key_id: Option<&'a str>,
    pub(super) message: &'a [u8],
    pub(super) signature: &'a [u8],
}

/// The keys of one issuer.
pub(super) struct Jwks {
    place: JwksPlace,
    keys: RwLock<Option<Kept>>,
    /// When the key set was last fetched; the task that holds the lock is fetching it.
    looked_at: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Kept {
    keys: Arc<[PublicKey]>,
    at: Instant,
}

impl Jwks {
    pub(super) fn new(place: JwksPlace) -> Self {
        Self { place, keys: RwLock::new(None), looked_at: Mutex::new(None) }
    }

    /// Whether one of the issuer's keys made the signature; an error when there are none to compare with.
    pub(super) async fn fits(&self, signed: Signed<'_>) -> Result<bool, StoreError> {
        if !ALGORITHMS.contains(&signed.algorithm) {
            return Ok(false);
        }
        let kept = self.kept();
        let known = kept.as_ref().and_then(|kept| find(&kept.keys, signed));
        let fresh = kept.as_ref().is_some_and(|kept| kept.at.elapsed() < LIFE);
        if let (Some(key), true) = (known, fresh) {
            return Ok(key.fits(signed));
        }
        self.look().await;
        match self.kept() {
            Some(kept) => Ok(find(&kept.keys, signed).is_some_and(|key| key.fits(signed))),
            None => Err(StoreError::Unavailable("the keys of the issuer of tokens cannot be had".to_owned())),
        }
    }

    fn kept(&self) -> Option<Kept> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Fetches the keys, unless another request has just done so.
    async fn look(&self) {
        let mut looked_at = self.looked_at.lock().await;
        // Without any keys the issuer is asked more often: every request with a token waits for them.
        let pause = if self.kept().is_some() { PAUSE } else { PAUSE / 20 };
        if looked_at.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        *looked_at = Some(Instant::now());
        let place = &self.place;
        match self.read().await.and_then(|bytes| parse(&bytes)) {
            Ok(keys) => {
                info!(keys = keys.len(), "read {} keys for tokens from {place:?}", keys.len());
                let kept = Kept { keys: keys.into(), at: Instant::now() };
                *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(kept);
            }
            Err(problem) => warn!("could not get the keys for tokens from {place:?}: {problem}"),
        }
    }

    async fn read(&self) -> Result<Bytes, String> {
        match &self.place {
            JwksPlace::Url { url, fetch } => match fetch.fetch(url, LARGEST).await {
                Ok(fetched) => Ok(fetched.bytes),
                Err(fault) => Err(fault.into_detail()),
            },
            JwksPlace::File(path) => {
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
    std::fs::File::open(path)?.take(LARGEST as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// What a key of the set can check. One that signs with a shared secret has no business in a public set.
const ALGORITHMS: [&str; 3] = ["RS256", "ES256", "EdDSA"];

/// A public key, with the one algorithm that it is used with.
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

    fn fits(&self, signed: Signed<'_>) -> bool {
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

/// The key that the token names; without a name the only one of its kind.
fn find<'k>(keys: &'k [PublicKey], signed: Signed<'_>) -> Option<&'k PublicKey> {
    let mut fitting = keys.iter().filter(|key| {
        key.algorithm() == signed.algorithm && (signed.key_id.is_none() || key.id.as_deref() == signed.key_id)
    });
    let first = fitting.next()?;
    match (signed.key_id, fitting.next()) {
        (None, Some(_)) => None,
        _ => Some(first),
    }
}

/// Reads a set; keys of kinds that are not used here are left out.
fn parse(bytes: &[u8]) -> Result<Vec<PublicKey>, String> {
    let set: Value = serde_json::from_slice(bytes).map_err(|_| "it is not JSON".to_owned())?;
    let keys = set["keys"].as_array().ok_or("it has no list `keys`")?;
    let usable: Vec<PublicKey> = keys.iter().filter_map(public_key).take(MOST_KEYS).collect();
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
