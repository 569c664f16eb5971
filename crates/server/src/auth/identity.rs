//! The identity behind a credential, and the users for whom it may act.

use std::sync::Arc;

use amalgam_administration::keys::{KEY_OWNER, is_user};
use amalgam_assistant::client_secret::ClientSecret;
#[cfg(test)]
use amalgam_core::TenantState;
use amalgam_core::{
    Fault, FaultKind, Rights, Scope,
    store::{KeyRecord, TenantRecord},
};
use http::{HeaderMap, HeaderName};

/// Names the user on whose behalf a service key acts.
pub(super) const USER: HeaderName = HeaderName::from_static("x-amalgam-user");

/// The owner of data of callers with a configured key, and of callers without a key.
const CONFIGURED_OWNER: &str = "key:config";

/// The owner of data of sessions of the console that no key has opened.
const CONSOLE_OWNER: &str = "key:console";

/// A verified credential.
#[derive(Debug)]
pub(super) struct Identity {
    /// The scope if the request names no user.
    scope: Scope,
    /// Whether the caller may name a user.
    acts_for: ActsFor,
    /// The id of the key in the store.
    pub(super) key_id: Option<String>,
    /// The browser session.
    pub(super) session_id: Option<String>,
    /// Milliseconds since 1970.
    pub(super) expires_at_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActsFor {
    /// A service key: for any user that it names.
    AnyUser,
    /// For its own user only.
    OwnUser,
}

impl Identity {
    /// A key of the store.
    pub(super) fn of_key(key: &KeyRecord, tenant: &TenantRecord) -> Self {
        let (user, acts_for) = match &key.user {
            Some(user) => (Arc::from(user.as_str()), ActsFor::OwnUser),
            None => (format!("{KEY_OWNER}{}", key.id).into(), ActsFor::AnyUser),
        };
        let scope = authenticated(tenant, user, key.rights).with_key(Some(key.id.as_str().into()));
        Self { scope, acts_for, key_id: Some(key.id.clone()), session_id: None, expires_at_ms: key.expires_at_ms }
    }

    /// A key of the configuration, with this id; a caller without a key has none.
    pub(super) fn configured(tenant: &TenantRecord, rights: Rights, id: Option<String>) -> Self {
        let scope = authenticated(tenant, CONFIGURED_OWNER.into(), rights).with_key(id.map(Into::into));
        Self { scope, acts_for: ActsFor::AnyUser, key_id: None, session_id: None, expires_at_ms: None }
    }

    /// A caller without a key, where none is needed.
    pub(super) fn open(tenant: &TenantRecord) -> Self {
        let identity = Self::configured(tenant, Rights::USE, None);
        Self { scope: identity.scope.without_credential(), ..identity }
    }

    /// The subject of a signed token; none for a name that no user can have.
    pub(super) fn of_subject(subject: &str, tenant: &TenantRecord, expires_at_ms: u64) -> Option<Self> {
        if !is_user(subject) {
            return None;
        }
        let scope = authenticated(tenant, subject.into(), Rights::USE);
        let expires_at_ms = Some(expires_at_ms);
        Some(Self { scope, acts_for: ActsFor::OwnUser, key_id: None, session_id: None, expires_at_ms })
    }

    /// A browser session that access to the server's machine has opened.
    pub(super) fn of_console(tenant: &TenantRecord, rights: Rights) -> Self {
        let scope = authenticated(tenant, CONSOLE_OWNER.into(), rights);
        Self { scope, acts_for: ActsFor::AnyUser, key_id: None, session_id: None, expires_at_ms: None }
    }

    /// A browser session that the OpenID Connect provider has opened for this user. An administrator may act for any user of the
    /// tenant, as with a key.
    pub(super) fn of_provider(tenant: &TenantRecord, user: &str, rights: Rights) -> Self {
        let manages = rights.contains(Rights::ADMIN) || rights.contains(Rights::OPERATOR);
        let acts_for = if manages { ActsFor::AnyUser } else { ActsFor::OwnUser };
        let scope = authenticated(tenant, user.into(), rights);
        Self { scope, acts_for, key_id: None, session_id: None, expires_at_ms: None }
    }

    /// The same in a browser session, which ends at this time at the latest.
    pub(super) fn in_session(self, id: String, ends_at_ms: u64) -> Self {
        let expires_at_ms = Some(self.expires_at_ms.map_or(ends_at_ms, |at| at.min(ends_at_ms)));
        Self { session_id: Some(id), expires_at_ms, ..self }
    }

    pub(super) fn tenant_id(&self) -> i64 {
        self.scope.tenant_id()
    }

    pub(super) fn rights(&self) -> Rights {
        self.scope.rights()
    }

    pub(super) fn is_over(&self, now_ms: u64) -> bool {
        self.expires_at_ms.is_some_and(|at| at <= now_ms)
    }

    /// The caller's scope, on behalf of the user that the request names.
    pub(super) fn scope(&self, headers: &HeaderMap) -> Result<Scope, Fault> {
        let mut values = headers.get_all(USER).iter();
        let Some(value) = values.next() else { return Ok(self.scope.clone()) };
        let wrong = |message: &'static str| Err(Fault::invalid("X-Amalgam-User", message));
        if values.next().is_some() {
            return wrong("More than one X-Amalgam-User header was sent.");
        }
        let user = std::str::from_utf8(value.as_bytes()).unwrap_or_default();
        if user == self.scope.user() {
            return Ok(self.scope.clone());
        }
        if user.starts_with(KEY_OWNER) {
            return Err(Fault::new(FaultKind::Forbidden, "What a key keeps for itself belongs to that key alone."));
        }
        if !is_user(user) {
            return wrong("X-Amalgam-User must have 1 to 256 visible characters.");
        }
        match self.acts_for {
            ActsFor::AnyUser => Ok(named(&self.scope, user)),
            ActsFor::OwnUser => Err(Fault::new(
                FaultKind::Forbidden,
                "This credential belongs to one user and cannot act on behalf of another one.",
            )),
        }
    }

    /// The scope of a caller with a browser token that this identity has issued.
    pub(super) fn scope_of_client(&self, headers: &HeaderMap, client: &ClientSecret) -> Result<Scope, Fault> {
        let names_another = headers.get_all(USER).iter().any(|user| user.as_bytes() != client.user.as_bytes());
        let may_issue = self.acts_for == ActsFor::AnyUser || self.scope.user() == client.user;
        match may_issue && !names_another {
            true => Ok(of_client(&self.scope, client)),
            false => Err(Fault::new(FaultKind::Forbidden, "This token belongs to one user.")),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(tenant_id: i64, state: TenantState, rights: Rights) -> Self {
        Self::configured(&tenant_for_tests(tenant_id, state), rights, None)
    }
}

#[cfg(test)]
pub(super) fn tenant_for_tests(id: i64, state: TenantState) -> TenantRecord {
    TenantRecord { id, name: "test".to_owned(), state, ai_agent_enabled: true, created_at_ms: 0 }
}

#[expect(clippy::disallowed_methods, reason = "this is authentication")]
fn authenticated(tenant: &TenantRecord, user: Arc<str>, rights: Rights) -> Scope {
    Scope::authenticated(tenant.id, user, tenant.state, rights)
}

#[expect(clippy::disallowed_methods, reason = "this is authentication")]
fn named(scope: &Scope, user: &str) -> Scope {
    let named =
        Scope::authenticated(scope.tenant_id(), user, scope.state(), scope.rights()).with_key(scope.key_id().cloned());
    if scope.has_credential() { named } else { named.without_credential() }
}

#[expect(clippy::disallowed_methods, reason = "this is authentication")]
fn of_client(issuer: &Scope, client: &ClientSecret) -> Scope {
    Scope::authenticated(issuer.tenant_id(), client.user.as_str(), issuer.state(), Rights::USE)
        .with_key(issuer.key_id().cloned())
        .with_client(client.terms.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(users: &[&str]) -> HeaderMap {
        users.iter().map(|user| (USER, user.parse().unwrap())).collect()
    }

    fn key(user: Option<&str>) -> Identity {
        let record = KeyRecord {
            id: "key_1".to_owned(),
            tenant_id: 3,
            prefix: "am_1".to_owned(),
            label: None,
            rights: Rights::USE,
            user: user.map(str::to_owned),
            created_at_ms: 0,
            expires_at_ms: None,
            revoked_at_ms: None,
            last_used_at_ms: None,
        };
        Identity::of_key(&record, &tenant_for_tests(3, TenantState::Stored))
    }

    #[test]
    fn a_service_key_acts_for_whom_it_names_and_else_for_itself() {
        let key = key(None);
        assert_eq!(key.scope(&headers(&[])).unwrap().user(), "key:key_1");
        assert_eq!(key.scope(&headers(&["ada@example.org"])).unwrap().user(), "ada@example.org");
    }

    // right E5
    #[test]
    fn no_key_names_the_own_user_of_another_key() {
        let key = key(None);
        assert_eq!(key.scope(&headers(&["key:key_1"])).unwrap().user(), "key:key_1");
        for other in ["key:key_2", "key:config", "key:"] {
            assert_eq!(key.scope(&headers(&[other])).unwrap_err().kind, FaultKind::Forbidden, "{other}");
        }
        assert!(!is_user("key:key_2") && is_user("keyboard"));
    }

    #[test]
    fn a_key_of_one_user_names_no_other_user() {
        let key = key(Some("ada"));
        assert_eq!(key.scope(&headers(&[])).unwrap().user(), "ada");
        assert_eq!(key.scope(&headers(&["ada"])).unwrap().user(), "ada");
        assert_eq!(key.scope(&headers(&["bob"])).unwrap_err().kind, FaultKind::Forbidden);
    }

    #[test]
    fn what_cannot_be_a_user_is_told_so() {
        let key = key(None);
        let longest = "x".repeat(256);
        assert_eq!(key.scope(&headers(&[&longest])).unwrap().user(), longest);
        for wrong in [&[""][..], &["a b"], &["a\tb"], &[&"x".repeat(257)], &["ada", "bob"]] {
            let fault = key.scope(&headers(wrong)).unwrap_err();
            assert_eq!((fault.kind, fault.param.as_deref()), (FaultKind::Invalid, Some("X-Amalgam-User")), "{wrong:?}");
        }
    }

    // P10
    #[test]
    fn no_token_speaks_for_a_key() {
        let tenant = tenant_for_tests(1, TenantState::Stored);
        assert!(Identity::of_subject("ada", &tenant, 1).is_some());
        for subject in ["key:config", "key:key_1", "", "a b", &"x".repeat(257)] {
            assert!(Identity::of_subject(subject, &tenant, 1).is_none(), "{subject}");
        }
    }
}
