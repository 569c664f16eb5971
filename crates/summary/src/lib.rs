//! Accounting of requests and turns, without their content: summaries with tokens and cost, spans, places in traces, rules and windows of
//! limits, and what is left of them.
//!
//! Lists, usage, metrics, logs and traces show them. `amalgam_core` exports everything again.

mod door;
mod limit_rules;
mod limit_windows;
mod rate_limits;
mod request_context;
mod trace_sink;
mod turn_span;
mod turn_summary;

pub use door::Door;
pub use limit_rules::{Budget, BudgetPeriod, BudgetUnit, LimitKind, LimitRules, LimitSubject};
pub use limit_windows::{minute, minute_end};
pub use rate_limits::{RateLimits, RateWindow};
pub use request_context::{KeptTurn, RequestContext, TraceContext, new_span_id};
pub use trace_sink::{EndedRequest, EndedTrace, NoTraces, TelemetryMeter, TelemetrySignal, TraceSink};
pub use turn_span::{MAX_SPANS, StoredPart, ToolContent, ToolSpan, TurnSpan, TurnStep};
pub use turn_summary::{
    CallSummary, Cost, NoObserver, Price, TokenSums, TurnObserver, TurnOrigin, TurnQueue, TurnSummary, Wire,
};
