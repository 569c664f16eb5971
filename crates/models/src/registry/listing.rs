//! Which models an upstream serves, asked at most once in a while.

use std::time::Duration;

use amalgam_core::{Fault, ModelError};
use amalgam_protocol::Raw;
use http::{HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    settings::{UpstreamKind, UpstreamSettings},
    transport::Transport,
};

const PATH: &str = "/models";
/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(60);
/// How long no answer is good for.
const FRESH_FAILURE: Duration = Duration::from_secs(10);
/// A request may be waiting for the list to find its model: no time for tries and patience.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The one model of the demo.
const DEMO: &str = "demo";

/// Where an upstream's list comes from.
pub(super) enum Listing {
    Fixed(Vec<String>),
    Asked(Box<Asked>),
}

pub(super) struct Asked {
    transport: Transport,
    version: Option<HeaderValue>,
    /// Held while asking, so that callers who come meanwhile share the answer.
    known: Mutex<Option<Known>>,
}

struct Known {
    names: Vec<String>,
    until: Instant,
}

impl Listing {
    pub(super) fn new(settings: &UpstreamSettings) -> Result<Self, Fault> {
        if !settings.models.is_empty() {
            return Ok(Self::Fixed(settings.models.clone()));
        }
        let version = match &settings.kind {
            UpstreamKind::Demo { .. } => return Ok(Self::Fixed(vec![DEMO.to_owned()])),
            UpstreamKind::Anthropic { version, .. } => Some(version),
            UpstreamKind::Responses { .. } | UpstreamKind::Chat { .. } => None,
        };
        let version = version.map(HeaderValue::try_from).transpose().map_err(|_| {
            Fault::internal(format_args!("upstream `{}`: anthropic_version cannot be sent", settings.name))
        })?;
        let mut settings = settings.clone();
        settings.retries = 0;
        settings.first_byte_timeout = settings.first_byte_timeout.min(LONGEST_WAIT);
        settings.idle_timeout = settings.idle_timeout.min(LONGEST_WAIT);
        Ok(Self::Asked(Box::new(Asked { transport: Transport::new(&settings)?, version, known: Mutex::new(None) })))
    }

    /// What `look` makes of the names.
    pub(super) async fn read<T>(&self, upstream: &str, look: impl FnOnce(&[String]) -> T) -> T {
        match self {
            Self::Fixed(names) => look(names),
            Self::Asked(asked) => asked.read(upstream, look).await,
        }
    }
}

impl Asked {
    async fn read<T>(&self, upstream: &str, look: impl FnOnce(&[String]) -> T) -> T {
        let mut known = self.known.lock().await;
        let names = match known.take() {
            Some(fresh) if fresh.until > Instant::now() => known.insert(fresh),
            stale => {
                let asked = match self.ask().await {
                    Ok(names) => Known { names, until: Instant::now() + FRESH },
                    Err(error) => {
                        tracing::warn!(
                            upstream.name = upstream,
                            "upstream {upstream} does not list its models: {error}"
                        );
                        // What it said before is more likely true than nothing.
                        let names = stale.map(|stale| stale.names).unwrap_or_default();
                        Known { names, until: Instant::now() + FRESH_FAILURE }
                    }
                };
                known.insert(asked)
            }
        };
        look(&names.names)
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

/// `{"data": [{"id"}]}`; `{"models": [{"name"}]}` and a bare list are met too.
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
