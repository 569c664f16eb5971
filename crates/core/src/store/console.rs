//! Browser sessions of the console, and the one-time links that open them.
//!
//! Tokens are stored as keyed hashes. A session that was opened with a key names the hash of that key: it has the rights of
//! the key, and ends with it. One that the OpenID Connect provider opened names the user, and has the rights that the claims gave
//! at the sign-in.

use super::{Stored, TenantRecord};
use crate::audit::AuditDraft;
use crate::scope::{Operator, Rights};

/// How a browser signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignIn {
    /// With an API key.
    Key,
    /// With a one-time link.
    Link,
    /// By the OpenID Connect provider.
    Oidc,
}

impl SignIn {
    /// Its name in the store and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Link => "link",
            Self::Oidc => "oidc",
        }
    }

    /// The way with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Key, Self::Link, Self::Oidc].into_iter().find(|way| way.name() == name)
    }
}

/// Who a session or a link belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOwner {
    /// The tenant.
    pub tenant_id: i64,
    /// The rights; those of the key replace them if there is one.
    pub rights: Rights,
    /// The id of the stored key, to show it.
    pub key_id: Option<String>,
    /// The hash of the key, stored or of the configuration; none for a link from the machine and for the provider.
    pub key_hash: Option<[u8; 32]>,
}

/// Who signed in by the OpenID Connect provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleUser {
    /// The owner of what is created in the session.
    pub id: String,
    /// A name for people.
    pub name: Option<String>,
}

/// A browser session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleSession {
    /// `csn_…`; not secret.
    pub id: String,
    /// Whose it is.
    pub owner: ConsoleOwner,
    /// The user that the provider named; none for keys and links.
    pub user: Option<ConsoleUser>,
    /// How it began.
    pub sign_in: SignIn,
    /// What the browser calls itself.
    pub browser: Option<String>,
    /// The client's address at the start.
    pub address: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970, a minute more or less.
    pub last_used_at_ms: u64,
    /// The time after which it is refused even if it is in use.
    pub expires_at_ms: u64,
}

/// Sessions and links of the console, for the operator.
pub trait ConsoleStore: Send + Sync {
    /// Stores a session under the hash of its token, and removes those that have ended: `ended_before` is the latest time of
    /// last use that has ended one. `false` if the tenant does not exist.
    fn add_console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        session: ConsoleSession,
        ended_before_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool>;

    /// The session with this hash, however old, with its tenant.
    fn console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
    ) -> Stored<'_, Option<(ConsoleSession, TenantRecord)>>;

    /// Records that a session was used.
    fn touch_console_session<'a>(&'a self, operator: Operator, id: &'a str, now_ms: u64) -> Stored<'a, ()>;

    /// Sessions of one tenant or of all, by id, behind `after`.
    fn console_sessions<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<ConsoleSession>>;

    /// Removes a session, of one tenant or of any; nothing if there is none.
    fn remove_console_session<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        audit: AuditDraft,
    ) -> Stored<'a, Option<ConsoleSession>>;

    /// Stores a one-time link under the hash of its token. `false` if the tenant does not exist.
    fn add_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        owner: ConsoleOwner,
        expires_at_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool>;

    /// Removes a link, and returns whom it admits if it has not expired.
    fn take_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        now_ms: u64,
    ) -> Stored<'_, Option<ConsoleOwner>>;
}
