//! The collector of the configuration: exports go through the guarded egress, with the collector's own address allowed.

use std::{sync::Arc, time::Duration};

use amalgam_core::BoxFuture;
use amalgam_telemetry::{ExportFailure, TelemetrySender, TelemetrySettings, TelemetryTarget};
use amalgam_tools::{Egress, EgressLimits};
use anyhow::Context as _;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use secrecy::ExposeSecret as _;

use crate::{cmd::version, wire_up::egress_to};
use amalgam_configuration::{Collector, TelemetryConfig};

/// The most that is read of a collector's answer.
const ANSWER_BYTES: usize = 64 * 1024;

/// The settings of the telemetry crate.
pub(super) fn settings(telemetry: &TelemetryConfig) -> anyhow::Result<TelemetrySettings> {
    let target = match &telemetry.otlp {
        Some(collector) => Some(TelemetryTarget(Arc::new(HttpCollector::new(collector)?))),
        None => None,
    };
    let own = [("service.name", telemetry.service_name.as_str()), ("service.version", version::VERSION)];
    let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let configured = telemetry
        .attributes
        .iter()
        .filter_map(|(key, secret)| secret.value().map(|value| (key.clone(), value.expose_secret().to_owned())));
    Ok(TelemetrySettings {
        target,
        resource: own.into_iter().chain(configured).collect(),
        sample: telemetry.sample,
        content: telemetry.content,
        interval: telemetry.interval,
        metrics_interval: telemetry.metrics_interval,
        queue: telemetry.queue,
    })
}

/// A collector that is reached by HTTP.
struct HttpCollector {
    url: String,
    headers: HeaderMap,
    egress: Egress,
    timeout: Duration,
}

impl HttpCollector {
    fn new(collector: &Collector) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(concat!("amalgam/", env!("CARGO_PKG_VERSION"))));
        for (name, secret) in &collector.headers {
            let Some(value) = secret.value() else { continue };
            let invalid = || format!("the header `{name}` of the telemetry collector cannot be sent");
            let mut value = HeaderValue::from_str(value.expose_secret()).with_context(invalid)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name).with_context(invalid)?, value);
        }
        let egress = egress_to(&collector.url).context("reading the address of the telemetry collector")?;
        Ok(Self { url: collector.url.clone(), headers, egress, timeout: collector.timeout })
    }
}

impl TelemetrySender for HttpCollector {
    fn post<'a>(&'a self, path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(), ExportFailure>> {
        Box::pin(async move {
            let limits = EgressLimits { bytes: ANSWER_BYTES, timeout: self.timeout };
            let url = [&*self.url, path].concat();
            let answer = self.egress.request(Method::POST, &url, self.headers.clone(), body, limits).await;
            let answer =
                answer.map_err(|error| ExportFailure { reason: error.to_string(), retry: true, retry_after: None })?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let retry_after =
                answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Err(ExportFailure {
                reason: format!("it answered {}", status.as_u16()),
                retry: matches!(status.as_u16(), 429 | 502 | 503 | 504),
                retry_after: retry_after.map(Duration::from_secs),
            })
        })
    }
}
