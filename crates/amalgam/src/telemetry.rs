//! Telemetry by the configuration, and the way to its collector.

#[cfg(feature = "otel")]
mod collector;

use std::sync::Arc;

use amalgam_core::{BoxFuture, Clock, TelemetryMeter, TraceSink};

use amalgam_configuration::Config;

/// The telemetry of this process.
#[derive(Clone)]
pub(crate) struct ProcessTelemetry {
    /// Counts what is exported and dropped.
    pub(crate) meter: TelemetryMeter,
    #[cfg(feature = "otel")]
    telemetry: Arc<amalgam_telemetry::Telemetry>,
}

#[cfg(feature = "otel")]
impl ProcessTelemetry {
    /// Telemetry by this configuration. Connects to nothing.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let meter = TelemetryMeter::default();
        let settings = collector::settings(&config.telemetry)?;
        let telemetry = Arc::new(amalgam_telemetry::Telemetry::new(settings, meter.clone(), clock));
        Ok(Self { meter, telemetry })
    }

    /// Receives ended requests and turns.
    pub(crate) fn sink(&self) -> Arc<dyn TraceSink> {
        Arc::clone(&self.telemetry) as Arc<dyn TraceSink>
    }

    /// The change to a new configuration, which cannot fail any more.
    pub(crate) fn prepare(&self, config: &Config) -> anyhow::Result<impl FnOnce()> {
        let (settings, telemetry) = (collector::settings(&config.telemetry)?, Arc::clone(&self.telemetry));
        Ok(move || telemetry.change(settings))
    }

    /// Exports for as long as it is polled; `metrics` reads the metrics.
    pub(crate) async fn export(&self, metrics: impl Fn() -> BoxFuture<'static, String>) {
        tokio::join!(self.telemetry.export_traces(), self.telemetry.export_metrics(metrics));
    }

    /// Exports the rest of the traces before the process ends.
    pub(crate) async fn flush(&self) {
        self.telemetry.flush(std::time::Duration::from_secs(2)).await;
    }
}

#[cfg(not(feature = "otel"))]
impl ProcessTelemetry {
    pub(crate) fn new(_: &Config, _: Arc<dyn Clock>) -> anyhow::Result<Self> {
        Ok(Self { meter: TelemetryMeter::default() })
    }

    pub(crate) fn sink(&self) -> Arc<dyn TraceSink> {
        Arc::new(amalgam_core::NoTraces)
    }

    pub(crate) fn prepare(&self, _: &Config) -> anyhow::Result<impl FnOnce() + use<>> {
        Ok(|| ())
    }

    pub(crate) async fn export(&self, _: impl Fn() -> BoxFuture<'static, String>) {
        std::future::pending().await
    }

    pub(crate) async fn flush(&self) {}
}
