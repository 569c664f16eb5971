//! Who is asking. One extractor for every wire; no credential, no scope.
//!
//! Three kinds of credentials come as `Authorization: Bearer …`: keys of the configuration, keys of the store (`am_…`),
//! and signed tokens. What is known from a moment ago is answered at once; everything else is asked of the store, and
//! while the store does not answer, no caller is let in.

mod attempts;
mod cache;
mod identity;
mod jwks;
mod jwt;
mod keys;
mod uses;

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use amalgam_core::{
    BoxFuture, Clock, Fault, FaultKind, Operator, Rights, Scope, StoreError,
    store::{TenancyStore, TenantRecord},
};
use http::{HeaderMap, Request, Uri, header};
use secrecy::{ExposeSecret, SecretString};
use tokio::{sync::Semaphore, time::Instant};

use self::attempts::Attempts;
use self::cache::{Cache, Hash, Known};
use self::identity::Identity;
use self::jwt::Jwt;
use self::uses::Uses;
use crate::{
    listener::{ConnectionKey, KeyPlaces, Peer},
    proxies::TrustedProxies,
};

pub use self::identity::is_user;
pub use self::jwt::{JwksPlace, JwtSettings};
pub use self::keys::{Issued, KeyOrder, Pepper, PepperError, SEALED_MEMORIES, issue, memory_context};

/// How long the store may take to authenticate a caller.
const PATIENCE: Duration = Duration::from_secs(3);

/// Lookups at once for addresses that have tried too many unknown keys.
const GUESSES_AT_ONCE: usize = 4;

/// A key that stands in the configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredKey {
    /// What its callers send.
    pub key: SecretString,
    /// Whose it is, as the store has it.
    pub tenant: TenantRecord,
    /// What it may do.
    pub rights: Rights,
}

/// What telling callers apart needs.
pub struct AuthParts {
    /// Tenants and keys.
    pub store: Arc<dyn TenancyStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What hashes of keys are made with.
    pub pepper: Pepper,
    /// Keys that are good whatever the store says.
    pub configured: Vec<ConfiguredKey>,
    /// For whom callers act who have no key, where none is needed; the binary allows that on loopback only.
    pub open: Option<TenantRecord>,
    /// Which tokens are believed.
    pub jwt: Option<JwtSettings>,
    /// Who is believed about where requests come from.
    pub proxies: TrustedProxies,
    /// The most connections of one key.
    pub max_connections_per_key: usize,
}

/// Tells callers apart. Cheap to clone.
#[derive(Clone)]
pub struct Auth(Arc<Inner>);

struct Inner {
    store: Arc<dyn TenancyStore>,
    clock: Arc<dyn Clock>,
    pepper: Pepper,
    /// The tenant, and what a key may do; a caller without a key has no rights of its own.
    configured: HashMap<Hash, (i64, Option<Rights>)>,
    /// Under which a caller without a key is cached.
    open: Option<Hash>,
    jwt: Option<Jwt>,
    cache: Cache,
    attempts: Attempts,
    /// Lookups for addresses that have guessed too much: few at once, so that guessing costs the store little.
    guesses: Semaphore,
    proxies: TrustedProxies,
    key_places: KeyPlaces,
    uses: Uses,
}

/// What a route asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    /// The right to use the doors.
    Use,
    /// A right to administer, and a key in any case.
    Admin,
}

/// Whether a caller may come in.
pub(crate) enum Admission {
    /// It is known.
    Now(Result<Scope, Fault>),
    /// The store has to be asked.
    Later(BoxFuture<'static, Result<Scope, Fault>>),
}

/// Where an answer comes from.
enum Source {
    /// The key is known; its tenant may have changed.
    Configured { tenant_id: i64, rights: Option<Rights> },
    /// Only the store can know it.
    Stored,
    /// It proves itself; its tenant has to exist.
    Token(SecretString),
}

impl Auth {
    /// Knows the configured keys, and whom to ask about the others.
    pub fn new(parts: AuthParts) -> Self {
        let AuthParts { store, clock, pepper, configured, open, jwt, proxies, max_connections_per_key } = parts;
        let (cache, now) = (Cache::new(), Instant::now());
        let mut known = HashMap::new();
        // Tenants as they are now are as good as asked for.
        for key in &configured {
            let hash = pepper.hash(key.key.expose_secret());
            cache.put(hash, Some(Arc::new(Identity::configured(&key.tenant, key.rights))), now);
            known.insert(hash, (key.tenant.id, Some(key.rights)));
        }
        // No header can carry a text with a line break: no caller can send what hashes to this.
        let open = open.map(|tenant| {
            let hash = pepper.hash("no key\n");
            cache.put(hash, Some(Arc::new(Identity::open(&tenant))), now);
            known.insert(hash, (tenant.id, None));
            hash
        });
        let (attempts, uses, jwt) = (Attempts::default(), Uses::default(), jwt.map(Jwt::new));
        let guesses = Semaphore::new(GUESSES_AT_ONCE);
        let key_places = KeyPlaces::new(max_connections_per_key);
        let configured = known;
        Self(Arc::new(Inner {
            store,
            clock,
            pepper,
            configured,
            open,
            jwt,
            cache,
            attempts,
            guesses,
            proxies,
            key_places,
            uses,
        }))
    }

    /// The caller's scope, by its credential and the user that it names.
    pub(crate) fn admit<B>(&self, request: &Request<B>, door: Door) -> Admission {
        match self.credential(request, door) {
            Ok((hash, credential)) => self.identify(request, door, hash, credential),
            Err(fault) => Admission::Now(Err(fault)),
        }
    }

    /// Writes down when keys were used, from time to time, for as long as it is polled.
    pub async fn keep_books(&self) {
        let inner = &self.0;
        inner.uses.write_down(&*inner.store).await;
    }

    /// Writes down what is left of it.
    pub async fn close_books(&self) {
        self.0.uses.flush(&*self.0.store).await;
    }

    /// What hashes of keys are made with.
    pub(crate) fn pepper(&self) -> &Pepper {
        &self.0.pepper
    }

    /// Asks anew who is behind a key, the next time that it comes.
    pub(crate) fn forget_key(&self, id: &str) {
        self.0.cache.forget(|identity| identity.key_id.as_deref() == Some(id));
    }

    /// Asks anew about all callers of a tenant.
    pub(crate) fn forget_tenant(&self, id: i64) {
        self.0.cache.forget(|identity| identity.tenant_id() == id);
    }

    /// The hash of what the caller sent, and what it sent; the open door where nothing that could be a key was sent.
    fn credential<'r, B>(&self, request: &'r Request<B>, door: Door) -> Result<(Hash, Option<&'r str>), Fault> {
        let headers = request.headers();
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err(refused("More than one Authorization header was sent."));
        }
        let key = first.and_then(|value| {
            let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
        });
        // Clients that insist on a key are given any: only what looks like one of ours is taken at its word.
        if let (Some(open), Door::Use) = (self.0.open, door)
            && key.is_none_or(|key| !key.starts_with(keys::PREFIX))
        {
            return match is_local(request.uri(), headers) {
                true => Ok((open, None)),
                false => Err(Fault::new(
                    FaultKind::Forbidden,
                    "Without a key this server answers only to the names of this machine.",
                )),
            };
        }
        match (first, key) {
            (_, Some(key)) => Ok((self.0.pepper.hash(key), Some(key))),
            (Some(_), None) => Err(refused("The Authorization header must be `Bearer YOUR_KEY`.")),
            (None, None) => Err(refused("You didn't provide an API key. Send it as `Authorization: Bearer YOUR_KEY`.")),
        }
    }

    fn identify<B>(&self, request: &Request<B>, door: Door, hash: Hash, credential: Option<&str>) -> Admission {
        let now = Instant::now();
        let inner = &self.0;
        let (known, stale) = match inner.cache.get(&hash, now) {
            Known::Good(identity) => {
                let connection = request.extensions().get::<Peer>().map(|peer| &peer.key);
                let scope = inner.let_in(&identity, request.headers(), door);
                return Admission::Now(scope.and_then(|scope| inner.count(connection, &hash).map(|()| scope)));
            }
            Known::Bad => return Admission::Now(Err(unknown())),
            Known::Renew(identity, until) => (Some((identity, until)), None),
            Known::Once(identity) => (None, Some(identity)),
            Known::Nothing => (None, None),
        };
        let credential = credential.unwrap_or_default();
        let source = match inner.configured.get(&hash) {
            Some((tenant_id, rights)) => Source::Configured { tenant_id: *tenant_id, rights: *rights },
            None if credential.starts_with(keys::PREFIX) => Source::Stored,
            None if inner.jwt.is_some() && jwt::is_token(credential) => Source::Token(credential.into()),
            None => return Admission::Now(Err(unknown())),
        };
        let peer = request.extensions().get::<Peer>();
        let address = peer.map(|peer| inner.proxies.client(peer.address.ip(), request.headers()));
        let asking = Asking { hash, source, address, asked_at: now, known, stale };
        let (inner, headers) = (Arc::clone(inner), request.headers().clone());
        let connection = peer.map(|peer| peer.key.clone());
        Admission::Later(Box::pin(async move {
            let identity = inner.ask(asking).await?;
            let scope = inner.let_in(&identity, &headers, door)?;
            inner.count(connection.as_ref(), &hash).map(|()| scope)
        }))
    }
}

/// A question to the store.
struct Asking {
    hash: Hash,
    source: Source,
    /// Where it comes from.
    address: Option<IpAddr>,
    asked_at: Instant,
    /// Still good where the store does not answer, until then.
    known: Option<(Arc<Identity>, Instant)>,
    /// Was good, too long ago.
    stale: Option<Arc<Identity>>,
}

impl Inner {
    async fn ask(&self, asking: Asking) -> Result<Arc<Identity>, Fault> {
        let Asking { hash, source, address, asked_at, known, stale } = asking;
        let configured = matches!(source, Source::Configured { .. });
        // A credential that was good before is no guess.
        let is_guess = known.is_none() && stale.is_none() && self.attempts.wait(address, asked_at).is_some();
        let looking = async {
            let _turn = match is_guess {
                true => self.guesses.acquire().await.ok(),
                false => None,
            };
            self.look_up(hash, source).await
        };
        let found = match tokio::time::timeout(PATIENCE, looking).await {
            Ok(found) => found,
            Err(_) => Err(StoreError::Unavailable("it has not said in time who the caller is".to_owned())),
        };
        match found {
            Ok(found) => {
                let found = found.map(Arc::new);
                self.cache.put(hash, found.clone(), asked_at);
                found.ok_or_else(|| match self.attempts.failed(address, asked_at) {
                    Some(wait) => too_many(wait),
                    None => unknown(),
                })
            }
            Err(error) => match (known, stale) {
                // It may have become too old while the store was waited for.
                (Some((known, until)), _) if Instant::now() < until => Ok(known),
                // The configuration vouches for the key; only what the store says of its tenant may be a little old.
                (Some((stale, _)), _) | (None, Some(stale)) if configured => {
                    self.cache.put(hash, Some(Arc::clone(&stale)), asked_at);
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
            Source::Configured { tenant_id, rights } => {
                let tenant = self.store.tenant(operator, tenant_id).await?;
                Ok(tenant.map(|tenant| match rights {
                    Some(rights) => Identity::configured(&tenant, rights),
                    None => Identity::open(&tenant),
                }))
            }
            Source::Stored => {
                self.pepper.expect_shared()?;
                let Some((key, tenant)) = self.store.key_by_hash(operator, hash).await? else { return Ok(None) };
                let identity = Identity::of_key(&key, &tenant);
                if key.revoked_at_ms.is_some() || identity.is_over(now_ms) {
                    return Ok(None);
                }
                self.uses.note(&key, now_ms);
                Ok(Some(identity))
            }
            Source::Token(token) => {
                let Some(jwt) = &self.jwt else { return Ok(None) };
                let Some(claims) = jwt.check(token.expose_secret(), now_ms).await? else { return Ok(None) };
                let tenant = self.store.tenant(operator, claims.tenant_id).await?;
                Ok(tenant.and_then(|tenant| Identity::of_subject(&claims.subject, &tenant, claims.expires_at_ms)))
            }
        }
    }

    /// Counts the caller's connection for its key, if it has one.
    fn count(&self, connection: Option<&ConnectionKey>, hash: &Hash) -> Result<(), Fault> {
        match connection {
            Some(connection) if self.open != Some(*hash) && !self.key_places.take(connection, hash) => {
                let message =
                    "Your API key has as many connections as it may. Close some of them, or try again shortly.";
                let wait = Some(Duration::from_secs(1));
                Err(Fault::new(FaultKind::Overloaded, message).code("too_many_connections").retry_after(wait))
            }
            _ => Ok(()),
        }
    }

    fn let_in(&self, identity: &Identity, headers: &HeaderMap, door: Door) -> Result<Scope, Fault> {
        if identity.expires_at_ms.is_some() && identity.is_over(self.clock.now_ms()) {
            return Err(unknown());
        }
        let rights = identity.rights();
        let allowed = match door {
            Door::Use => rights.contains(Rights::USE),
            Door::Admin => rights.contains(Rights::ADMIN) || rights.contains(Rights::OPERATOR),
        };
        if !allowed {
            return Err(Fault::new(FaultKind::Forbidden, "Your API key does not have the right to do this."));
        }
        identity.scope(headers)
    }
}

fn refused(message: &'static str) -> Fault {
    Fault::new(FaultKind::Unauthenticated, message)
}

/// The same for a key that never was, one that was revoked, and one whose time is over.
fn unknown() -> Fault {
    refused("Incorrect API key provided.")
}

fn too_many(wait: Duration) -> Fault {
    let message = "Too many unknown API keys were sent from your address. Try again later.";
    Fault::new(FaultKind::Overloaded, message).code("too_many_failed_attempts").retry_after(Some(wait))
}

/// Whether a request was meant for this machine by the name it uses. A page that makes a browser take its own name for
/// our address is not: such a name has a dot, and is neither an address nor below `localhost`.
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
