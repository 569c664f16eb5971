//! Encrypts and authenticates small pieces of data with XChaCha20-Poly1305.
//!
//! A sealed text consists of `ams2.`, the id of its master key, a dot, and then, in URL-safe base64, nonce, ciphertext
//! and tag. The digit is the version of the format and of the key derivation; a change of either gets another digit.
//! Texts of the first format, `ams1.`, name no key and can still be opened. The context (the tenant, and what the data
//! is) is associated data: it is not in the text, and the text opens only with the same context.

mod key_ring;
mod master_key;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use amalgam_core::Seal;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};

use crate::private_files::FileState;

pub use self::key_ring::KeyRing;
pub use self::master_key::{KeyError, KeyId, MasterKey};

const PREFIX: &str = "ams2.";
const PURPOSE: &str = "amalgam seal 2";
/// The prefix of the first format, for which there was only one master key.
const FIRST_PREFIX: &str = "ams1.";
const FIRST_PURPOSE: &str = "amalgam seal 1";
const NONCE_BYTES: usize = 24;

/// The interval at which the key file is checked; a rotation takes effect after this time.
const LOOK: Duration = Duration::from_secs(4);
/// The minimum interval of the earlier checks that texts sealed with an unknown key cause.
const LOOK_FOR_UNKNOWN: Duration = Duration::from_secs(1);

/// Seals with the newest master key and opens with any of them.
pub struct Sealer {
    ciphers: RwLock<Arc<Ciphers>>,
    file: Option<KeyFile>,
}

impl Sealer {
    /// A sealer with these keys. Two sealers with a common key can open each other's texts.
    pub fn new(ring: &KeyRing) -> Self {
        Self { ciphers: RwLock::new(Arc::new(Ciphers::new(ring))), file: None }
    }

    /// A sealer with the keys in a file, which is created if it does not exist. The sealer follows the file: a key that
    /// is added while the process runs is used within seconds. If the file cannot be read any more, the sealer
    /// continues with its keys.
    pub fn following(path: &Path) -> Result<Self, KeyError> {
        let state = FileState::of(path);
        let ring = KeyRing::load_or_create(path)?;
        let seen = KeyFileCheck { state: state.or_else(|| FileState::of(path)), at: Instant::now() };
        let mut sealer = Self::new(&ring);
        sealer.file = Some(KeyFile { path: path.to_owned(), seen: Mutex::new(seen) });
        Ok(sealer)
    }

    fn ciphers(&self) -> Arc<Ciphers> {
        self.look_again(LOOK);
        Arc::clone(&self.ciphers.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the key file again if it has changed and the last check is longer ago than `patience`.
    fn look_again(&self, patience: Duration) {
        let Some(file) = &self.file else { return };
        // Another thread checks the file: this one continues with the current keys.
        let Ok(mut seen) = file.seen.try_lock() else { return };
        if seen.at.elapsed() < patience {
            return;
        }
        seen.at = Instant::now();
        let state = FileState::of(&file.path);
        if state.is_none() || state == seen.state {
            return;
        }
        if let Ok(ring) = KeyRing::load(&file.path) {
            seen.state = state;
            *self.ciphers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Ciphers::new(&ring));
        }
    }

    fn open_named(&self, context: &str, id: KeyId, sealed: &str) -> Option<Vec<u8>> {
        let find = |ciphers: Arc<Ciphers>| ciphers.keys.iter().position(|key| key.id == id).map(|at| (ciphers, at));
        let (ciphers, at) = find(self.ciphers()).or_else(|| {
            self.look_again(LOOK_FOR_UNKNOWN);
            find(self.ciphers())
        })?;
        open(&ciphers.keys.get(at)?.cipher, context, sealed)
    }
}

impl Seal for Sealer {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        let ciphers = self.ciphers();
        let newest = ciphers.keys.first().expect("a ring has a key");
        // 192 random bits never repeat in practice, so no counter is stored.
        let nonce: [u8; NONCE_BYTES] = rand::random();
        let sealed = newest
            .cipher
            .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: context.as_bytes() })
            .expect("the cipher refuses only messages of 256 GiB and more");
        let mut text = format!("{PREFIX}{}.", newest.id);
        text.reserve((nonce.len() + sealed.len()).div_ceil(3) * 4);
        URL_SAFE_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut text);
        text
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        if let Some(named) = sealed.strip_prefix(PREFIX) {
            let (id, sealed) = named.split_once('.')?;
            return self.open_named(context, KeyId::parse(id)?, sealed);
        }
        let sealed = sealed.strip_prefix(FIRST_PREFIX)?;
        self.ciphers().keys.iter().find_map(|key| open(&key.first_cipher, context, sealed))
    }
}

fn open(cipher: &XChaCha20Poly1305, context: &str, sealed: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>()?;
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: context.as_bytes() }).ok()
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealer([redacted])")
    }
}

/// The ciphers of a key ring, newest first.
struct Ciphers {
    keys: Vec<Cipher>,
}

struct Cipher {
    id: KeyId,
    cipher: XChaCha20Poly1305,
    /// The cipher for texts of the first format.
    first_cipher: XChaCha20Poly1305,
}

impl Ciphers {
    fn new(ring: &KeyRing) -> Self {
        let cipher = |key: &MasterKey, purpose: &str| XChaCha20Poly1305::new((&*key.derive(purpose)).into());
        let keys = ring.keys().iter().map(|key| Cipher {
            id: key.id(),
            cipher: cipher(key, PURPOSE),
            first_cipher: cipher(key, FIRST_PURPOSE),
        });
        Self { keys: keys.collect() }
    }
}

/// The key file, and its state at the last check.
struct KeyFile {
    path: PathBuf,
    seen: Mutex<KeyFileCheck>,
}

struct KeyFileCheck {
    state: Option<FileState>,
    at: Instant,
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;
