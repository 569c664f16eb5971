//! Browser sessions of the console: sign-in with a key, a one-time link or by the OpenID Connect provider, the list of sessions, and their end.
//!
//! The tokens of sessions and links are 256 random bits. The store has keyed hashes of them, with a separate purpose
//! for each kind, so that no token can be used as one of another kind or as an API key.

use std::time::Duration;

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Fault, FaultKind, INSTALLATION, IdKind, Ids, Operator, Rights, Scope, hex,
    store::{ConsoleOwner, ConsoleSession, ConsoleUser, Page, SignIn},
};
use bytes::Bytes;
use schemars::JsonSchema;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Administration,
    access::{known_id, no_tenant, target_tenant},
    audit::snapshot,
    fields::{Line, UnixSeconds},
    keys::{KeyScopes, Pepper, secret_text},
    list::List,
    request,
};

/// The lifetime of a link.
pub const LINK_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// The time after which an unused session ends.
pub const IDLE_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// The maximum lifetime of a session.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The session in not-found errors.
const SESSION: &str = "console session";

const LINK_CREATE: AuditAction = AuditAction::new("console_link.create");
const OPEN: AuditAction = AuditAction::new("console_session.create");
const CLOSE: AuditAction = AuditAction::new("console_session.delete");

/// The longest description of a browser that is stored.
const MAX_BROWSER: usize = 300;

/// A browser session of the console.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "ConsoleSession")]
pub struct ConsoleSessionView {
    /// The id of the session; not secret.
    pub id: String,
    #[schemars(extend("const" = "console.session"))]
    object: &'static str,
    #[schemars(range(min = 1))]
    tenant_id: i64,
    /// The rights at the sign-in. A session that was opened with a key has the rights that the key has now; one of the OpenID
    /// Connect provider keeps those of the claims.
    scopes: KeyScopes,
    /// The stored key that opened the session; null for a key of the configuration, for a link and for the provider.
    key_id: Option<String>,
    /// The user that the OpenID Connect provider named; null for keys and links.
    user_id: Option<String>,
    /// The email address or another name of this user, as the provider gave it.
    user_name: Option<String>,
    /// How the session began.
    #[schemars(extend("enum" = ["key", "link", "oidc"]))]
    sign_in: &'static str,
    /// What the browser calls itself.
    browser: Option<String>,
    /// The client's address at the sign-in.
    address: Option<String>,
    created_at: UnixSeconds,
    /// Unix time in seconds, accurate to about a minute.
    last_used_at: UnixSeconds,
    /// The session ends then, or earlier if it is not used for twelve hours.
    expires_at: UnixSeconds,
}

impl From<ConsoleSession> for ConsoleSessionView {
    fn from(session: ConsoleSession) -> Self {
        let (user_id, user_name) = session.user.map(|user| (user.id, user.name)).unzip();
        Self {
            id: session.id,
            object: "console.session",
            tenant_id: session.owner.tenant_id,
            scopes: KeyScopes(session.owner.rights),
            key_id: session.owner.key_id,
            user_id,
            user_name: user_name.flatten(),
            sign_in: session.sign_in.name(),
            browser: session.browser,
            address: session.address,
            created_at: UnixSeconds::from_ms(session.created_at_ms),
            last_used_at: UnixSeconds::from_ms(session.last_used_at_ms),
            expires_at: UnixSeconds::from_ms(session.expires_at_ms),
        }
    }
}

/// The session of the calling browser.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CurrentConsoleSession {
    #[serde(flatten)]
    #[schemars(description = "")]
    session: ConsoleSessionView,
    /// The name of the tenant.
    tenant_name: String,
    /// The owner of what is created in the session.
    user: String,
    /// The rights in force.
    rights: KeyScopes,
    /// To be sent as `X-Amalgam-CSRF` with requests that the cookie authenticates.
    csrf_token: String,
}

impl CurrentConsoleSession {
    /// The id of the session.
    pub fn id(&self) -> &str {
        &self.session.id
    }

    /// Whether the OpenID Connect provider opened the session.
    pub fn is_of_provider(&self) -> bool {
        self.session.sign_in == SignIn::Oidc.name()
    }

    /// The session of the browser that has this token.
    pub fn new(session: ConsoleSession, tenant_name: String, scope: &Scope, csrf_token: String) -> Self {
        let (user, rights) = (scope.user().to_owned(), KeyScopes(scope.rights()));
        Self { session: session.into(), tenant_name, user, rights, csrf_token }
    }
}

/// A new session of the console; its cookie is in `Set-Cookie`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NewConsoleSession {
    #[serde(flatten)]
    #[schemars(description = "")]
    session: ConsoleSessionView,
    /// To be sent as `X-Amalgam-CSRF` with requests that the cookie authenticates.
    csrf_token: String,
}

impl NewConsoleSession {
    /// The session with its CSRF token.
    pub fn new(session: ConsoleSession, csrf_token: String) -> Self {
        Self { session: session.into(), csrf_token }
    }
}

/// What the console needs to know before it shows a page.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ConsoleStatus {
    #[schemars(extend("const" = "console"))]
    object: &'static str,
    /// The version of the server.
    version: String,
    /// The session of the calling browser; null if it is not signed in.
    session: Option<CurrentConsoleSession>,
    /// The OpenID Connect provider; null if none is configured.
    single_sign_on: Option<SingleSignOn>,
}

impl ConsoleStatus {
    /// The status for a browser with or without a session. `provider` is the name of the OpenID Connect provider.
    pub fn new(version: &str, session: Option<CurrentConsoleSession>, provider: Option<&str>) -> Self {
        let single_sign_on =
            provider.map(|name| SingleSignOn { name: name.to_owned(), start_path: SINGLE_SIGN_ON_START });
        Self { object: "console", version: version.to_owned(), session, single_sign_on }
    }
}

/// The path at which a browser begins to sign in by the OpenID Connect provider.
pub const SINGLE_SIGN_ON_START: &str = "/admin/console/oidc/start";

/// Sign-in by the OpenID Connect provider.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SingleSignOn {
    /// The name of the provider, for people.
    name: String,
    /// Where the browser begins. The parameter `return_to` is the path of the page that was asked for.
    #[schemars(extend("const" = SINGLE_SIGN_ON_START))]
    start_path: &'static str,
}

/// A session that was ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct DeletedConsoleSession {
    /// The id of the session.
    pub id: String,
    #[schemars(extend("const" = "console.session.deleted"))]
    object: &'static str,
    #[schemars(extend("const" = true))]
    deleted: bool,
    /// Where the browser ends its session at the OpenID Connect provider. Only in the answer to a sign-out, if
    /// `console.oidc.end_session` is set and the provider has such an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_session_url: Option<String>,
}

/// A one-time link to use.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RedeemConsoleLink {
    /// The token behind `#link=`.
    token: Line<128>,
}

/// Who opens a session.
#[derive(Debug, Clone)]
pub struct SessionOpener {
    /// Tenant, rights and key.
    pub owner: ConsoleOwner,
    /// The user that the OpenID Connect provider named.
    pub user: Option<ConsoleUser>,
    /// How.
    pub sign_in: SignIn,
    /// With which browser.
    pub browser: Browser,
}

/// A new session. The token is stored as a hash, so this is the only time that it is known.
pub struct OpenedConsoleSession {
    /// The value of the cookie.
    pub token: SecretString,
    /// What is stored.
    pub session: ConsoleSession,
}

/// The browser that signs in.
#[derive(Debug, Clone, Default)]
pub struct Browser {
    /// What it calls itself.
    pub name: Option<String>,
    /// Its address.
    pub address: Option<String>,
}

/// The hash of a session's token. Keys contain no line break, so that no key has such a hash.
pub fn session_hash(pepper: &Pepper, token: &str) -> [u8; 32] {
    pepper.hash(&["console session\n", token].concat())
}

/// The CSRF token of a session: its pages read it from the API and send it in a header, which pages of other sites cannot do.
pub fn csrf_token(pepper: &Pepper, token: &str) -> String {
    hex(&pepper.hash(&["console csrf\n", token].concat()))
}

fn link_hash(pepper: &Pepper, token: &str) -> [u8; 32] {
    pepper.hash(&["console link\n", token].concat())
}

/// Whether a session has ended.
pub fn is_over(session: &ConsoleSession, now_ms: u64) -> bool {
    session.expires_at_ms <= now_ms || session.last_used_at_ms.saturating_add(millis(IDLE_LIFETIME)) <= now_ms
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Administration<'_> {
    /// Creates a one-time link and returns its token.
    pub async fn create_console_link(&self, pepper: &Pepper, owner: ConsoleOwner) -> Result<SecretString, Fault> {
        pepper.expect_shared()?;
        let (tenant_id, rights) = (owner.tenant_id, KeyScopes(owner.rights));
        let expires_at_ms = self.now_ms.saturating_add(millis(LINK_LIFETIME));
        let token = secret_text("acl_");
        let after =
            json!({"scopes": rights, "key_id": owner.key_id, "expires_at": UnixSeconds::from_ms(expires_at_ms)});
        let audit = self.change(tenant_id, LINK_CREATE, "").after(snapshot(&after));
        let hash = link_hash(pepper, token.expose_secret());
        match self.store.add_console_link(process(), hash, owner, expires_at_ms, audit).await? {
            true => Ok(token),
            false => Err(no_tenant(tenant_id)),
        }
    }

    /// Uses the link in `body`: whom it admits, or none if it is unknown, used or expired.
    pub async fn redeem_console_link(&self, pepper: &Pepper, body: &Bytes) -> Result<Option<ConsoleOwner>, Fault> {
        pepper.expect_shared()?;
        let RedeemConsoleLink { token } = request::parse(body)?;
        Ok(self.store.take_console_link(process(), link_hash(pepper, &token.0), self.now_ms).await?)
    }

    /// Opens a session.
    pub async fn open_console_session(
        &self,
        pepper: &Pepper,
        opener: SessionOpener,
    ) -> Result<OpenedConsoleSession, Fault> {
        pepper.expect_shared()?;
        let SessionOpener { owner, user, sign_in, browser } = opener;
        if !is_console_right(owner.rights) {
            let message = "The console needs a key with one of the scopes `view`, `admin` and `operator`.";
            return Err(Fault::new(FaultKind::Forbidden, message));
        }
        let token = secret_text("acs_");
        let printable = |text: String| text.chars().filter(|one| !one.is_control()).take(MAX_BROWSER).collect();
        let session = ConsoleSession {
            id: Ids::Unguessable.make(IdKind::ConsoleSession),
            owner,
            user,
            sign_in,
            browser: browser.name.map(printable),
            address: browser.address,
            created_at_ms: self.now_ms,
            last_used_at_ms: self.now_ms,
            expires_at_ms: self.now_ms.saturating_add(millis(SESSION_LIFETIME)),
        };
        let tenant_id = session.owner.tenant_id;
        let audit = self.change(tenant_id, OPEN, session.id.as_str());
        let audit = audit.after(snapshot(&ConsoleSessionView::from(session.clone())));
        let hash = session_hash(pepper, token.expose_secret());
        let ended_before = self.now_ms.saturating_sub(millis(IDLE_LIFETIME));
        match self.store.add_console_session(process(), hash, session.clone(), ended_before, audit).await? {
            true => Ok(OpenedConsoleSession { token, session }),
            false => Err(no_tenant(tenant_id)),
        }
    }

    /// Sessions ordered by id: of the named tenant, or of all tenants that the caller can access. Ended sessions are
    /// left out.
    pub async fn console_sessions(
        &self,
        scope: &Scope,
        named: Option<i64>,
        page: &Page,
    ) -> Result<List<ConsoleSessionView, String>, Fault> {
        let tenant_id = target_tenant(scope, named)?;
        let sessions = self.store.console_sessions(process(), tenant_id, page.after.as_deref(), page.limit + 1).await?;
        let next = (sessions.len() > page.limit).then(|| sessions[page.limit - 1].id.clone());
        let lasting = sessions.into_iter().take(page.limit).filter(|session| !is_over(session, self.now_ms));
        Ok(List::until(lasting.map(ConsoleSessionView::from).collect(), next, |session| session.id.clone()))
    }

    /// Ends a session.
    pub async fn end_console_session(
        &self,
        scope: &Scope,
        named: Option<i64>,
        id: &str,
    ) -> Result<DeletedConsoleSession, Fault> {
        let id = known_id(SESSION, id)?;
        let tenant_id = match (named, scope.operator()) {
            (None, Some(_)) => None,
            (named, _) => target_tenant(scope, named)?,
        };
        // The store finds out the session's tenant.
        let audit = self.change(tenant_id.unwrap_or(INSTALLATION), CLOSE, id).before(snapshot(&json!({"id": id})));
        let removed = self.store.remove_console_session(process(), tenant_id, id, audit).await?;
        let removed = removed.ok_or_else(|| not_found(SESSION, id))?;
        Ok(DeletedConsoleSession {
            id: removed.id,
            object: "console.session.deleted",
            deleted: true,
            end_session_url: None,
        })
    }
}

/// Whether a caller with these rights can use the console.
fn is_console_right(rights: Rights) -> bool {
    [Rights::VIEW, Rights::ADMIN, Rights::OPERATOR].iter().any(|right| rights.contains(*right))
}

/// The store is called as the process: the service has checked which tenant's sessions the caller reaches.
fn process() -> Operator {
    Operator::of_this_process()
}
