//! The list of an upstream's models, cached.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Fault, ModelError, UpstreamCheck};
use amalgam_protocol::Raw;
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use http::{HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::{Instant, timeout_at};

use crate::{
    settings::{UpstreamKind, UpstreamSettings},
    transport::Transport,
};

const PATH: &str = "/models";
/// How long a list is cached.
const FRESH: Duration = Duration::from_secs(60);
/// How long a failure is cached; meanwhile no request is sent.
const FRESH_FAILURE: Duration = Duration::from_secs(10);
/// The deadline of one request, from connecting to the last byte. A turn may be waiting for the list to find its model.
const DEADLINE: Duration = Duration::from_secs(5);
/// The only model of the demo.
const DEMO: &str = "demo";

/// The names of an upstream's models.
type ModelNames = Arc<[String]>;

/// The source of an upstream's list.
pub(super) enum Listing {
    Fixed(ModelNames),
    Remote(Box<Remote>),
}

pub(super) struct Remote {
    upstream: Arc<Source>,
    state: Mutex<State>,
}

struct Source {
    name: String,
    transport: Transport,
    version: Option<HeaderValue>,
}

#[derive(Default)]
struct State {
    cached: Option<Cached>,
    request: Option<Request>,
}

struct Cached {
    names: ModelNames,
    fresh_until: Instant,
}

/// A request in progress. All callers that wait for the list poll the same request, so it continues if the caller that
/// started it disconnects, and its failure is recorded.
#[derive(Clone)]
struct Request {
    started_at: Instant,
    answer: Shared<BoxFuture<'static, Option<ModelNames>>>,
}

/// Asks an upstream for its models now, also one whose models are configured.
pub(super) async fn check(settings: &UpstreamSettings) -> UpstreamCheck {
    let problem = |problem: String| UpstreamCheck { problem: Some(problem), models: None };
    let source = match Source::new(settings) {
        Ok(Some(source)) => source,
        Ok(None) => return UpstreamCheck { problem: None, models: Some(1) },
        Err(fault) => return problem(fault.explained()),
    };
    match timeout_at(Instant::now() + DEADLINE, source.ask()).await {
        Ok(Ok(names)) => UpstreamCheck { problem: None, models: Some(names.len()) },
        // Not every server lists its models; one that says so was reached.
        Ok(Err(ModelError::Refused { status: 404 | 405 | 501, .. })) => UpstreamCheck { problem: None, models: None },
        Ok(Err(error)) => problem(error.to_string()),
        Err(_elapsed) => problem(format!("no answer within {} s", DEADLINE.as_secs())),
    }
}

impl Listing {
    pub(super) fn new(settings: &UpstreamSettings) -> Result<Self, Fault> {
        if !settings.models.is_empty() {
            return Ok(Self::Fixed(settings.models.as_slice().into()));
        }
        Ok(match Source::new(settings)? {
            None => Self::Fixed([DEMO.to_owned()].into()),
            Some(source) => Self::Remote(Box::new(Remote { upstream: Arc::new(source), state: Mutex::default() })),
        })
    }

    /// The names, from the cache if it is fresh. Returns after [`DEADLINE`] at the latest.
    pub(super) async fn names(&self) -> ModelNames {
        match self {
            Self::Fixed(names) => Arc::clone(names),
            Self::Remote(remote) => remote.names().await,
        }
    }
}

impl Remote {
    async fn names(&self) -> ModelNames {
        let request = {
            let mut state = self.state();
            let now = Instant::now();
            if let Some(cached) = state.cached.as_ref().filter(|cached| cached.fresh_until > now) {
                return Arc::clone(&cached.names);
            }
            // A request that its callers abandoned may be too old to describe the upstream's present state.
            let current = state.request.take().filter(|request| request.failure_ends_at() > now);
            state.request.insert(current.unwrap_or_else(|| Request::start(Arc::clone(&self.upstream)))).clone()
        };
        let answer = request.answer.clone().await;
        let mut state = self.state();
        if state.request.as_ref().is_some_and(|current| current.answer.ptr_eq(&request.answer)) {
            state.request = None;
            let cached = match answer {
                Some(names) => Cached { names, fresh_until: Instant::now() + FRESH },
                None => {
                    // A stale list is more likely to be right than an empty one.
                    let names = state.cached.take().map(|stale| stale.names).unwrap_or_default();
                    Cached { names, fresh_until: request.failure_ends_at() }
                }
            };
            state.cached = Some(cached);
        }
        state.cached.as_ref().map(|cached| Arc::clone(&cached.names)).unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Request {
    fn start(upstream: Arc<Source>) -> Self {
        let started_at = Instant::now();
        let answer = async move {
            let error = match timeout_at(started_at + DEADLINE, upstream.ask()).await {
                Ok(Ok(names)) => return Some(names.into()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", DEADLINE.as_secs()),
            };
            let name = &upstream.name;
            tracing::warn!(upstream.name = name, "upstream {name} does not list its models: {error}");
            None
        };
        Self { started_at, answer: answer.boxed().shared() }
    }

    /// Until when a failure of this request is cached.
    fn failure_ends_at(&self) -> Instant {
        self.started_at + DEADLINE + FRESH_FAILURE
    }
}

impl Source {
    /// The server of an upstream; none for the built-in demo.
    fn new(settings: &UpstreamSettings) -> Result<Option<Self>, Fault> {
        let version = match &settings.kind {
            UpstreamKind::Demo { .. } => return Ok(None),
            UpstreamKind::Anthropic { version, .. } => Some(version),
            UpstreamKind::Responses { .. } | UpstreamKind::Chat { .. } => None,
        };
        let version = version.map(HeaderValue::try_from).transpose().map_err(|_| {
            Fault::internal(format_args!("upstream `{}`: anthropic_version cannot be sent", settings.name))
        })?;
        let mut settings = settings.clone();
        settings.retries = 0;
        let transport = Transport::new(&settings)?;
        Ok(Some(Self { name: settings.name, transport, version }))
    }

    async fn ask(&self) -> Result<Vec<String>, ModelError> {
        let mut headers = Vec::new();
        if let Some(version) = &self.version {
            headers.push((HeaderName::from_static("anthropic-version"), version.clone()));
            if let Some(key) = self.transport.key()?
                && let Ok(mut key) = HeaderValue::try_from(key.expose_secret())
            {
                key.set_sensitive(true);
                headers.push((HeaderName::from_static("x-api-key"), key));
            }
        }
        let body = self.transport.get(PATH, &headers).await?;
        read(&body).ok_or_else(|| ModelError::Unreadable("not a list of models".to_owned()))
    }
}

/// Reads `{"data": [{"id"}]}`; some servers send `{"models": [{"name"}]}` or a bare list.
pub(crate) fn read(body: &[u8]) -> Option<Vec<String>> {
    let raw = Raw::parse(body).ok()?;
    let list = raw.get("data").or_else(|| raw.get("models")).unwrap_or(raw);
    if list.shape() != amalgam_protocol::Shape::Array {
        return None;
    }
    let name = |model: Raw<'_>| match model.as_str() {
        Some(name) => Some(name.decode().into_owned()),
        None => model.get_str("id").or_else(|| model.get_str("name")).map(|name| name.into_owned()),
    };
    Some(list.elements().filter_map(name).filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_every_shape() {
        for (body, expected) in [
            (r#"{"object":"list","data":[{"id":"a"},{"id":"b"},{}]}"#, Some(vec!["a", "b"])),
            (r#"{"models":[{"name":"a"}]}"#, Some(vec!["a"])),
            (r#"["a"]"#, Some(vec!["a"])),
            (r#"{"data":[]}"#, Some(vec![])),
            (r#"{"error":{}}"#, None),
            ("<html>", None),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(read(body.as_bytes()), expected, "{body}");
        }
    }
}
