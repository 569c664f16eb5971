//! The transport to an upstream: one pool of connections, with limits on time, size and retries.
//!
//! HTTP/1.1 is implemented in `head`, `framing` and `exchange`: a turn reads its upstream in its own task, and all
//! bytes that have arrived are read at once.
//!
//! A request is retried only while nothing of an answer was passed on, within a budget, and not while the circuit
//! breaker is open. A [`Decode`] interprets the answer.

mod answer;
mod breaker;
mod client;
mod exchange;
mod framing;
mod head;
mod pool;
mod proxy;
mod refusal;
mod request;
mod retry;

pub use self::{
    client::reach,
    proxy::{Proxies, Proxy},
};

use std::{sync::Arc, time::Duration};

use amalgam_core::{AnswerContext, CallRecorder, Delivery, Fault, ModelError, ModelStream, PreparedRequest};
use amalgam_protocol::Raw;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header::USER_AGENT};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

use crate::{
    decode::Decode,
    registry::listing,
    settings::{Key, UpstreamSettings},
};

use self::{
    answer::{AnswerReading, AnswerStart},
    breaker::{Breaker, Permit},
    client::Client,
    exchange::Body,
    head::Head,
    refusal::Secrets,
    request::{Base, Requests, is_credential},
    retry::Budget,
};

/// The connections to one upstream, with everything that its requests share.
pub(crate) struct Transport {
    name: String,
    client: Client,
    requests: Requests,
    key: Key,
    /// Secrets that must not appear in errors or records of the upstream's answers.
    secrets: Secrets,
    first_byte_timeout: Duration,
    total_timeout: Option<Duration>,
    idle_timeout: Duration,
    retries: u32,
    budget: Budget,
    breaker: Arc<Breaker>,
}

impl Transport {
    /// Prepares the transport; connects to nothing yet.
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
        let proxy_authorization = settings.proxy.as_ref().and_then(|proxy| proxy.authorization.as_ref());
        secrets.extend(proxy_authorization.and_then(|value| value.to_str().ok()).map(SecretString::from));
        let address = base.with("").map_err(|error| wrong(error.to_string()))?;
        let client = Client::new(address, settings.proxy.clone(), settings.connect_timeout).map_err(wrong)?;
        let mut requests = Requests::new(base, headers, bearer);
        if let Some(proxy) = client.forwarding_proxy() {
            requests = requests.forwarded_by(proxy);
        }
        Ok(Self {
            name: settings.name.clone(),
            client,
            requests,
            key: settings.key.clone(),
            secrets: Secrets::new(secrets),
            first_byte_timeout: settings.first_byte_timeout,
            total_timeout: settings.total_timeout,
            idle_timeout: settings.idle_timeout,
            retries: settings.retries.min(2),
            budget: Budget::default(),
            breaker: Arc::new(Breaker::default()),
        })
    }

    /// Whether the circuit breaker is open.
    pub(crate) fn is_resting(&self) -> bool {
        self.breaker.is_open()
    }

    /// The credential, for adapters that send it in a header of their own.
    pub(crate) fn key(&self) -> Result<Option<&SecretString>, ModelError> {
        match &self.key {
            Key::None => Ok(None),
            Key::Given(key) => Ok(Some(key)),
            Key::Missing { variable } => {
                Err(ModelError::NoKey { upstream: self.name.clone(), variable: variable.clone() })
            }
        }
    }

    /// Posts a body and decodes the answer: as a stream, or in one batch.
    ///
    /// After an error nothing was passed on. Dropping the stream before its end closes the connection.
    pub(crate) async fn ask<D: Decode>(
        &self,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        prepared: &PreparedRequest,
        decoder: impl FnOnce() -> D,
    ) -> Result<ModelStream, ModelError> {
        self.key()?;
        let AnswerContext { trace, trace_state, .. } = &prepared.answer_context;
        let trace = trace.map(|trace| (trace, trace_state.as_deref()));
        let head = self.requests.post(path, headers, prepared.delivery, prepared.body.len(), trace)?;
        let recorder = prepared.answer_context.recorder.as_ref();
        if let Some(recorder) = recorder {
            let secrets = self.secrets.clone();
            recorder.redact_with(Arc::new(move |bytes| secrets.clean_bytes(bytes)));
        }
        let start = self.begin(head, prepared);
        let StartedRequest { body, permit, start } =
            match self.total_timeout.filter(|_| prepared.delivery == Delivery::Whole) {
                Some(limit) => tokio::time::timeout(limit, start).await.unwrap_or(Err(ModelError::Silent(limit)))?,
                None => start.await?,
            };
        let reading = AnswerReading { idle_timeout: self.idle_timeout, permit, secrets: &self.secrets, recorder };
        answer::read(start, body, decoder(), reading)
    }

    /// Sends a request and waits until its answer begins, or for the whole body if the answer is not an event stream.
    async fn begin(&self, head: Bytes, prepared: &PreparedRequest) -> Result<StartedRequest, ModelError> {
        let first_byte = match prepared.delivery {
            Delivery::Stream => Some(self.first_byte_timeout),
            // A whole answer begins when the model is done, so silence before it says nothing about the upstream.
            Delivery::Whole => None,
        };
        let AnswerContext { recorder, request_id, .. } = &prepared.answer_context;
        let recorder = recorder.as_ref();
        let caller = CallingRequest { recorder, id: request_id.as_deref() };
        let ((head, mut body), permit) = self.send(head, &prepared.body, first_byte, caller).await?;
        let start = answer::begin(&head, &mut body, prepared.delivery, self.idle_timeout, recorder).await;
        Ok(StartedRequest { body, permit, start })
    }

    /// Gets a small document, such as the list of models.
    pub(crate) async fn get(&self, path: &str, headers: &[(HeaderName, HeaderValue)]) -> Result<Bytes, ModelError> {
        self.key()?;
        let head = self.requests.get(path, headers)?;
        let first_byte = Some(self.first_byte_timeout);
        let ((_head, mut body), permit) = self.send(head, &Bytes::new(), first_byte, CallingRequest::default()).await?;
        let read = answer::whole(&mut body, Vec::new(), self.idle_timeout).await;
        permit.conclude(read.as_ref().err());
        read
    }

    /// Posts a body and reads the whole answer, such as the embeddings of texts.
    pub(crate) async fn post(&self, path: &str, body: Bytes) -> Result<Bytes, ModelError> {
        self.key()?;
        let head = self.requests.post(path, &[], Delivery::Whole, body.len(), None)?;
        let first_byte = Some(self.first_byte_timeout);
        let ((_head, mut answer), permit) = self.send(head, &body, first_byte, CallingRequest::default()).await?;
        let read = answer::whole(&mut answer, Vec::new(), self.idle_timeout).await;
        permit.conclude(read.as_ref().err());
        read
    }

    /// The upstream's name of a model. If it has no route for single models, its list is read.
    pub(crate) async fn identify(
        &self,
        name: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<String, ModelError> {
        let listed = match self.get(&model_path(name), headers).await {
            Ok(body) => {
                let id = Raw::parse(&body).ok().and_then(|model| model.get_str("id").map(|id| id.into_owned()));
                return Ok(id.filter(|id| !id.is_empty()).unwrap_or_else(|| name.to_owned()));
            }
            Err(error @ ModelError::Refused { status: 404 | 405, .. }) => error,
            Err(error) => return Err(error),
        };
        let body = self.get("/models", headers).await.map_err(|_| listed)?;
        match listing::read(&body).unwrap_or_default().into_iter().find(|known| known == name) {
            Some(id) => Ok(id),
            None => Err(ModelError::Refused {
                status: 404,
                retry_after: None,
                message: Some("The upstream does not list this model.".to_owned()),
                code: None,
                param: None,
                body: String::new(),
            }),
        }
    }

    /// The variable that should hold the key, if it is not set.
    pub(crate) fn missing_key(&self) -> Option<&str> {
        match &self.key {
            Key::Missing { variable } => Some(variable),
            Key::None | Key::Given(_) => None,
        }
    }

    /// Sends until a 2xx head arrives, or an error that a retry would not fix.
    async fn send(
        &self,
        head: Bytes,
        body: &Bytes,
        first_byte: Option<Duration>,
        caller: CallingRequest<'_>,
    ) -> Result<((Head, Body), Permit), ModelError> {
        let CallingRequest { recorder, id } = caller;
        self.budget.deposit();
        let mut permit = Breaker::enter(&self.breaker).map_err(ModelError::Resting)?;
        let mut tries = 0;
        loop {
            let error = match self.send_once(&head, body, first_byte, recorder).await {
                Ok(answer) => {
                    permit.answer_began();
                    return Ok((answer, permit));
                }
                Err(error) => error,
            };
            permit.conclude(Some(&error));
            let wait = match retry::wait(&error, tries) {
                Some(wait) if tries < self.retries && self.budget.withdraw() => wait,
                _ => return Err(error),
            };
            tries += 1;
            if let Some(recorder) = recorder {
                recorder.restart();
            }
            tracing::warn!(
                request.id = id,
                upstream.name = %self.name,
                tries,
                "upstream {} is retried: {error}",
                self.name
            );
            tokio::time::sleep(wait).await;
            // If the breaker has opened meanwhile, the last error is more useful to the caller than that fact.
            permit = match Breaker::enter(&self.breaker) {
                Ok(permit) => permit,
                Err(_rest) => return Err(error),
            };
        }
    }

    async fn send_once(
        &self,
        head: &Bytes,
        body: &Bytes,
        first_byte: Option<Duration>,
        recorder: Option<&CallRecorder>,
    ) -> Result<(Head, Body), ModelError> {
        let request = self.client.request(head, body);
        let answered = match first_byte {
            Some(limit) => tokio::time::timeout(limit, request).await.unwrap_or(Err(ModelError::Silent(limit))),
            None => request.await,
        };
        match answered {
            Err(error) => Err(error),
            Ok((head, body)) if (200..300).contains(&head.status) => Ok((head, body)),
            // A 407 comes from the forwarding proxy, not from the upstream.
            Ok((head, _)) if head.status == 407 && self.client.forwarding_proxy().is_some() => {
                Err(ModelError::Proxy("it wants other credentials (407)".to_owned()))
            }
            // Boxed, so that the futures of successful answers stay small.
            Ok((head, body)) => {
                Err(Box::pin(refusal::read(&head, body, self.idle_timeout, &self.secrets, recorder)).await)
            }
        }
    }
}

/// Who a request to an upstream is made for.
#[derive(Debug, Clone, Copy, Default)]
struct CallingRequest<'a> {
    recorder: Option<&'a CallRecorder>,
    /// The id of the caller's request, for the log.
    id: Option<&'a str>,
}

/// A request whose answer has start.
struct StartedRequest {
    body: Body,
    permit: Permit,
    start: Result<AnswerStart, ModelError>,
}

/// Characters of a model's name that are not percent-encoded in a path.
const MODEL_NAME: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b'/');

/// `/models/{name}`.
fn model_path(name: &str) -> String {
    format!("/models/{}", utf8_percent_encode(name, MODEL_NAME))
}

#[cfg(test)]
#[path = "transport_tests.rs"]
mod tests;
