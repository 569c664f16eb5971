//! Sends batches to the collector, apart from all requests.

use std::{sync::Arc, time::Duration};

use amalgam_core::{BoxFuture, TelemetrySignal};
use bytes::Bytes;
use prost::Message as _;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::{
    attributes::Attributes,
    message::{InstrumentationScope, METRICS, Resource, TRACES},
    metrics::{self, Period},
    sink::{Telemetry, TelemetrySettings},
    traces::{self, TimeAnchor},
};

/// Pauses between attempts of an export that may succeed later.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The longest pause that a collector can ask for.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The way to a collector.
pub trait TelemetrySender: Send + Sync {
    /// Posts a protobuf message to a path below the collector's address. It must end within a bounded time.
    fn post<'a>(&'a self, path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(), ExportFailure>>;
}

/// Why a collector did not accept an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportFailure {
    /// For the log.
    pub reason: String,
    /// Whether the same export may succeed later.
    pub retry: bool,
    /// How long the collector wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl Telemetry {
    /// Exports traces for as long as it is polled.
    pub async fn export_traces(&self) {
        let mut log = CollectorLog::new(TelemetrySignal::Traces);
        loop {
            if self.is_empty() {
                self.first.notified().await;
            }
            // The first one waits until a batch is complete, but not for longer than the interval.
            let _ = timeout(self.settings().interval, self.batch.notified()).await;
            while self.export_batch(&mut log).await {}
        }
    }

    /// Exports what waits, at most for `patience`; for a process that stops.
    pub async fn flush(&self, patience: Duration) {
        let mut log = CollectorLog::new(TelemetrySignal::Traces);
        let _ = timeout(patience, async { while self.export_batch(&mut log).await {} }).await;
        let left: usize = std::iter::from_fn(|| Some(self.take()).filter(|batch| !batch.is_empty()))
            .map(|batch| batch.iter().map(|ended| ended.len()).sum::<usize>())
            .sum();
        self.meter.dropped(TelemetrySignal::Traces, left as u64);
    }

    /// Exports one batch. Returns whether more may wait.
    async fn export_batch(&self, log: &mut CollectorLog) -> bool {
        let batch = self.take();
        if batch.is_empty() {
            return false;
        }
        let spans = batch.iter().map(|ended| ended.len() as u64).sum();
        let resource = resource(&self.settings());
        let message = traces::export(&batch, resource, scope(), &TimeAnchor::now(&*self.clock));
        drop(batch);
        self.send(TRACES, message.encode_to_vec().into(), TelemetrySignal::Traces, spans, log).await;
        true
    }

    /// Exports metrics for as long as it is polled; `read` returns them as Prometheus' text.
    pub async fn export_metrics(&self, read: impl Fn() -> BoxFuture<'static, String>) {
        let mut log = CollectorLog::new(TelemetrySignal::Metrics);
        let mut due = Instant::now();
        loop {
            let changed = self.changed.notified();
            let settings = self.settings();
            if settings.target.is_none() || settings.metrics_interval.is_zero() {
                changed.await;
                due = Instant::now();
                continue;
            }
            due += settings.metrics_interval;
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                () = changed => {
                    due = Instant::now();
                    continue;
                }
            }
            let text = read().await;
            let (start_ns, now_ns) = (self.started_at_ms * 1_000_000, self.clock.now_ms() * 1_000_000);
            let message = metrics::export(&text, resource(&settings), scope(), Period { start_ns, now_ns });
            self.send(METRICS, message.encode_to_vec().into(), TelemetrySignal::Metrics, 1, &mut log).await;
            // A slow collector gets no burst of exports afterwards.
            due = due.max(Instant::now());
        }
    }

    /// Sends to the collector that is configured at the time of each attempt.
    async fn send(
        &self,
        path: &'static str,
        body: Bytes,
        signal: TelemetrySignal,
        number: u64,
        log: &mut CollectorLog,
    ) {
        let mut pauses = PAUSES.iter();
        loop {
            let Some(target) = self.settings().target.clone() else { break };
            match Arc::clone(&target.0).post(path, body.clone()).await {
                Ok(()) => {
                    log.accepted();
                    return self.meter.exported(signal, number);
                }
                Err(failure) => {
                    let pause = pauses.next().filter(|_| failure.retry);
                    let Some(pause) = pause else {
                        log.failed(&failure, number);
                        break;
                    };
                    sleep(failure.retry_after.unwrap_or(*pause).min(MAX_PAUSE)).await;
                }
            }
        }
        self.meter.dropped(signal, number);
    }
}

/// Logs when exports begin to fail and when they succeed again, not each of them.
struct CollectorLog {
    signal: TelemetrySignal,
    fails: bool,
}

impl CollectorLog {
    fn new(signal: TelemetrySignal) -> Self {
        Self { signal, fails: false }
    }

    fn failed(&mut self, failure: &ExportFailure, number: u64) {
        if !std::mem::replace(&mut self.fails, true) {
            let signal = self.signal.name();
            warn!(signal, dropped = number, "the telemetry collector accepts nothing: {}", failure.reason);
        }
    }

    fn accepted(&mut self) {
        if std::mem::replace(&mut self.fails, false) {
            info!(signal = self.signal.name(), "the telemetry collector accepts exports again");
        }
    }
}

fn resource(settings: &TelemetrySettings) -> Resource {
    let mut attributes = Attributes::default();
    for (key, value) in &settings.resource {
        attributes.add(key, value.as_str());
    }
    Resource { attributes: attributes.into_list() }
}

fn scope() -> InstrumentationScope {
    InstrumentationScope { name: "amalgam".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}
