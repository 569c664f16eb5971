//! Telemetry: collects ended requests and turns, and exports them as traces, with the metrics of the process, by OTLP over HTTP.
//!
//! A request only puts a value into a bounded queue. Everything else happens in the tasks of [`Telemetry::export_traces`] and
//! [`Telemetry::export_metrics`]. The HTTP client is passed in as a [`TelemetrySender`].

mod attributes;
mod export;
mod message;
mod metrics;
mod model_call;
mod sink;
mod traces;

pub use export::{ExportFailure, TelemetrySender};
pub use sink::{Telemetry, TelemetrySettings, TelemetryTarget};
