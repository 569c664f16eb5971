//! Browser sessions in the store: how they are opened, their rights, and when they end.

use std::net::IpAddr;

use amalgam_administration::console::is_over;
use amalgam_core::{Fault, Operator, Scope, StoreError, store::ConsoleOwner};
use http::{HeaderMap, header};
use tokio::time::Instant;

use super::{Auth, Inner, cache::Hash, identity::Identity, too_many, unknown};

/// How often the last use of a browser session is recorded.
const TOUCH_INTERVAL_MS: u64 = 60_000;

impl Auth {
    /// Removes a browser session from the cache.
    pub(crate) fn forget_session(&self, id: &str) {
        self.0.cache.forget(|identity| identity.session_id.as_deref() == Some(id));
    }

    /// The owner of a session that the key of this request opens; none if the request has no key.
    pub(crate) fn owner_of_session(&self, headers: &HeaderMap, scope: &Scope) -> Option<ConsoleOwner> {
        let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| ConsoleOwner {
            tenant_id: scope.tenant_id(),
            rights: scope.rights(),
            key_id: scope.key_id().map(|id| id.to_string()),
            key_hash: Some(self.0.pepper.hash(key.trim())),
        })
    }

    /// The fault if too many unknown credentials came from this address.
    pub(crate) fn expect_few_attempts(&self, address: Option<IpAddr>) -> Result<(), Fault> {
        self.0.attempts.wait(address, Instant::now()).map_or(Ok(()), |wait| Err(too_many(wait)))
    }

    /// Counts an unknown credential of this address.
    pub(crate) fn failed_attempt(&self, address: Option<IpAddr>) -> Fault {
        self.0.attempts.failed(address, Instant::now()).map_or_else(unknown, too_many)
    }
}

impl Inner {
    /// The identity of the session's key if it has one: the session has the rights of the key, and ends with it.
    pub(super) async fn session_identity(&self, hash: Hash) -> Result<Option<Identity>, StoreError> {
        self.pepper.expect_shared()?;
        let (operator, now_ms) = (Operator::of_this_process(), self.clock.now_ms());
        let Some((session, tenant)) = self.sessions.console_session(operator, hash).await? else { return Ok(None) };
        if is_over(&session, now_ms) {
            return Ok(None);
        }
        let configured = |hash: &Hash| self.configured.load().keys.get(hash).copied();
        let identity = match (&session.user, &session.owner.key_hash) {
            // The claims gave the rights, and only while the provider is configured.
            (Some(user), _) if self.single_sign_on => {
                Some(Identity::of_provider(&tenant, &user.id, session.owner.rights))
            }
            (Some(_), _) => None,
            (None, None) => Some(Identity::of_console(&tenant, session.owner.rights)),
            (None, Some(key)) => match configured(key) {
                Some((tenant_id, rights)) => self.configured_identity(key, tenant_id, rights).await?,
                None => self.stored_identity(*key).await?,
            },
        };
        if session.last_used_at_ms.saturating_add(TOUCH_INTERVAL_MS) <= now_ms {
            self.sessions.touch_console_session(operator, &session.id, now_ms).await?;
        }
        Ok(identity.map(|identity| identity.in_session(session.id, session.expires_at_ms)))
    }
}
