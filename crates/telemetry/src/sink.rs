//! The queue of ended requests and turns, and the settings in force.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use amalgam_core::{Clock, EndedTrace, TelemetryMeter, TelemetrySignal, TraceContext, TraceSink};
use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::export::TelemetrySender;

/// The most requests and turns in one export.
pub(crate) const BATCH: usize = 256;

/// What is exported, and where.
#[derive(Clone)]
pub struct TelemetrySettings {
    /// The collector; none if nothing is exported.
    pub target: Option<TelemetryTarget>,
    /// Attributes of the resource, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// The share of new traces that are recorded, from 0 to 1.
    pub sample: f64,
    /// Whether spans of tool calls include arguments and results.
    pub content: bool,
    /// The longest time until a span is exported.
    pub interval: Duration,
    /// The time between two exports of the metrics; none are exported if it is zero.
    pub metrics_interval: Duration,
    /// The most requests and turns that wait to be exported.
    pub queue: usize,
}

/// A collector.
#[derive(Clone)]
pub struct TelemetryTarget(pub Arc<dyn TelemetrySender>);

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            target: None,
            resource: Vec::new(),
            sample: 1.0,
            content: false,
            interval: Duration::from_secs(5),
            metrics_interval: Duration::from_secs(60),
            queue: 2048,
        }
    }
}

/// Collects ended requests and turns until they are exported.
pub struct Telemetry {
    settings: ArcSwap<TelemetrySettings>,
    waiting: Mutex<VecDeque<Box<EndedTrace>>>,
    /// Notified when a whole batch waits.
    pub(crate) batch: Notify,
    /// Notified when the first one waits.
    pub(crate) first: Notify,
    /// Notified when the settings have changed.
    pub(crate) changed: Notify,
    pub(crate) meter: TelemetryMeter,
    pub(crate) clock: Arc<dyn Clock>,
    /// When the process started, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
}

impl Telemetry {
    /// Telemetry with these settings; `meter` counts what is dropped.
    pub fn new(settings: TelemetrySettings, meter: TelemetryMeter, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings: ArcSwap::new(Arc::new(settings)),
            waiting: Mutex::default(),
            batch: Notify::new(),
            first: Notify::new(),
            changed: Notify::new(),
            meter,
            started_at_ms: clock.now_ms(),
            clock,
        }
    }

    /// Puts other settings into force, from the next export on.
    pub fn change(&self, settings: TelemetrySettings) {
        self.settings.store(Arc::new(settings));
        self.changed.notify_waiters();
    }

    pub(crate) fn settings(&self) -> Arc<TelemetrySettings> {
        self.settings.load_full()
    }

    /// Takes the next batch.
    pub(crate) fn take(&self) -> VecDeque<Box<EndedTrace>> {
        let mut waiting = self.waiting();
        let taken = waiting.len().min(BATCH);
        waiting.drain(..taken).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting().is_empty()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Box<EndedTrace>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceSink for Telemetry {
    fn begin(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        let settings = self.settings.load();
        if settings.target.is_none() {
            return parent;
        }
        Some(match parent {
            // The caller has decided whether its trace is recorded.
            Some(parent) => parent.child(),
            None => {
                let trace = TraceContext::root(true);
                TraceContext { sampled: is_sampled(trace.trace_id, settings.sample), ..trace }
            }
        })
    }

    fn keeps_content(&self) -> bool {
        self.settings.load().content
    }

    fn ended(&self, ended: Box<EndedTrace>) {
        let most = self.settings.load().queue;
        let mut waiting = self.waiting();
        // A full queue drops the new ones: a collector that does not answer must not cost memory or time.
        if waiting.len() >= most {
            drop(waiting);
            self.meter.dropped(TelemetrySignal::Traces, ended.len() as u64);
            return;
        }
        waiting.push_back(ended);
        match waiting.len() {
            1 => self.first.notify_one(),
            BATCH => self.batch.notify_one(),
            _ => {}
        }
    }
}

/// Whether a new trace is recorded. Its id decides, so that the share is even.
fn is_sampled(trace_id: u128, share: f64) -> bool {
    const MASK: u128 = (1 << 53) - 1;
    ((trace_id & MASK) as f64) < share * MASK as f64 || share >= 1.0
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Telemetry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_share_of_new_traces_is_what_is_configured() {
        for (share, expected) in [(0.0, 0..=0), (0.5, 400..=600), (1.0, 1000..=1000)] {
            let recorded = (0..1000).filter(|_| is_sampled(TraceContext::root(true).trace_id, share)).count();
            assert!(expected.contains(&recorded), "{share}: {recorded}");
        }
    }
}
