//! The way to an upstream: one pool of connections, with bounds on time, size and repetition.
//!
//! A request is sent again only while nothing of an answer was passed on, inside a budget, and not to an upstream that
//! rests after a run of failures. What the answer means is the business of a [`Decode`].

mod answer;
mod breaker;
mod client;
mod refusal;
mod retry;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use amalgam_core::{Delivery, Fault, ModelError, ModelStream, Prepared, Tap};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use http_body_util::Full;
use hyper::body::Incoming;
use secrecy::{ExposeSecret, SecretString};

use crate::{
    decode::Decode,
    settings::{Key, UpstreamSettings},
};

use self::{
    breaker::{Breaker, Permit},
    client::Client,
    refusal::Secrets,
    retry::Budget,
};

/// The connections to one upstream, with everything that is the same for all of its requests.
pub(crate) struct Transport {
    name: String,
    client: Client,
    base: Base,
    /// Sent with every request: the operator's, and who we are.
    headers: HeaderMap,
    key: Key,
    bearer: Option<HeaderValue>,
    /// What must not appear in anything that the upstream says.
    secrets: Secrets,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    retries: u32,
    budget: Budget,
    breaker: Arc<Breaker>,
}

/// Where paths are added; a query such as an API version stays behind them.
struct Base {
    before: String,
    query: String,
    /// The path that was asked for first, ready to be sent: an adapter asks for one only.
    usual: OnceLock<(String, Uri)>,
}

impl Transport {
    /// Prepares the way to one upstream; connects to nothing yet.
    pub(crate) fn new(settings: &UpstreamSettings) -> Result<Self, Fault> {
        let wrong = |what: String| Fault::internal(format_args!("upstream `{}`: {what}", settings.name));
        let base = Base::read(&settings.base_url).map_err(&wrong)?;
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("amalgam/", env!("CARGO_PKG_VERSION"))));
        let mut secrets = Vec::new();
        for (name, value) in &settings.headers {
            let key = HeaderName::try_from(name).map_err(|_| wrong(format!("`{name}` is not a header name")))?;
            let mut header = HeaderValue::try_from(value)
                .map_err(|_| wrong(format!("header `{name}` has a value that cannot be sent")))?;
            if is_credential(&key) {
                header.set_sensitive(true);
                secrets.push(SecretString::from(value.clone()));
            }
            headers.insert(key, header);
        }
        let bearer = match &settings.key {
            Key::Given(key) => {
                secrets.push(key.clone());
                let mut bearer = HeaderValue::try_from(format!("Bearer {}", key.expose_secret()))
                    .map_err(|_| wrong("the key has characters that a header cannot hold".to_owned()))?;
                bearer.set_sensitive(true);
                Some(bearer)
            }
            Key::None | Key::Missing { .. } => None,
        };
        Ok(Self {
            name: settings.name.clone(),
            client: client::build(base.is_secure(), settings.connect_timeout).map_err(wrong)?,
            base,
            headers,
            key: settings.key.clone(),
            bearer,
            secrets: Secrets(secrets.into()),
            first_byte_timeout: settings.first_byte_timeout,
            idle_timeout: settings.idle_timeout,
            retries: settings.retries.min(2),
            budget: Budget::default(),
            breaker: Arc::new(Breaker::default()),
        })
    }

    /// The credential, for upstreams that want it in a header of their own.
    pub(crate) fn key(&self) -> Result<Option<&SecretString>, ModelError> {
        match &self.key {
            Key::None => Ok(None),
            Key::Given(key) => Ok(Some(key)),
            Key::Missing { variable } => {
                Err(ModelError::NoKey { upstream: self.name.clone(), variable: variable.clone() })
            }
        }
    }

    /// Posts a body and reads the answer with `decoder`: as it comes, or in one batch.
    ///
    /// An error means that nothing was passed on. Dropping the stream before its end closes the connection.
    pub(crate) async fn ask(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        prepared: &Prepared,
        decoder: impl Decode,
    ) -> Result<ModelStream, ModelError> {
        let accept = match prepared.delivery {
            Delivery::Stream => HeaderValue::from_static("text/event-stream"),
            Delivery::Whole => HeaderValue::from_static("application/json"),
        };
        let mut request = self.request(Method::POST, path, headers, accept)?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Full::new(prepared.body.clone());
        let tap = prepared.note.tap.as_ref();
        if let Some(tap) = tap {
            let secrets = self.secrets.clone();
            tap.clean_with(Arc::new(move |heard| secrets.clean_bytes(heard)));
        }
        let (response, permit) = self.send(request, tap).await?;
        answer::read(response, prepared, self.idle_timeout, decoder, permit, self.secrets.clone()).await
    }

    /// Gets a small document, such as the list of models.
    pub(crate) async fn get(&self, path: &str, headers: &[(HeaderName, HeaderValue)]) -> Result<Bytes, ModelError> {
        let request = self.request(Method::GET, path, headers, HeaderValue::from_static("application/json"))?;
        let (response, permit) = self.send(request, None).await?;
        let read = answer::whole(&mut response.into_body(), self.idle_timeout).await;
        permit.conclude(read.as_ref().err());
        read
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        accept: HeaderValue,
    ) -> Result<Request<Full<Bytes>>, ModelError> {
        self.key()?;
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = self.base.with(path)?;
        let sent = request.headers_mut();
        sent.clone_from(&self.headers);
        sent.insert(ACCEPT, accept);
        for (name, value) in headers {
            sent.insert(name, value.clone());
        }
        let adapter_identifies = headers.iter().any(|(name, _)| is_credential(name));
        if let Some(bearer) = &self.bearer
            && !adapter_identifies
            && !sent.contains_key(AUTHORIZATION)
        {
            sent.insert(AUTHORIZATION, bearer.clone());
        }
        Ok(request)
    }

    /// Sends until there is a 2xx head, or an error that another try would not mend.
    async fn send(
        &self,
        request: Request<Full<Bytes>>,
        tap: Option<&Tap>,
    ) -> Result<(http::Response<Incoming>, Permit), ModelError> {
        self.budget.deposit();
        let mut permit = Breaker::enter(&self.breaker).map_err(ModelError::Resting)?;
        let mut tries = 0;
        loop {
            let error = match self.send_once(request.clone()).await {
                Ok(response) => {
                    permit.alive();
                    return Ok((response, permit));
                }
                Err(error) => error,
            };
            permit.conclude(Some(&error));
            if let (Some(tap), ModelError::Refused { body, .. }) = (tap, &error) {
                tap.hear(body.as_bytes());
            }
            let wait = match retry::wait(&error, tries) {
                Some(wait) if tries < self.retries && self.budget.withdraw() => wait,
                _ => return Err(error),
            };
            tries += 1;
            if let Some(tap) = tap {
                tap.again();
            }
            tracing::warn!(upstream.name = %self.name, tries, "upstream {} is asked again: {error}", self.name);
            tokio::time::sleep(wait).await;
            // An upstream that rests by now is not asked again; what it said last tells more than that it rests.
            permit = match Breaker::enter(&self.breaker) {
                Ok(permit) => permit,
                Err(_rest) => return Err(error),
            };
        }
    }

    async fn send_once(&self, request: Request<Full<Bytes>>) -> Result<http::Response<Incoming>, ModelError> {
        match tokio::time::timeout(self.first_byte_timeout, self.client.request(request)).await {
            Err(_elapsed) => Err(ModelError::Silent(self.first_byte_timeout)),
            Ok(Err(error)) => Err(client::error(&error)),
            Ok(Ok(response)) if response.status().is_success() => Ok(response),
            Ok(Ok(response)) => Err(refusal::read(response, self.idle_timeout, &self.secrets).await),
        }
    }
}

/// Headers that say who we are: never logged, and at most one of them is sent.
fn is_credential(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "authorization" | "proxy-authorization" | "x-api-key" | "api-key" | "x-goog-api-key" | "cookie"
    )
}

impl Base {
    fn read(base_url: &str) -> Result<Self, String> {
        let uri: Uri = base_url.parse().map_err(|error| format!("base_url cannot be read: {error}"))?;
        let authority = uri.authority().ok_or("base_url has no host")?;
        if authority.as_str().contains('@') {
            return Err("base_url must not hold a credential".to_owned());
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("base_url must begin with http:// or https://".to_owned());
        }
        let (before, query) = match base_url.split_once('?') {
            Some((before, query)) => (before, format!("?{query}")),
            None => (base_url, String::new()),
        };
        Ok(Self { before: before.trim_end_matches('/').to_owned(), query, usual: OnceLock::new() })
    }

    fn is_secure(&self) -> bool {
        self.before.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
    }

    fn with(&self, path: &str) -> Result<Uri, ModelError> {
        if let Some((usual, uri)) = self.usual.get()
            && usual == path
        {
            return Ok(uri.clone());
        }
        let Self { before, query, .. } = self;
        let uri = Uri::try_from(format!("{before}{path}{query}"))
            .map_err(|error| ModelError::Unreachable(format!("`{path}` is not a path: {error}")))?;
        let _ = self.usual.set((path.to_owned(), uri.clone()));
        Ok(uri)
    }
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
