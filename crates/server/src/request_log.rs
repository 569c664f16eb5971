//! One log line for each request when its response body has ended, and one for each turn that outlives its request.
//!
//! Lines contain ids, names, counts and classes of errors: never a body, a prompt, or a secret.

mod failure;
mod observed_body;
mod trace;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use amalgam_core::{
    Door, Fault, RequestContext, Scope, TraceContext, TraceSink, TurnObserver, TurnQueue, TurnSpan, TurnSummary,
};
use amalgam_protocol::Status;
use arc_swap::ArcSwap;
use axum::{body::Body, extract::Request, response::Response};
use http::{Method, Uri};
use http_body::Body as _;
use tokio::time::Instant;
use tracing::level_filters::LevelFilter;

pub(crate) use self::failure::Failure;
use self::observed_body::ObservedBody;
use crate::{
    metrics::{Metrics, door_of_path},
    wires::error::status,
};

/// The target of the lines, for log filters.
const TARGET: &str = "amalgam_request";

/// The maximum length of a path in a line.
const MAX_PATH_BYTES: usize = 200;

/// Which lines are written.
#[derive(Debug, Clone)]
pub struct RequestLogSettings {
    /// The share of lines of successful requests, from 0 to 1.
    pub sample: f64,
    /// Lines of a door below this level are left out.
    pub doors: Vec<(Door, LevelFilter)>,
}

impl Default for RequestLogSettings {
    fn default() -> Self {
        Self { sample: 1.0, doors: Vec::new() }
    }
}

/// Writes the lines, counts requests and turns, and passes them on for traces.
pub struct RequestLog {
    metrics: Arc<Metrics>,
    traces: Arc<dyn TraceSink>,
    filter: ArcSwap<LineFilter>,
    /// A sequence of evenly distributed numbers, one for each successful request.
    sequence: AtomicU64,
}

/// The settings in force.
struct LineFilter {
    sample: f64,
    levels: [LevelFilter; Door::ALL.len()],
}

impl LineFilter {
    fn new(settings: &RequestLogSettings) -> Self {
        let mut levels = [LevelFilter::TRACE; Door::ALL.len()];
        for (door, level) in &settings.doors {
            levels[*door as usize] = *level;
        }
        Self { sample: settings.sample, levels }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// The whole response was passed to the connection.
    Answered,
    /// The caller disconnected, or the response broke off.
    Disconnected,
}

/// A request that is being handled.
pub(crate) struct OpenRequest {
    log: Arc<RequestLog>,
    context: Arc<RequestContext>,
    /// The span of log lines while the request is handled. Only at `debug`: for each request it would cost more than
    /// its own line.
    span: tracing::Span,
    method: Method,
    uri: Uri,
    door: Door,
    started: Instant,
    caller: Option<Scope>,
    /// The status of the response, and why it is an error.
    status: Option<u16>,
    failure: Option<Box<Failure>>,
    over: bool,
}

/// Everything that a line may contain.
struct Line<'a> {
    door: Door,
    /// Who is refused a message of a connection; the caller of a request is in the request.
    caller: Option<&'a Scope>,
    request: Option<&'a OpenRequest>,
    turn: Option<&'a TurnSummary>,
    status: Option<u16>,
    took: Option<Duration>,
    end: RequestEnd,
    failure: Option<&'a Failure>,
}

impl RequestLog {
    /// Writes lines by these settings.
    pub fn new(metrics: Arc<Metrics>, traces: Arc<dyn TraceSink>, settings: &RequestLogSettings) -> Self {
        let filter = ArcSwap::from_pointee(LineFilter::new(settings));
        Self { metrics, traces, filter, sequence: AtomicU64::new(0) }
    }

    /// Puts other settings into force for the lines from now on.
    pub fn change(&self, settings: &RequestLogSettings) {
        self.filter.store(Arc::new(LineFilter::new(settings)));
    }

    /// The metrics of the process.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The place of a new request in a trace, which its caller may have sent.
    pub(crate) fn begin_trace(&self, caller: Option<TraceContext>) -> Option<TraceContext> {
        self.traces.begin(caller)
    }

    /// Whether the line of one more successful request is written.
    fn is_sampled(&self, sample: f64) -> bool {
        if sample >= 1.0 {
            return true;
        }
        // Multiples of the golden ratio are evenly distributed, so that any few requests have their share.
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let number = self.sequence.fetch_add(STEP, Ordering::Relaxed);
        (number >> 11) as f64 / ((1_u64 << 53) as f64) < sample
    }

    fn write(&self, line: &Line<'_>) {
        let level = line.level();
        let is_written = {
            let filter = self.filter.load();
            level <= filter.levels[line.door as usize]
                && (level != tracing::Level::INFO || line.failed() || self.is_sampled(filter.sample))
        };
        if is_written {
            line.write(level);
        }
    }
}

impl RequestLog {
    /// Logs and counts a refusal inside a connection that has no response of its own: a message of a WebSocket, which this caller
    /// has opened.
    pub(crate) fn message_refused(&self, opened_by: Option<&Scope>, fault: &Fault) {
        let failure = Failure::of(fault);
        self.metrics.failed(Door::Responses, failure.class);
        self.write(&Line {
            door: Door::Responses,
            caller: opened_by,
            request: None,
            turn: None,
            status: Some(status(fault)),
            took: None,
            end: RequestEnd::Answered,
            failure: Some(&failure),
        });
    }
}

impl TurnObserver for RequestLog {
    fn turn_ended(&self, summary: &TurnSummary, mut late: Vec<TurnSpan>) {
        self.metrics.turn_ended(summary);
        let door = Door::from(summary.origin.wire);
        if summary.status == Status::Failed {
            self.metrics.failed(door, summary.error.as_deref().unwrap_or("internal"));
        }
        let kept = summary.origin.request.as_ref().is_some_and(|request| request.keep_turn(summary, &mut late));
        if !kept {
            self.write(&Line {
                door,
                caller: None,
                request: None,
                turn: Some(summary),
                status: None,
                took: summary.duration_ms().map(Duration::from_millis),
                end: RequestEnd::Answered,
                failure: None,
            });
            self.trace_turn(summary, late);
        }
    }

    fn continue_trace(&self, parent: TraceContext) -> TraceContext {
        self.traces.begin(Some(parent)).unwrap_or(parent)
    }

    fn keeps_content(&self) -> bool {
        self.traces.keeps_content()
    }

    fn tool_ended(&self, tool: &str, failure: Option<&'static str>, took: Duration) {
        self.metrics.tool_ended(tool, failure, took);
    }

    fn waited(&self, queue: TurnQueue, took: Duration) {
        self.metrics.waited(queue, took);
    }

    fn written(&self, stored: bool, took: Duration) {
        self.metrics.written(stored, took);
    }
}

impl OpenRequest {
    /// The request has arrived.
    pub(crate) fn new(log: &Arc<RequestLog>, request: &Request, context: Arc<RequestContext>) -> Box<Self> {
        let span = tracing::span!(target: TARGET, tracing::Level::DEBUG, "request", request.id = &**context.id());
        Box::new(Self {
            log: Arc::clone(log),
            context,
            span,
            method: request.method().clone(),
            uri: request.uri().clone(),
            door: door_of_path(request.uri().path()),
            started: Instant::now(),
            caller: None,
            status: None,
            failure: None,
            over: false,
        })
    }

    /// The span of lines of this request.
    pub(crate) fn span(&self) -> &tracing::Span {
        &self.span
    }

    /// The request, for its scope.
    pub(crate) fn context(&self) -> &Arc<RequestContext> {
        &self.context
    }

    /// The caller is authenticated.
    pub(crate) fn set_caller(&mut self, scope: &Scope) {
        self.caller = Some(scope.clone());
    }

    /// The response is known. A whole body ends the request; a stream ends it with its last frame.
    pub(crate) fn answered(mut self: Box<Self>, mut response: Response) -> Response {
        self.status = Some(response.status().as_u16());
        self.failure = Failure::take(&mut response);
        if response.body().size_hint().exact().is_some() {
            self.end(RequestEnd::Answered);
            return response;
        }
        response.map(|body| Body::new(ObservedBody::new(body, self)))
    }

    fn end(&mut self, end: RequestEnd) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let took = self.started.elapsed();
        // A caller that disconnects before the head of a response gets no status; 499 is the usual number for that.
        let status = self.status.unwrap_or(499);
        let kept = self.context.end();
        let turn = kept.as_deref().map(|kept| &kept.summary);
        self.log.metrics.request_ended(self.door, status, took);
        if status >= 400 && self.failure.is_none() {
            self.failure = Some(Box::new(Failure::of_status(status)));
        }
        // The observer has counted a failed turn.
        if let Some(failure) = self.failure.as_deref().filter(|_| !turn.is_some_and(has_failed)) {
            self.log.metrics.failed(self.door, failure.class);
        }
        self.log.write(&Line {
            door: self.door,
            caller: None,
            request: Some(self),
            turn,
            status: Some(status),
            took: Some(took),
            end,
            failure: self.failure.as_deref(),
        });
        self.trace(kept, status, end);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.end(RequestEnd::Disconnected);
    }
}

/// The beginning of a path.
fn shortened(path: &str) -> &str {
    path.get(..path.floor_char_boundary(MAX_PATH_BYTES)).unwrap_or_default()
}

fn has_failed(turn: &TurnSummary) -> bool {
    turn.status == Status::Failed
}

impl Line<'_> {
    /// Whether the request or its turn was refused or failed.
    fn failed(&self) -> bool {
        self.status.is_some_and(|status| status >= 400) || self.turn.is_some_and(has_failed)
    }

    fn level(&self) -> tracing::Level {
        let status = self.status.unwrap_or(200);
        let turn_failed = self.turn.is_some_and(has_failed);
        match (self.door, status) {
            (_, 500) => tracing::Level::ERROR,
            (Door::Operations, 200) => tracing::Level::DEBUG,
            (_, 401 | 403 | 429 | 501..) => tracing::Level::WARN,
            _ if turn_failed => tracing::Level::WARN,
            _ => tracing::Level::INFO,
        }
    }

    fn write(&self, level: tracing::Level) {
        let Self { request, turn, failure, .. } = self;
        let caller = self.caller.or_else(|| request.and_then(|request| request.caller.as_ref()));
        let origin = turn.map(|turn| &turn.origin);
        let call = turn.and_then(|turn| turn.last_call());
        let tokens = turn.filter(|turn| turn.calls.iter().any(|call| call.usage.is_some())).map(|turn| turn.tokens());
        let context_id = request.map(|request| request.context.id()).or_else(|| self.caller?.request_id());
        let context_id = context_id.map(|id| &**id);
        let request_id = context_id.or_else(|| origin.and_then(|origin| origin.request_id.as_deref()));
        let key =
            caller.and_then(|caller| caller.key_id()).or_else(|| origin.and_then(|origin| origin.key_id.as_ref()));
        let turn_code = turn.and_then(|turn| turn.error.as_deref());
        let disconnected = request.is_some() && self.end == RequestEnd::Disconnected;
        let text = match (request, turn) {
            (Some(_), _) => "request",
            (None, Some(_)) => "turn",
            (None, None) => "message refused",
        };
        macro_rules! line {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET,
                    tracing::Level::$level,
                    request.id = request_id,
                    method = request.map(|request| request.method.as_str()),
                    path = request.map(|request| shortened(request.uri.path())),
                    door = self.door.name(),
                    tenant = caller.map(|caller| caller.tenant_id()).or(turn.map(|turn| turn.tenant_id)),
                    key = key.map(|key| &**key),
                    user = caller.map(|caller| caller.user()).or(turn.map(|turn| &*turn.user)),
                    status = self.status,
                    duration_ms = self.took.map(|took| took.as_micros() as f64 / 1000.0),
                    disconnected = disconnected.then_some(true),
                    class = failure.map(|failure| failure.class),
                    code = failure.and_then(|failure| failure.code.as_deref()).or(turn_code),
                    detail = failure.and_then(|failure| failure.detail.as_deref()),
                    response.id = turn.map(|turn| &*turn.response_id),
                    turn = turn.map(|turn| turn.status.name()),
                    model = origin.map(|origin| &*origin.model),
                    upstream = call.map(|call| &*call.upstream),
                    upstream_model = call.map(|call| &*call.model),
                    input_tokens = tokens.map(|tokens| tokens.input),
                    cached_tokens = tokens.map(|tokens| tokens.cached_input),
                    output_tokens = tokens.map(|tokens| tokens.output),
                    reasoning_tokens = tokens.map(|tokens| tokens.reasoning),
                    cost_usd = turn.and_then(|turn| turn.cost()).map(|cost| cost.usd()),
                    first_token_ms = turn.and_then(|turn| turn.first_token_ms),
                    calls = turn.map(|turn| turn.calls.len()),
                    tools = turn.map(|turn| turn.tools.len()),
                    retries = turn.map(|turn| turn.retries()),
                    losses = turn.map(|turn| turn.losses),
                    "{text}"
                )
            };
        }
        match level {
            tracing::Level::ERROR => line!(ERROR),
            tracing::Level::WARN => line!(WARN),
            tracing::Level::INFO => line!(INFO),
            _ => line!(DEBUG),
        }
        if let Some(quote) = failure.and_then(|failure| failure.quote.as_deref()) {
            tracing::event!(target: TARGET, tracing::Level::DEBUG, request.id = request_id, quote, "what the upstream said");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::BuildInfo;

    #[test]
    fn the_sampled_share_of_lines_is_what_is_configured() {
        let metrics = Metrics::new(&BuildInfo::default(), crate::MetricSources::default());
        for (sample, expected) in [(0.0, 0..=0), (0.1, 95..=105), (0.5, 495..=505), (1.0, 1000..=1000)] {
            let settings = RequestLogSettings { sample, ..RequestLogSettings::default() };
            let log = RequestLog::new(Arc::clone(&metrics), Arc::new(amalgam_core::NoTraces), &settings);
            let written = (0..1000).filter(|_| log.is_sampled(sample)).count();
            assert!(expected.contains(&written), "{sample}: {written}");
        }
    }
}
