//! Authentication: one service for every wire. Without a credential there is no scope.
//!
//! Callers send one of three kinds of credentials as `Authorization: Bearer …`, or as `x-api-key`: keys of the configuration, keys of the
//! store (`am_…`), and signed tokens. Pages of the console send the cookie of a browser session instead. A recent result
//! comes from a cache; everything else is looked up in the store, and while the store does not answer, no caller is admitted.

mod attempts;
pub(crate) mod browser;
mod cache;
pub(crate) mod client_secrets;
mod identity;
mod jwt;
mod last_used;
mod sessions;

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use amalgam_administration::{
    console::session_hash,
    keys::{ConfiguredKey, KEY_PREFIX, Pepper, configured_key_id},
};
use amalgam_assistant::client_secret::ClientSecret;
use amalgam_core::{
    BoxFuture, Clock, Fault, FaultKind, Operator, Rights, Scope, StoreError,
    store::{ConsoleStore, TenancyStore, TenantRecord},
};
use amalgam_listener::{ConnectionKey, KeyConnections, Peer, TrustedProxies};
use arc_swap::ArcSwap;
use http::{Extensions, HeaderMap, HeaderName, Request, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use tokio::{sync::Semaphore, time::Instant};

use self::attempts::Attempts;
use self::cache::{Cache, CacheEntry, Hash};
use self::identity::Identity;
use self::jwt::Jwt;
use self::last_used::LastUsed;
use crate::origins::Page;

pub use self::jwt::JwtSettings;

/// The header in which clients of Anthropic send their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The timeout for a lookup in the store.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The number of concurrent lookups for addresses that have tried too many unknown keys.
const MAX_GUESS_LOOKUPS: usize = 4;

/// The parts of authentication.
pub struct AuthParts {
    /// Tenants and keys.
    pub store: Arc<dyn TenancyStore>,
    /// Browser sessions.
    pub sessions: Arc<dyn ConsoleStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The secret with which keys are hashed.
    pub pepper: Pepper,
    /// Keys that are valid independently of the store.
    pub configured: Vec<ConfiguredKey>,
    /// The tenant of callers without a key, where none is needed; the binary allows that on loopback only.
    pub open: Option<TenantRecord>,
    /// Which tokens are accepted.
    pub jwt: Option<JwtSettings>,
    /// Whether sessions of the OpenID Connect provider are accepted: one is configured.
    pub single_sign_on: bool,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub proxies: TrustedProxies,
    /// The maximum number of connections per key.
    pub max_connections_per_key: usize,
}

/// Authenticates callers. Cheap to clone.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

struct Inner {
    store: Arc<dyn TenancyStore>,
    sessions: Arc<dyn ConsoleStore>,
    clock: Arc<dyn Clock>,
    pepper: Pepper,
    configured: ArcSwap<ConfiguredCallers>,
    jwt: Option<Jwt>,
    single_sign_on: bool,
    cache: Cache,
    attempts: Attempts,
    /// Limits concurrent lookups for addresses that tried too many unknown keys, so that guessing costs the store
    /// little.
    guesses: Semaphore,
    proxies: TrustedProxies,
    key_connections: KeyConnections,
    last_used: LastUsed,
}

/// The callers of the configuration, which a reload replaces.
#[derive(Default)]
struct ConfiguredCallers {
    /// The tenant and the rights of each configured key; a caller without a key has no rights of its own.
    keys: HashMap<Hash, (i64, Option<Rights>)>,
    /// The cache key of callers without a credential, where none is needed.
    open: Option<Hash>,
}

/// The kind of right that a route requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredRight {
    /// The right to use the API.
    Use,
    /// The right to use the API or to administer, always with a key: to issue browser tokens.
    Issue,
    /// A right to administer, always with a key.
    Admin,
    /// The right to read what administrators read, always with a key.
    View,
    /// The right to read metrics, or to administer.
    Metrics,
}

/// The outcome of authentication.
pub(crate) enum CallerLookup {
    /// The result is known without the store.
    Done(Result<Scope, Fault>),
    /// The result of a lookup in the store.
    Pending(BoxFuture<'static, Result<Scope, Fault>>),
}

/// How a credential is verified.
enum Source {
    /// The key is known; its tenant may have changed.
    Configured { tenant_id: i64, rights: Option<Rights> },
    /// A key that only the store can look up.
    Stored,
    /// The signature proves the token; its tenant has to exist.
    Token(SecretString),
    /// A browser session.
    Session,
}

/// The credential that a caller sent.
enum Credential<'r> {
    /// No credential, where none is needed.
    None,
    /// A key or a token.
    Bearer(&'r str),
    /// The cookie of a browser session.
    Cookie,
    /// A browser token.
    ClientSecret(&'r Arc<ClientSecret>),
}

impl Auth {
    /// Starts with the configured keys in the cache.
    pub fn new(parts: AuthParts) -> Self {
        let AuthParts {
            store,
            sessions,
            clock,
            pepper,
            configured,
            open,
            jwt,
            single_sign_on,
            proxies,
            max_connections_per_key,
        } = parts;
        let auth = Self(Arc::new(Inner {
            store,
            sessions,
            clock,
            pepper,
            configured: ArcSwap::default(),
            jwt: jwt.map(Jwt::new),
            single_sign_on,
            cache: Cache::new(),
            attempts: Attempts::default(),
            guesses: Semaphore::new(MAX_GUESS_LOOKUPS),
            proxies,
            key_connections: KeyConnections::new(max_connections_per_key),
            last_used: LastUsed::default(),
        }));
        auth.configure(&configured, open.as_ref());
        auth
    }

    /// Replaces the keys of the configuration, and the tenant of callers without a key. Keys that are not among them are
    /// refused from now on.
    pub fn configure(&self, configured: &[ConfiguredKey], open: Option<&TenantRecord>) {
        let Inner { cache, pepper, .. } = &*self.0;
        let now = Instant::now();
        // The tenants were just read, so the configured keys start as cached.
        let mut identities: HashMap<Hash, Identity> = HashMap::new();
        let mut callers = ConfiguredCallers::default();
        for key in configured {
            let hash = pepper.hash(key.key.expose_secret());
            let id = configured_key_id(key.tenant.id, &hash);
            identities.insert(hash, Identity::configured(&key.tenant, key.rights, Some(id)));
            callers.keys.insert(hash, (key.tenant.id, Some(key.rights)));
        }
        if let Some(tenant) = open {
            // A header cannot contain a line break, so no caller can send a credential with this hash.
            let hash = pepper.hash("no key\n");
            identities.insert(hash, Identity::open(tenant));
            callers.keys.insert(hash, (tenant.id, None));
            callers.open = Some(hash);
        }
        let before = self.0.configured.swap(Arc::new(callers));
        for hash in before.keys.keys().filter(|hash| !identities.contains_key(*hash)) {
            cache.remove(hash);
        }
        for (hash, identity) in identities {
            cache.put(hash, Some(Arc::new(identity)), now);
        }
    }

    /// The caller's scope, from its credential and the user that it names.
    pub(crate) fn admit<B>(&self, request: &Request<B>, required_right: RequiredRight, page: &Page) -> CallerLookup {
        match self.credential(request, required_right, page) {
            Ok((hash, credential)) => self.identify(request, required_right, hash, &credential),
            Err(fault) => CallerLookup::Done(Err(fault)),
        }
    }

    /// Whether the caller is a program on this machine: the connection is a loopback connection, no proxy has forwarded the request, and
    /// the host name means this machine.
    pub(crate) fn comes_from_this_machine<B>(&self, request: &Request<B>) -> bool {
        let headers = request.headers();
        let is_loopback =
            request.extensions().get::<Peer>().is_some_and(|peer| peer.address.ip().to_canonical().is_loopback());
        let forwarded =
            ["forwarded", "x-forwarded-for", "x-real-ip", "via"].iter().any(|name| headers.contains_key(*name));
        is_loopback && !forwarded && is_local(request.uri(), headers)
    }

    /// Writes the last-used times of keys periodically, as long as it is polled.
    pub async fn write_last_used(&self) {
        let inner = &self.0;
        inner.last_used.run(&*inner.store).await;
    }

    /// Writes the remaining last-used times.
    pub async fn flush_last_used(&self) {
        self.0.last_used.flush(&*self.0.store).await;
    }

    /// The address of the client behind a request.
    pub(crate) fn client_address(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = extensions.get::<Peer>()?;
        Some(self.0.proxies.client(peer.address.ip(), headers))
    }

    /// The secret with which keys are hashed.
    pub(crate) fn pepper(&self) -> &Pepper {
        &self.0.pepper
    }

    /// Removes a key from the cache: the next request looks it up again.
    pub(crate) fn forget_key(&self, id: &str) {
        self.0.cache.forget(|identity| identity.key_id.as_deref() == Some(id));
    }

    /// Removes all callers of a tenant from the cache.
    pub(crate) fn forget_tenant(&self, id: i64) {
        self.0.cache.forget(|identity| identity.tenant_id() == id);
    }

    /// The hash of the caller's credential, and the credential; the hash for callers without a key if it sent none.
    fn credential<'r, B>(
        &self,
        request: &'r Request<B>,
        required_right: RequiredRight,
        page: &Page,
    ) -> Result<(Hash, Credential<'r>), Fault> {
        let headers = request.headers();
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(refused("More than one Authorization header was sent."));
        }
        let bearer = first.and_then(|value| {
            let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        let api_key = headers.get(API_KEY).filter(|_| first.is_none()).and_then(|value| value.to_str().ok());
        let key = bearer.or(api_key.map(str::trim));
        if let (None, None, Page::Own, Some(token)) = (first, api_key, page, browser::token(request, &self.0.pepper)) {
            return Ok((session_hash(&self.0.pepper, token), Credential::Cookie));
        }
        // Clients that insist on a key may send any: where none is needed, only text with the format of a real key is
        // checked.
        if let (Some(open), RequiredRight::Use) = (self.0.configured.load().open, required_right)
            && key.is_none_or(|key| !key.starts_with(KEY_PREFIX))
        {
            return match is_local(request.uri(), headers) {
                true => Ok((open, Credential::None)),
                false => Err(Fault::new(
                    FaultKind::Forbidden,
                    "Without a key this server answers only to the names of this machine.",
                )),
            };
        }
        match (first, key) {
            (_, Some(key)) => Ok((self.0.pepper.hash(key), Credential::Bearer(key))),
            (Some(_), None) => Err(refused("The Authorization header must be `Bearer YOUR_KEY`.")),
            (None, None) => Err(refused("You didn't provide an API key. Send it as `Authorization: Bearer YOUR_KEY`.")),
        }
    }

    fn identify<B>(
        &self,
        request: &Request<B>,
        required_right: RequiredRight,
        hash: Hash,
        credential: &Credential<'_>,
    ) -> CallerLookup {
        let now = Instant::now();
        let inner = &self.0;
        let client = match credential {
            Credential::ClientSecret(secret) => Some(Arc::clone(secret)),
            Credential::None | Credential::Bearer(_) | Credential::Cookie => None,
        };
        // The browsers of many users share the key that issued their tokens, so they do not count as its connections.
        let peer = request.extensions().get::<Peer>();
        let connection = peer.filter(|_| client.is_none()).map(|peer| &peer.key);
        let (cached, stale) = match inner.cache.get(&hash, now) {
            CacheEntry::Valid(identity) => {
                let scope = inner.authorize(&identity, request.headers(), required_right, client.as_deref());
                return CallerLookup::Done(scope.and_then(|scope| inner.count(connection, &hash).map(|()| scope)));
            }
            CacheEntry::Bad => return CallerLookup::Done(Err(unknown())),
            CacheEntry::DueForRenewal(identity, until) => (Some((identity, until)), None),
            CacheEntry::Expired(identity) => (None, Some(identity)),
            CacheEntry::Missing => (None, None),
        };
        let source = match (inner.configured.load().keys.get(&hash), credential) {
            (_, Credential::Cookie) => Source::Session,
            (Some((tenant_id, rights)), _) => Source::Configured { tenant_id: *tenant_id, rights: *rights },
            (None, Credential::Bearer(key)) if key.starts_with(KEY_PREFIX) => Source::Stored,
            (None, Credential::ClientSecret(_)) => Source::Stored,
            (None, Credential::Bearer(token)) if inner.jwt.is_some() && jwt::is_token(token) => {
                Source::Token((*token).into())
            }
            (None, _) => return CallerLookup::Done(Err(unknown())),
        };
        let address = peer.map(|peer| inner.proxies.client(peer.address.ip(), request.headers()));
        let lookup = Lookup { hash, source, address, started_at: now, cached, stale };
        let (inner, headers) = (Arc::clone(inner), request.headers().clone());
        let connection = connection.cloned();
        CallerLookup::Pending(Box::pin(async move {
            let identity = inner.authenticate(lookup).await?;
            let scope = inner.authorize(&identity, &headers, required_right, client.as_deref())?;
            inner.count(connection.as_ref(), &hash).map(|()| scope)
        }))
    }
}

/// A lookup in the store.
struct Lookup {
    hash: Hash,
    source: Source,
    /// The caller's address.
    address: Option<IpAddr>,
    started_at: Instant,
    /// A cached identity that may be used until then if the store does not answer.
    cached: Option<(Arc<Identity>, Instant)>,
    /// An identity that was valid, too long ago.
    stale: Option<Arc<Identity>>,
}

impl Inner {
    async fn authenticate(&self, lookup: Lookup) -> Result<Arc<Identity>, Fault> {
        let Lookup { hash, source, address, started_at, cached, stale } = lookup;
        let configured = matches!(source, Source::Configured { .. });
        // A credential that was valid before is not a guess.
        let is_guess = cached.is_none() && stale.is_none() && self.attempts.wait(address, started_at).is_some();
        let lookup = async {
            let _permit = match is_guess {
                true => self.guesses.acquire().await.ok(),
                false => None,
            };
            self.look_up(hash, source).await
        };
        let found = match tokio::time::timeout(LOOKUP_TIMEOUT, lookup).await {
            Ok(found) => found,
            Err(_) => Err(StoreError::Unavailable("the lookup of the caller timed out".to_owned())),
        };
        match found {
            Ok(found) => {
                let found = found.map(Arc::new);
                self.cache.put(hash, found.clone(), started_at);
                found.ok_or_else(|| match self.attempts.failed(address, started_at) {
                    Some(wait) => too_many(wait),
                    None => unknown(),
                })
            }
            Err(error) => match (cached, stale) {
                // The cached identity may have expired during the lookup.
                (Some((cached, until)), _) if Instant::now() < until => Ok(cached),
                // The configuration proves the key; only the tenant's record may be slightly outdated.
                (Some((stale, _)), _) | (None, Some(stale)) if configured => {
                    self.cache.put(hash, Some(Arc::clone(&stale)), started_at);
                    Ok(stale)
                }
                _ => Err(error.into()),
            },
        }
    }

    async fn look_up(&self, hash: Hash, source: Source) -> Result<Option<Identity>, StoreError> {
        let operator = Operator::of_this_process();
        let now_ms = self.clock.now_ms();
        match source {
            Source::Configured { tenant_id, rights } => self.configured_identity(&hash, tenant_id, rights).await,
            Source::Stored => self.stored_identity(hash).await,
            Source::Session => self.session_identity(hash).await,
            Source::Token(token) => {
                let Some(jwt) = &self.jwt else { return Ok(None) };
                let Some(claims) = jwt.check(token.expose_secret(), now_ms).await? else { return Ok(None) };
                let tenant = self.store.tenant(operator, claims.tenant_id).await?;
                Ok(tenant.and_then(|tenant| Identity::of_subject(&claims.subject, &tenant, claims.expires_at_ms)))
            }
        }
    }

    async fn configured_identity(
        &self,
        hash: &Hash,
        tenant_id: i64,
        rights: Option<Rights>,
    ) -> Result<Option<Identity>, StoreError> {
        let tenant = self.store.tenant(Operator::of_this_process(), tenant_id).await?;
        Ok(tenant.map(|tenant| match rights {
            Some(rights) => Identity::configured(&tenant, rights, Some(configured_key_id(tenant.id, hash))),
            None => Identity::open(&tenant),
        }))
    }

    async fn stored_identity(&self, hash: Hash) -> Result<Option<Identity>, StoreError> {
        self.pepper.expect_shared()?;
        let now_ms = self.clock.now_ms();
        let found = self.store.key_by_hash(Operator::of_this_process(), hash).await?;
        let Some((key, tenant)) = found else { return Ok(None) };
        let identity = Identity::of_key(&key, &tenant);
        if key.revoked_at_ms.is_some() || identity.is_over(now_ms) {
            return Ok(None);
        }
        self.last_used.record(&key, now_ms);
        Ok(Some(identity))
    }

    /// Counts the caller's connection for its key, if it has one.
    fn count(&self, connection: Option<&ConnectionKey>, hash: &Hash) -> Result<(), Fault> {
        match connection {
            Some(connection)
                if self.configured.load().open != Some(*hash) && !self.key_connections.try_count(connection, hash) =>
            {
                let message =
                    "Your API key has as many connections as it may. Close some of them, or try again shortly.";
                let wait = Some(Duration::from_secs(1));
                Err(Fault::new(FaultKind::Overloaded, message).code("too_many_connections").retry_after(wait))
            }
            _ => Ok(()),
        }
    }

    fn authorize(
        &self,
        identity: &Identity,
        headers: &HeaderMap,
        required_right: RequiredRight,
        client: Option<&ClientSecret>,
    ) -> Result<Scope, Fault> {
        if identity.expires_at_ms.is_some() && identity.is_over(self.clock.now_ms()) {
            return Err(unknown());
        }
        let rights = identity.rights();
        let allowed = match required_right {
            RequiredRight::Use => rights.contains(Rights::USE),
            RequiredRight::Issue => [Rights::USE, Rights::ADMIN].iter().any(|right| rights.contains(*right)),
            RequiredRight::Admin => rights.contains(Rights::ADMIN) || rights.contains(Rights::OPERATOR),
            RequiredRight::View => {
                [Rights::VIEW, Rights::ADMIN, Rights::OPERATOR].iter().any(|right| rights.contains(*right))
            }
            RequiredRight::Metrics => {
                [Rights::METRICS, Rights::ADMIN, Rights::OPERATOR].iter().any(|right| rights.contains(*right))
            }
        };
        if !allowed {
            return Err(Fault::new(FaultKind::Forbidden, "Your API key does not have the right to do this."));
        }
        if let Some(client) = client {
            return identity.scope_of_client(headers, client);
        }
        let scope = identity.scope(headers)?;
        Ok(if required_right == RequiredRight::View { scope.reading() } else { scope })
    }
}

fn refused(message: &'static str) -> Fault {
    Fault::new(FaultKind::Unauthenticated, message)
}

/// The same error for an unknown, a revoked and an expired key.
fn unknown() -> Fault {
    refused("Incorrect API key provided.")
}

fn too_many(wait: Duration) -> Fault {
    let message = "Too many unknown API keys were sent from your address. Try again later.";
    Fault::new(FaultKind::Overloaded, message).code("too_many_failed_attempts").retry_after(Some(wait))
}

/// Whether the request's host name means this machine. A page that resolves its own name to our address (DNS rebinding)
/// does not: such a name has a dot, and is neither an address nor below `localhost`.
fn is_local(uri: &Uri, headers: &HeaderMap) -> bool {
    let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().ok());
    named.chain(uri.authority().map(|authority| Some(authority.as_str()))).all(|name| name.is_some_and(is_local_name))
}

fn is_local_name(name: &str) -> bool {
    let host = match name.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => name.split_once(':').map_or(name, |(host, _)| host),
    };
    let host = host.trim_end_matches('.');
    !host.contains('.') || host.parse::<IpAddr>().is_ok() || host.to_ascii_lowercase().ends_with(".localhost")
}

#[cfg(test)]
#[path = "auth_tests.rs"]
mod tests;
