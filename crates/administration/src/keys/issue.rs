//! Creates API keys and hashes them.
//!
//! A key is `am_` and 256 random bits in letters and digits. It is shown once, when it is created. The store has its HMAC
//! with a pepper, a second secret that the store holds only sealed: a copy of the database can neither be searched for a
//! key nor be given one. Keys outlive a new master key, since only the seal around the pepper changes.

use std::fmt;

use amalgam_core::{
    Actor, AuditAction, IdKind, Ids, Operator, Rights, Seal, StoreError,
    store::{KeyRecord, NewKey, TenancyStore, TenantRecord},
};
use rand::RngExt as _;
use ring::hmac;
use secrecy::{ExposeSecret as _, SecretString};

use super::KeyView;
use crate::audit::snapshot;

/// The beginning of every key in the store; no other text is looked up there.
pub const KEY_PREFIX: &str = "am_";

/// The names of the sealed values of the installation in the store. Rotating the master key seals them again.
pub const SEALED_MEMORIES: [&str; 1] = [PEPPER];

const PEPPER: &str = "api_key_pepper";
const PEPPER_BYTES: usize = 32;

/// 43 of 62 characters carry 256 bits.
const LENGTH: usize = 43;
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const CREATE: AuditAction = AuditAction::new("key.create");
/// The number of characters of a key that are shown, so that users can tell keys apart.
const SHOWN: usize = 10;

/// The context that the value of this name is sealed for.
pub fn memory_context(name: &str) -> String {
    format!("installation:{name}")
}

/// The secret that is part of every hash of this installation's keys.
#[derive(Clone)]
pub struct Pepper {
    key: hmac::Key,
    /// Whether the keys in the store are hashed with it.
    shared: bool,
}

/// Why keys cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum PepperError {
    /// The store did not answer.
    #[error("could not read what the store remembers of keys")]
    Store(#[source] StoreError),
    /// The pepper was sealed with another master key.
    #[error(
        "the store was set up with another master key: put back `secret.key` or AMALGAM_SECRET_KEY, or add the earlier \
         key behind the new one"
    )]
    Sealed,
}

impl Pepper {
    /// The pepper in the store; the first process to ask creates it.
    pub async fn of(store: &dyn TenancyStore, seal: &dyn Seal) -> Result<Self, PepperError> {
        let operator = Operator::of_this_process();
        let context = memory_context(PEPPER);
        let sealed = match store.remembered(operator, PEPPER).await.map_err(PepperError::Store)? {
            Some(sealed) => sealed,
            None => {
                let made = seal.seal(&context, &rand::random::<[u8; PEPPER_BYTES]>());
                // Returns the pepper of another process if that was quicker.
                store.remember(operator, PEPPER, &made, false).await.map_err(PepperError::Store)?
            }
        };
        let opened = seal.open(&context, &sealed).filter(|bytes| bytes.len() == PEPPER_BYTES);
        opened.map(|bytes| Self::from_bytes(&bytes)).ok_or(PepperError::Sealed)
    }

    /// A pepper of these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, bytes), shared: true }
    }

    /// A pepper for a process that cannot open the one in the store. It checks keys of the configuration only.
    pub fn of_this_process() -> Self {
        Self { shared: false, ..Self::from_bytes(&rand::random::<[u8; PEPPER_BYTES]>()) }
    }

    /// An error if keys in the store cannot be checked with this pepper.
    pub fn expect_shared(&self) -> Result<(), StoreError> {
        match self.shared {
            true => Ok(()),
            false => Err(StoreError::Unavailable("its keys cannot be checked with this master key".to_owned())),
        }
    }

    /// The hash of a key. The state of the HMAC is prepared once, so that this is two rounds of SHA-256.
    pub fn hash(&self, key: &str) -> [u8; 32] {
        let tag = hmac::sign(&self.key, key.as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

impl fmt::Debug for Pepper {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pepper([redacted])")
    }
}

/// A key of the configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredKey {
    /// What its callers send.
    pub key: SecretString,
    /// The tenant that it belongs to, as stored.
    pub tenant: TenantRecord,
    /// What it may do.
    pub rights: Rights,
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyOrder {
    /// The tenant that it belongs to.
    pub tenant_id: i64,
    /// What it may do.
    pub rights: Rights,
    /// The only user that it acts for; none for a service key.
    pub user: Option<String>,
    /// A display name.
    pub label: Option<String>,
    /// Milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// A new key. It is stored as a hash, so this is the only time that it can be shown.
#[derive(Debug)]
pub struct IssuedKey {
    /// The key itself.
    pub key: SecretString,
    /// What is stored of it.
    pub record: KeyRecord,
}

/// Creates a key and stores its hash; none if the tenant does not exist.
pub async fn issue(
    store: &dyn TenancyStore,
    pepper: &Pepper,
    actor: &Actor,
    order: KeyOrder,
    now_ms: u64,
) -> Result<Option<IssuedKey>, StoreError> {
    pepper.expect_shared()?;
    let key = secret_text(KEY_PREFIX);
    let text = key.expose_secret();
    let record = KeyRecord {
        id: Ids::Unguessable.make(IdKind::Key),
        tenant_id: order.tenant_id,
        prefix: text.chars().take(SHOWN).collect(),
        label: order.label,
        rights: order.rights,
        user: order.user,
        created_at_ms: now_ms,
        expires_at_ms: order.expires_at_ms,
        revoked_at_ms: None,
        last_used_at_ms: None,
    };
    let audit = actor.change(now_ms, record.tenant_id, CREATE, record.id.as_str());
    let audit = audit.after(snapshot(&KeyView::from(record.clone())));
    let new = NewKey { record: record.clone(), hash: pepper.hash(text) };
    let kept = store.create_key(Operator::of_this_process(), new, audit).await?;
    Ok(kept.then_some(IssuedKey { key, record }))
}

/// A new secret: this prefix and 256 random bits.
pub(crate) fn secret_text(prefix: &str) -> SecretString {
    let mut rng = rand::rng();
    // Reserved at once: a buffer that grows would leave copies of the key in memory.
    let mut text = String::with_capacity(prefix.len() + LENGTH);
    text.push_str(prefix);
    for _ in 0..LENGTH {
        text.push(char::from(LETTERS[rng.random_range(0..LETTERS.len())]));
    }
    text.into_boxed_str().into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_have_256_bits_in_plain_characters_and_never_repeat() {
        let keys: HashSet<String> = (0..1000).map(|_| secret_text(KEY_PREFIX).expose_secret().to_owned()).collect();
        assert_eq!(keys.len(), 1000);
        for key in keys {
            let random = key.strip_prefix("am_").unwrap();
            assert!(random.len() == 43 && random.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{key}");
        }
        assert!((62_f64).log2() * LENGTH as f64 >= 256.0);
    }

    #[test]
    fn a_hash_depends_on_every_character_and_on_the_pepper() {
        let (one, other) = (Pepper::from_bytes(&[1; 32]), Pepper::from_bytes(&[2; 32]));
        assert_eq!(one.hash("am_key"), one.hash("am_key"));
        assert_ne!(one.hash("am_key"), one.hash("am_kez"));
        assert_ne!(one.hash("am_key"), other.hash("am_key"));
    }

    // P12
    #[test]
    fn neither_pepper_nor_key_is_printed() {
        let issued = secret_text(KEY_PREFIX);
        let shown = format!("{:?} {issued:?}", Pepper::from_bytes(&[1; 32]));
        assert!(!shown.contains(issued.expose_secret()) && shown.contains("Pepper([redacted])"), "{shown}");
    }
}
