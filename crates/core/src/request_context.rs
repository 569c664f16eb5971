//! What is known about a request while it is handled: its id, its trace, and the turns that end in it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::turn_summary::TurnSummary;

/// A request that is being handled. Its scopes and the origins of its turns share it.
#[derive(Debug)]
pub struct RequestContext {
    id: Arc<str>,
    trace: Option<TraceContext>,
    turn: Mutex<RequestTurn>,
}

/// What is known about the turn of a request.
#[derive(Debug)]
enum RequestTurn {
    /// No turn has ended yet.
    None,
    /// The turn that ended before the request did.
    Ended(Box<TurnSummary>),
    /// The request has ended.
    Over,
}

impl RequestContext {
    /// A request with its id and, if it is traced, its place in the trace.
    pub fn new(id: Arc<str>, trace: Option<TraceContext>) -> Self {
        Self { id, trace, turn: Mutex::new(RequestTurn::None) }
    }

    /// The `x-request-id`.
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// The request's place in its trace.
    pub fn trace(&self) -> Option<TraceContext> {
        self.trace
    }

    /// Keeps the summary of an ended turn for the end of the request. False if the request is over, or has the summary of another turn:
    /// the turn is then reported by itself.
    pub fn keep_turn(&self, summary: &TurnSummary) -> bool {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match *turn {
            RequestTurn::None => {
                let mut kept = summary.clone();
                // Otherwise the request and its turn would keep each other.
                kept.origin.request = None;
                *turn = RequestTurn::Ended(Box::new(kept));
                true
            }
            RequestTurn::Ended(_) | RequestTurn::Over => false,
        }
    }

    /// Ends the request and returns the turn that ended in it.
    pub fn end(&self) -> Option<Box<TurnSummary>> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *turn, RequestTurn::Over) {
            RequestTurn::Ended(summary) => Some(summary),
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

    /// The same trace with another span as the current one.
    #[must_use]
    pub fn with_span(self, span_id: u64) -> Self {
        Self { span_id, ..self }
    }
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
