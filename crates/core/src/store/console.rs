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

    /// The way of signing in with this name; `None` for other names.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Key, Self::Link, Self::Oidc].into_iter().find(|way| way.name() == name)
    }
}

/// The tenant and the rights of a session or a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleOwner {
    /// The tenant's id.
    pub tenant_id: i64,
    /// The rights of the session. If it was opened with a key, the key's current rights replace these.
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
    /// The tenant and the rights.
    pub owner: ConsoleOwner,
    /// The user that the provider named; none for keys and links.
    pub user: Option<ConsoleUser>,
    /// How the browser signed in.
    pub sign_in: SignIn,
    /// The `User-Agent` of the browser.
    pub browser: Option<String>,
    /// The client's address at sign-in.
    pub address: Option<String>,
    /// Milliseconds since 1970.
    pub created_at_ms: u64,
    /// Milliseconds since 1970, accurate to a minute.
    pub last_used_at_ms: u64,
    /// The time at which the session ends even if it is in use, in milliseconds since 1970.
    pub expires_at_ms: u64,
}

/// Sessions and links of the console, for the operator.
pub trait ConsoleStore: Send + Sync {
    /// Stores a session under the hash of its token. Also deletes sessions that have expired or were last used before
    /// `ended_before_ms`. Returns `false` if the tenant does not exist.
    fn add_console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        session: ConsoleSession,
        ended_before_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool>;

    /// Returns the session with this hash and its tenant, expired or not; `None` if there is none.
    fn console_session(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
    ) -> Stored<'_, Option<(ConsoleSession, TenantRecord)>>;

    /// Updates the time of last use. No effect if the session does not exist.
    fn touch_console_session<'a>(&'a self, operator: Operator, id: &'a str, now_ms: u64) -> Stored<'a, ()>;

    /// Returns at most `limit` sessions with ids above `after`, of one tenant or of all, sorted by id.
    fn console_sessions<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        after: Option<&'a str>,
        limit: usize,
    ) -> Stored<'a, Vec<ConsoleSession>>;

    /// Deletes a session, of one tenant or of any, and returns it; `None` if there was none.
    fn remove_console_session<'a>(
        &'a self,
        operator: Operator,
        tenant_id: Option<i64>,
        id: &'a str,
        audit: AuditDraft,
    ) -> Stored<'a, Option<ConsoleSession>>;

    /// Stores a one-time link under the hash of its token. Returns `false` if the tenant does not exist.
    fn add_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        owner: ConsoleOwner,
        expires_at_ms: u64,
        audit: AuditDraft,
    ) -> Stored<'_, bool>;

    /// Deletes a link and returns its owner; `None` if there is no link or it has expired at `now_ms`.
    fn take_console_link(
        &self,
        operator: Operator,
        token_hash: [u8; 32],
        now_ms: u64,
    ) -> Stored<'_, Option<ConsoleOwner>>;
}
