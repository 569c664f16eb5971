//! Sends events to the addresses of webhook endpoints.

use std::time::Duration;

use amalgam_core::{BoxFuture, Fault, WebhookSender};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use tokio::time::timeout;

use super::{Egress, EgressError, EgressLimits, Target, chain};

/// The time for one delivery.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The size of an answer; only its status matters.
const ANSWER_BYTES: usize = 64 * 1024;

impl WebhookSender for Egress {
    fn check<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let checked = async {
                let target = Target::parse(url)?;
                self.pin(&target).await.map(drop)
            };
            match timeout(TIMEOUT, checked).await {
                Ok(checked) => checked.map_err(|error| Fault::from(error).param("url")),
                Err(_) => Err(Fault::from(EgressError::Timeout(TIMEOUT)).param("url")),
            }
        })
    }

    fn post<'a>(
        &'a self,
        url: &'a str,
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    ) -> BoxFuture<'a, Result<u16, String>> {
        Box::pin(async move {
            let mut map = HeaderMap::new();
            map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            map.insert(header::USER_AGENT, HeaderValue::from_static("amalgam-webhooks"));
            for (name, value) in headers {
                let value = HeaderValue::from_str(&value).map_err(|_| format!("the header {name} cannot be sent"))?;
                map.insert(HeaderName::from_static(name), value);
            }
            let limits = EgressLimits { bytes: ANSWER_BYTES, timeout: TIMEOUT };
            match self.request(Method::POST, url, map, body, limits).await {
                Ok(answer) => Ok(answer.status().as_u16()),
                Err(error) => Err(chain(&error)),
            }
        })
    }
}
