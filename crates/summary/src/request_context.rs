//! What is known about a request while it is handled: its id, its trace, and the turns that end in it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    rate_limits::RateLimits,
    turn_span::{MAX_SPANS, TurnSpan},
    turn_summary::TurnSummary,
};

/// A request that is being handled. Its scopes and the origins of its turns share it.
#[derive(Debug)]
pub struct RequestContext {
    id: Arc<str>,
    trace: Option<TraceContext>,
    /// What other systems of the caller's trace have noted in it.
    trace_state: Option<Arc<str>>,
    turn: Mutex<RequestTurn>,
    /// Spans before the request's turn begins.
    spans: Mutex<Vec<TurnSpan>>,
    rate_limits: Mutex<Option<(RateLimits, u64)>>,
}

/// The turn that ended in a request.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptTurn {
    /// Its summary.
    pub summary: TurnSummary,
    /// The spans of its last writes.
    pub late: Vec<TurnSpan>,
}

/// What is known about the turn of a request.
#[derive(Debug)]
enum RequestTurn {
    /// No turn has ended yet.
    None,
    /// The turn that ended before the request did.
    Ended(Box<KeptTurn>),
    /// The request has ended.
    Over,
}

impl RequestContext {
    /// A request with its id and, if it is traced, its place in the trace.
    pub fn new(id: Arc<str>, trace: Option<TraceContext>) -> Self {
        Self {
            id,
            trace,
            trace_state: None,
            turn: Mutex::new(RequestTurn::None),
            spans: Mutex::default(),
            rate_limits: Mutex::default(),
        }
    }

    /// The same request, whose caller sent this `tracestate`.
    #[must_use]
    pub fn with_trace_state(self, trace_state: Option<Arc<str>>) -> Self {
        Self { trace_state, ..self }
    }

    /// Another request on the same connection, with the same id and trace. Its turns are reported by themselves.
    #[must_use]
    pub fn continued(&self) -> Self {
        let continued = Self::new(Arc::clone(&self.id), self.trace).with_trace_state(self.trace_state.clone());
        Self { turn: Mutex::new(RequestTurn::Over), ..continued }
    }

    /// The caller's `tracestate`, to be passed on with each `traceparent`.
    pub fn trace_state(&self) -> Option<&Arc<str>> {
        self.trace_state.as_ref()
    }

    /// The `x-request-id`.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The request's place in its trace.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace
    }

    /// Adds a span that belongs to the turn that the request is about to start.
    pub fn add_span(&self, span: TurnSpan) {
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < MAX_SPANS {
            spans.push(span);
        }
    }

    /// Takes the spans before the turn.
    pub fn take_spans(&self) -> Vec<TurnSpan> {
        std::mem::take(&mut self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets what is left of the caller's rate limits; what is not limited keeps its earlier value.
    pub fn set_rate_limits(&self, rate_limits: RateLimits, now_ms: u64) {
        let mut known = self.rate_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let (earlier, _) = known.unwrap_or_default();
        *known = Some((earlier.updated(rate_limits), now_ms));
    }

    /// What was left of the caller's rate limits at a time, in milliseconds since 1970, if there are any.
    pub fn rate_limits(&self) -> Option<(RateLimits, u64)> {
        *self.rate_limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the summary of an ended turn for the end of the request. False if the request is over, or has the summary of another turn:
    /// the turn is then reported by itself.
    pub fn keep_turn(&self, summary: &TurnSummary, late: &mut Vec<TurnSpan>) -> bool {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match *turn {
            RequestTurn::None => {
                let mut kept = KeptTurn { summary: summary.clone(), late: std::mem::take(late) };
                // Otherwise the request and its turn would keep each other.
                kept.summary.origin.request = None;
                *turn = RequestTurn::Ended(Box::new(kept));
                true
            }
            RequestTurn::Ended(_) | RequestTurn::Over => false,
        }
    }

    /// Ends the request and returns the turn that ended in it.
    pub fn end(&self) -> Option<Box<KeptTurn>> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *turn, RequestTurn::Over) {
            RequestTurn::Ended(kept) => Some(kept),
            RequestTurn::None | RequestTurn::Over => None,
        }
    }
}

/// Requests are equal if their ids are.
impl PartialEq for RequestContext {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for RequestContext {}

/// A place in a distributed trace, as in the header `traceparent` (W3C Trace Context).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace_id: u128,
    /// The span that requests to other servers name as their parent.
    pub span_id: u64,
    /// The caller's span.
    pub parent_id: Option<u64>,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// The name of the header.
    pub const HEADER: &'static str = "traceparent";

    /// The name of the header that goes with it.
    pub const STATE_HEADER: &'static str = "tracestate";

    /// The longest `tracestate` that is passed on: what the standard asks for.
    pub const MAX_STATE_BYTES: usize = 512;

    /// Reads the header's value; none if it is invalid. The caller's span is both the parent and the span that is passed on.
    pub fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let hex = |text: &str, length: usize| {
            text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        // Version 00 has four parts; a later version may have more.
        let well_formed = hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
        if !well_formed || !hex(trace, 32) || !hex(span, 16) || !hex(flags, 2) {
            return None;
        }
        let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace_id, span_id, parent_id: Some(span_id), sampled: flags & 1 == 1 })
    }

    /// A new trace, as its first span.
    pub fn root(sampled: bool) -> Self {
        Self { trace_id: rand::random::<u128>().max(1), span_id: new_span_id(), parent_id: None, sampled }
    }

    /// A new span with this one as its parent.
    #[must_use]
    pub fn child(self) -> Self {
        Self { span_id: new_span_id(), parent_id: Some(self.span_id), ..self }
    }

    /// Whether the span was made here. Otherwise it is the caller's, which is only passed on.
    pub fn is_own(&self) -> bool {
        self.parent_id != Some(self.span_id)
    }

    /// Whether the span was made here and is exported.
    pub fn is_recorded(&self) -> bool {
        self.sampled && self.is_own()
    }

    /// The place of a request to another server: a span of its own if spans are made here, else the caller's.
    #[must_use]
    pub fn of_call(self) -> Self {
        match self.is_own() {
            true => self.child(),
            false => self,
        }
    }
}

/// The id of a new span: random, and never 0.
pub fn new_span_id() -> u64 {
    rand::random::<u64>().max(1)
}

/// The header's value.
impl fmt::Display for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_header_is_read_and_written_back() {
        let header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = TraceContext::parse(header).unwrap();
        assert_eq!(trace.to_string(), header);
        assert_eq!((trace.parent_id, trace.sampled), (Some(0xb7ad_6b71_6920_3331), true));
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-more";
        assert!(!TraceContext::parse(later).unwrap().sampled);
    }

    #[test]
    fn a_call_gets_a_span_of_its_own_only_in_a_trace_that_spans_are_made_for() {
        let caller = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert_eq!((caller.of_call(), caller.is_recorded()), (caller, false));
        let request = caller.child();
        let call = request.of_call();
        assert_eq!((request.trace_id, request.parent_id), (caller.trace_id, Some(caller.span_id)));
        assert_eq!((call.trace_id, call.parent_id, call.is_recorded()), (caller.trace_id, Some(request.span_id), true));
        assert!(call.span_id != request.span_id && !TraceContext::root(false).is_recorded());
    }

    #[test]
    fn a_header_that_the_standard_calls_invalid_is_ignored() {
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }
}
