//! What a provider publishes about itself: `/.well-known/openid-configuration`, cached and read again.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use amalgam_core::{BoxFuture, Fetch};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use tokio::{sync::Mutex, time::Instant};
use tracing::{info, warn};

use crate::{
    jwks::{Jwks, JwksLocation},
    refusal::{SignInRefusal, SignInRefusalReason},
};

/// The maximum size of the document.
const MAX_BYTES: usize = 256 * 1024;
/// The document is read again after this time.
const LIFE: Duration = Duration::from_secs(600);
/// The minimum time between two attempts to read it, so that a provider that does not answer is not asked by each visitor.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The way to a provider. Every request ends within a bounded time.
pub trait ProviderClient: Fetch {
    /// Posts a form; returns the status and the body of the answer, or why there is none.
    fn post_form<'a>(
        &'a self,
        url: &'a str,
        authorization: Option<HeaderValue>,
        form: String,
    ) -> BoxFuture<'a, Result<(StatusCode, Bytes), String>>;
}

/// What is used of the document.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ProviderMetadata {
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: String,
    pub(crate) token_endpoint: String,
    pub(crate) jwks_uri: String,
    pub(crate) end_session_endpoint: Option<String>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// A provider's document with its keys.
#[derive(Clone)]
pub(crate) struct DiscoveredProvider {
    pub(crate) metadata: Arc<ProviderMetadata>,
    pub(crate) keys: Arc<Jwks>,
    at: Instant,
}

/// Reads the document of one issuer.
pub(crate) struct Discovery {
    issuer: String,
    client: Arc<dyn ProviderClient>,
    known: RwLock<Option<DiscoveredProvider>>,
    /// When the document was last asked for, and why it could not be read; the task that holds the lock is reading.
    attempt: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Discovery {
    pub(crate) fn new(issuer: String, client: Arc<dyn ProviderClient>) -> Self {
        Self { issuer, client, known: RwLock::default(), attempt: Mutex::default() }
    }

    /// The provider's document; an older one if it cannot be read now.
    pub(crate) async fn provider(&self) -> Result<DiscoveredProvider, SignInRefusal> {
        if let Some(known) = self.known().filter(|known| known.at.elapsed() < LIFE) {
            return Ok(known);
        }
        let problem = self.reload().await.err();
        self.known().ok_or_else(|| {
            let detail = problem.unwrap_or_else(|| "the provider's configuration was not read".to_owned());
            SignInRefusal::new(SignInRefusalReason::ProviderUnavailable, detail)
        })
    }

    fn known(&self) -> Option<DiscoveredProvider> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn reload(&self) -> Result<(), String> {
        let mut attempt = self.attempt.lock().await;
        if let Some((at, result)) = &*attempt
            && at.elapsed() < MIN_INTERVAL
        {
            return result.clone();
        }
        let result = self.read().await;
        let issuer = &self.issuer;
        let outcome = match result {
            Ok(metadata) => {
                info!("read the configuration of the OpenID Connect provider {issuer}");
                self.keep(metadata);
                Ok(())
            }
            Err(problem) => {
                warn!("could not read the configuration of the OpenID Connect provider {issuer}: {problem}");
                Err(problem)
            }
        };
        *attempt = Some((Instant::now(), outcome.clone()));
        outcome
    }

    fn keep(&self, metadata: ProviderMetadata) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Keys stay cached while their address is the same.
        let keys = known.as_ref().filter(|known| known.metadata.jwks_uri == metadata.jwks_uri);
        let keys = keys.map_or_else(
            || {
                let fetch = Arc::clone(&self.client) as Arc<dyn Fetch>;
                Arc::new(Jwks::for_answers_of_the_issuer(JwksLocation::Url { url: metadata.jwks_uri.clone(), fetch }))
            },
            |known| Arc::clone(&known.keys),
        );
        *known = Some(DiscoveredProvider { metadata: Arc::new(metadata), keys, at: Instant::now() });
    }

    async fn read(&self) -> Result<ProviderMetadata, String> {
        let url = format!("{}/.well-known/openid-configuration", self.issuer.trim_end_matches('/'));
        let document = self.client.fetch(&url, MAX_BYTES).await.map_err(|fault| fault.into_detail())?;
        read_metadata(&document.bytes, &self.issuer)
    }
}

/// Reads the document and checks that it is the issuer's, and that its addresses are as safe as the issuer's.
fn read_metadata(bytes: &[u8], issuer: &str) -> Result<ProviderMetadata, String> {
    let metadata: ProviderMetadata =
        serde_json::from_slice(bytes).map_err(|error| format!("it is not a provider's configuration: {error}"))?;
    if metadata.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err("it names another issuer than the configured one".to_owned());
    }
    let endpoints = [
        ("authorization_endpoint", Some(&metadata.authorization_endpoint)),
        ("token_endpoint", Some(&metadata.token_endpoint)),
        ("jwks_uri", Some(&metadata.jwks_uri)),
        ("end_session_endpoint", metadata.end_session_endpoint.as_ref()),
    ];
    let allows_http = issuer.starts_with("http://");
    for (name, endpoint) in endpoints {
        let is_usable = |endpoint: &String| {
            let is_http = endpoint.starts_with("https://") || (allows_http && endpoint.starts_with("http://"));
            is_http && !endpoint.contains('#') && endpoint.parse::<http::Uri>().is_ok()
        };
        if !endpoint.is_none_or(is_usable) {
            return Err(format!("its {name} is not an https URL"));
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(change: (&str, &str), issuer: &str) -> Result<ProviderMetadata, String> {
        let mut document = json!({
            "issuer": "https://id.example",
            "authorization_endpoint": "https://id.example/authorize?tenant=a",
            "token_endpoint": "https://tokens.example/token",
            "jwks_uri": "https://id.example/keys",
            "claims_supported": ["sub"],
        });
        document[change.0] = change.1.into();
        read_metadata(document.to_string().as_bytes(), issuer)
    }

    #[test]
    fn the_document_is_that_of_the_issuer_and_names_only_safe_addresses() {
        assert!(read(("x", ""), "https://id.example").is_ok());
        assert!(read(("issuer", "https://id.example/"), "https://id.example").is_ok());
        assert!(read(("issuer", "https://evil.example"), "https://id.example").is_err());
        for (name, value) in [
            ("authorization_endpoint", "javascript:alert(1)"),
            ("authorization_endpoint", "http://id.example/authorize"),
            ("authorization_endpoint", "https://id.example/#x"),
            ("authorization_endpoint", "/authorize"),
            ("token_endpoint", "http://id.example/token"),
            ("jwks_uri", "file:///etc/passwd"),
            ("end_session_endpoint", "data:text/html,x"),
        ] {
            assert!(read((name, value), "https://id.example").is_err(), "{name} {value}");
        }
        assert!(read_metadata(b"[]", "https://id.example").is_err());
    }
}
