//! Guarded egress: all requests to addresses that callers or tenants name, for images, files and tools.
//!
//! A URL is parsed once, its host resolved once, every address checked, and the connection made to an address that
//! was checked. Redirects and proxies are not used, and time and size are bounded. Upstreams that the operator
//! configured do not use this client.

mod address;
mod allowed;
mod connect;
mod exchange;
mod media;
mod target;
mod webhook;

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use amalgam_core::{BoxFuture, Fault, FaultKind, Fetch, FetchedFile, ToolError};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use tokio::{sync::Semaphore, time::timeout};
use tracing::debug;

use self::connect::{Pinned, Trust};
pub(crate) use self::exchange::Answer;
use self::target::{Host, Target};

pub use self::allowed::{Allowed, AllowedError};
pub use self::connect::{Resolve, SystemResolver};

/// The maximum number of requests in progress. Further ones wait, within their own timeout: each name resolution takes
/// a thread.
const MAX_IN_FLIGHT: usize = 64;

/// The timeout of name resolution if nothing is fetched.
const RESOLVE: Duration = Duration::from_secs(2);

/// The targets and limits of egress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressConfig {
    /// Private targets that are allowed, also without TLS.
    pub allow_private: Vec<Allowed>,
    /// The timeout of fetching an image or a file, from name resolution to the last byte.
    pub timeout: Duration,
}

impl Default for EgressConfig {
    fn default() -> Self {
        Self { allow_private: Vec::new(), timeout: Duration::from_secs(10) }
    }
}

/// The limits of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressLimits {
    /// The maximum size of the response body.
    pub bytes: usize,
    /// The timeout, from name resolution to the last byte.
    pub timeout: Duration,
}

/// Why a request failed. The messages for callers are in the conversion to [`Fault`].
#[derive(Debug, thiserror::Error)]
pub enum EgressError {
    /// The URL is invalid, or of an unsupported form.
    #[error("unusable URL: {0}")]
    BadUrl(&'static str),
    /// The host has an address that is neither public nor allowed. The message does not contain the address: the
    /// administrator of a tenant reads it, and must not learn addresses of the operator's network.
    #[error("{}", no_public_address(host))]
    NotPublic {
        /// The host in the URL.
        host: String,
        /// The refused address.
        address: IpAddr,
    },
    /// The name has no address. The message equals that of [`EgressError::NotPublic`], so that it does not reveal which
    /// names exist in the operator's network.
    #[error("{}", no_public_address(host))]
    Unresolved {
        /// The host in the URL.
        host: String,
        /// The resolver's error.
        #[source]
        source: io::Error,
    },
    /// The connection failed, or the certificate does not match the name.
    #[error("could not connect to `{host}`")]
    Unreachable {
        /// The host in the URL.
        host: String,
        /// The error of the last address.
        #[source]
        source: io::Error,
    },
    /// The answer is not HTTP, or the connection broke.
    #[error("no usable answer")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer exceeds the limit.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// The answer has a status without usable content.
    #[error("the answer has status {0}")]
    Status(StatusCode),
    /// The request timed out.
    #[error("no complete answer in {0:?}")]
    Timeout(Duration),
    /// This machine has no root certificates.
    #[error("could not load the system's root certificates")]
    NoRoots(#[source] io::Error),
}

fn no_public_address(host: &str) -> String {
    format!(
        "`{host}` is unknown or has no public address (`[egress] allow_private` lists the private targets that may be used)"
    )
}

/// The guarded client.
pub struct Egress {
    config: EgressConfig,
    resolver: Arc<dyn Resolve>,
    trust: Trust,
    in_flight: Arc<Semaphore>,
}

impl Egress {
    /// A client with the system's resolver.
    pub fn new(config: EgressConfig) -> Self {
        Self::with_resolver(config, Arc::new(SystemResolver))
    }

    /// A client with another resolver.
    pub fn with_resolver(config: EgressConfig, resolver: Arc<dyn Resolve>) -> Self {
        Self { config, resolver, trust: Trust::default(), in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)) }
    }

    /// Sends one request and reads the whole answer, whatever its status. Redirects are returned, not followed.
    ///
    /// Connection headers of the caller are dropped.
    pub async fn request(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        limits: EgressLimits,
    ) -> Result<Response<Bytes>, EgressError> {
        let work = async { self.open(method, url, headers, body, limits.bytes).await?.collect().await };
        timeout(limits.timeout, work).await.map_err(|_| EgressError::Timeout(limits.timeout))?
    }

    /// Like `request`, but returns after the head of the answer; the reader of the body enforces its own timeout.
    pub(crate) async fn open(
        &self,
        method: Method,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        limit: usize,
    ) -> Result<Answer, EgressError> {
        let target = Target::parse(url)?;
        let turn = Arc::clone(&self.in_flight).acquire_owned().await.expect("the semaphore is never closed");
        let pinned = self.pin(&target).await?;
        let request = exchange::request(&target, method, headers, body);
        if target.tls {
            exchange::open(self.trust.connect(&pinned, &target).await?, request, limit, turn).await
        } else {
            exchange::open(pinned.connect(&target).await?, request, limit, turn).await
        }
    }

    /// Resolves the host once and checks all its addresses.
    ///
    /// One refused address refuses the name: legitimate names do not mix public and private addresses, and the result
    /// must not depend on their order.
    async fn pin(&self, target: &Target) -> Result<Pinned, EgressError> {
        let addresses = self.resolve(target).await?;
        for address in &addresses {
            if self.is_allowed(target, *address) {
                continue;
            }
            self.require_public(target, *address)?;
            if !target.tls {
                return Err(EgressError::BadUrl("only https is used"));
            }
            // Services below port 1024, such as mail, shells and printers, could misinterpret a request.
            if target.port != 443 && target.port < 1024 {
                return Err(EgressError::BadUrl("this port is not used"));
            }
        }
        Ok(Pinned::new(addresses, target.port))
    }

    async fn resolve(&self, target: &Target) -> Result<Vec<IpAddr>, EgressError> {
        match &target.host {
            Host::Address(address) => Ok(vec![*address]),
            Host::Name(name) => self.resolver.resolve(name).await.map_err(|source| {
                debug!(host = name, error = &source as &dyn std::error::Error, "a host could not be resolved");
                EgressError::Unresolved { host: name.clone(), source }
            }),
        }
    }

    /// Whether the configuration allows this target.
    fn is_allowed(&self, target: &Target, address: IpAddr) -> bool {
        self.config.allow_private.iter().any(|allowed| allowed.matches(target, address))
    }

    fn require_public(&self, target: &Target, address: IpAddr) -> Result<(), EgressError> {
        if address::is_public(address) {
            return Ok(());
        }
        let host = target.host.to_string();
        // Only the operator's log contains the address.
        debug!(host, %address, "refused a target whose address is not public");
        Err(EgressError::NotPublic { host, address })
    }

    async fn get(&self, url: &str, limit: usize) -> Result<FetchedFile, EgressError> {
        let limits = EgressLimits { bytes: limit, timeout: self.config.timeout };
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        let response = self.request(Method::GET, url, headers, Bytes::new(), limits).await?;
        if response.status() != StatusCode::OK {
            return Err(EgressError::Status(response.status()));
        }
        match response.headers().get(header::CONTENT_ENCODING) {
            Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
                Err(EgressError::Broken("the answer is compressed although that was not asked for".into()))
            }
            _ => Ok(media::fetched(response)),
        }
    }
}

impl Egress {
    /// Whether another server may fetch `url`. That server may resolve the name differently, so a name that cannot be
    /// resolved here is refused only if it looks like a name of a private network.
    async fn check_for_others(&self, url: &str) -> Result<(), EgressError> {
        let target = Target::parse(url)?;
        let _turn = Arc::clone(&self.in_flight).acquire_owned().await.expect("the semaphore is never closed");
        let resolved = match timeout(RESOLVE, self.resolve(&target)).await {
            Ok(resolved) => resolved,
            Err(_) => {
                Err(EgressError::Unresolved { host: target.host.to_string(), source: io::ErrorKind::TimedOut.into() })
            }
        };
        match resolved {
            Ok(addresses) => addresses
                .into_iter()
                .filter(|address| !self.is_allowed(&target, *address))
                .try_for_each(|address| self.require_public(&target, address)),
            Err(error) => match target.host.is_private() && !self.is_allowed_by_name(&target) {
                true => Err(error),
                false => Ok(()),
            },
        }
    }

    fn is_allowed_by_name(&self, target: &Target) -> bool {
        self.config.allow_private.iter().any(|allowed| allowed.names(target))
    }
}

impl Fetch for Egress {
    fn fetch<'a>(&'a self, url: &'a str, limit: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>> {
        Box::pin(async move {
            self.get(url, limit).await.map_err(|error| {
                debug!(error = &error as &dyn std::error::Error, "a fetch failed");
                Fault::from(error)
            })
        })
    }

    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { self.check_for_others(url).await.map_err(Fault::from) })
    }
}

/// For the caller every failure concerns the URL that it sent. The message does not distinguish an unknown name from
/// one with a private address, which would reveal names of the operator's network.
impl From<EgressError> for Fault {
    fn from(error: EgressError) -> Self {
        let (code, message) = match &error {
            EgressError::BadUrl(reason) => ("invalid_url", format!("The URL cannot be used: {reason}.")),
            EgressError::NotPublic { .. } | EgressError::Unresolved { .. } => {
                ("invalid_url", "The URL's host is unknown or has no public address.".to_owned())
            }
            EgressError::Unreachable { .. } => ("url_unreachable", "The URL's host could not be reached.".to_owned()),
            EgressError::Broken(_) => ("url_unreachable", "The URL gave no usable answer.".to_owned()),
            EgressError::TooLarge { limit } => {
                ("url_content_too_large", format!("The content of the URL is larger than {limit} bytes."))
            }
            EgressError::Status(status) if status.is_redirection() => {
                ("url_unreachable", "The URL redirects; redirects are not followed.".to_owned())
            }
            EgressError::Status(status) => {
                ("url_unreachable", format!("The URL answered with status {}.", status.as_u16()))
            }
            EgressError::Timeout(time) => {
                ("url_unreachable", format!("The URL gave no complete answer in {} seconds.", time.as_secs_f32()))
            }
            EgressError::NoRoots(_) => return Self::internal(chain(&error)),
        };
        let detail = match &error {
            // Only the operator's log contains the address.
            EgressError::NotPublic { host, address } => {
                format!("`{host}` has the address {address}, which is not public")
            }
            EgressError::Unresolved { host, source } => format!("could not resolve `{host}`: {source}"),
            other => chain(other),
        };
        Self::new(FaultKind::Invalid, message).code(code).detail(detail)
    }
}

/// Checks the form of `url`; its target is checked when a request is sent.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    Target::parse(url).map(|_| ()).map_err(|error| error.to_string())
}

/// Whether a header belongs to the connection, so that callers cannot set it.
pub(crate) fn is_connection_header(name: &HeaderName) -> bool {
    exchange::CONNECTION_HEADERS.contains(name)
}

/// The error for a tool's caller. The model sees neither addresses nor causes.
impl From<EgressError> for ToolError {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::TooLarge { .. } => Self::TooLarge,
            EgressError::Timeout(_) => Self::TimedOut,
            other => Self::Broken { detail: chain(&other) },
        }
    }
}

/// An error and its causes on one line. The administrator of a tool reads it.
fn chain(error: &EgressError) -> String {
    let mut text = error.to_string();
    let mut cause = match error {
        // The resolver's error would distinguish an unknown name from a private one.
        EgressError::Unresolved { .. } => None,
        error => std::error::Error::source(error),
    };
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

#[cfg(test)]
#[path = "egress_tests.rs"]
mod tests;
