//! The port to which ended requests and turns are passed for traces.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use crate::{door::Door, request_context::TraceContext, turn_span::TurnSpan, turn_summary::TurnSummary};

/// Receives ended requests and turns. Its methods return at once; what cannot be taken is dropped and counted.
pub trait TraceSink: Send + Sync {
    /// The place in a trace of a new request, or of a turn that continues without its request. Without an exporter it is the
    /// parent itself, which is passed on to other servers.
    fn begin(&self, parent: Option<TraceContext>) -> Option<TraceContext>;

    /// Whether spans of tool calls include arguments and results.
    fn keeps_content(&self) -> bool;

    /// A request or a turn has ended whose trace is recorded.
    fn ended(&self, ended: Box<EndedTrace>);
}

/// A request that has ended, or a turn that has ended after its request.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedTrace {
    /// Its own span, with the span of its caller.
    pub trace: TraceContext,
    /// The request; none for a turn that has outlived its request.
    pub request: Option<EndedRequest>,
    /// The turn that ended in it.
    pub turn: Option<Box<TurnSummary>>,
    /// Spans that are not in the summary: the write of its end, and waits of a request that was refused.
    pub more: Vec<TurnSpan>,
    /// When it began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
}

/// A request as a trace shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedRequest {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The route that the path belongs to, if there is one.
    pub route: Option<&'static str>,
    /// The door.
    pub door: Door,
    /// The `x-request-id`.
    pub request_id: Arc<str>,
    /// The status of the response.
    pub status: u16,
    /// The class of the error.
    pub error: Option<String>,
    /// The caller's tenant.
    pub tenant_id: Option<i64>,
    /// The caller's key.
    pub key_id: Option<Arc<str>>,
    /// The caller.
    pub user: Option<Arc<str>>,
    /// Whether the caller disconnected before the end.
    pub disconnected: bool,
}

/// A sink without an exporter.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoTraces;

impl TraceSink for NoTraces {
    fn begin(&self, parent: Option<TraceContext>) -> Option<TraceContext> {
        parent
    }

    fn keeps_content(&self) -> bool {
        false
    }

    fn ended(&self, _: Box<EndedTrace>) {}
}

impl EndedTrace {
    /// The number of its spans.
    #[expect(clippy::len_without_is_empty, reason = "it has at least its own span")]
    pub fn len(&self) -> usize {
        1 + self.turn.as_ref().map_or(0, |turn| turn.spans.len()) + self.more.len()
    }
}

/// What is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TelemetrySignal {
    /// Spans.
    Traces,
    /// Exports of all metrics.
    Metrics,
}

impl TelemetrySignal {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Traces, Self::Metrics];

    /// The name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

/// Counts what was exported and what was dropped. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct TelemetryMeter(Arc<[[AtomicU64; 2]; 2]>);

impl TelemetryMeter {
    fn counts(&self, signal: TelemetrySignal) -> &[AtomicU64; 2] {
        let [traces, metrics] = &*self.0;
        match signal {
            TelemetrySignal::Traces => traces,
            TelemetrySignal::Metrics => metrics,
        }
    }

    /// Counts what a collector has accepted.
    pub fn exported(&self, signal: TelemetrySignal, number: u64) {
        let [exported, _] = self.counts(signal);
        exported.fetch_add(number, Ordering::Relaxed);
    }

    /// Counts what no collector receives.
    pub fn dropped(&self, signal: TelemetrySignal, number: u64) {
        let [_, dropped] = self.counts(signal);
        dropped.fetch_add(number, Ordering::Relaxed);
    }

    /// What was exported and what was dropped.
    pub fn read(&self, signal: TelemetrySignal) -> (u64, u64) {
        let [exported, dropped] = self.counts(signal);
        (exported.load(Ordering::Relaxed), dropped.load(Ordering::Relaxed))
    }
}
