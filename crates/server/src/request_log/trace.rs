//! Passes ended requests and turns to the sink of traces, and their spans to the log at `debug`.

use std::{sync::Arc, time::Instant};

use amalgam_core::{EndedRequest, EndedTrace, KeptTurn, TurnSpan, TurnSummary};

use super::{OpenRequest, RequestEnd, RequestLog, shortened};
use crate::wires;

/// The target of the lines of spans, for log filters.
const TARGET: &str = "amalgam_span";

impl OpenRequest {
    /// Passes the request with its turn to the sink.
    pub(super) fn trace(&self, turn: Option<Box<KeptTurn>>, status: u16, end: RequestEnd) {
        let before = self.context.take_spans();
        if let Some(turn) = &turn {
            log_spans(&turn.summary, &turn.late);
        }
        let Some(trace) = self.context.trace().filter(|trace| trace.is_recorded()) else { return };
        let (turn, mut more) = match turn {
            Some(turn) => (Some(Box::new(turn.summary)), turn.late),
            None => (None, Vec::new()),
        };
        more.extend(before);
        let caller = self.caller.as_ref();
        let path = self.uri.path();
        self.log.traces.ended(Box::new(EndedTrace {
            trace,
            request: Some(EndedRequest {
                method: self.method.as_str().to_owned(),
                path: shortened(path).to_owned(),
                route: wires::route_of(&self.method, path),
                door: self.door,
                request_id: Arc::clone(self.context.id()),
                status,
                error: self.failure.as_deref().map(|failure| failure.class.to_owned()),
                tenant_id: caller.map(|caller| caller.tenant_id()),
                key_id: caller.and_then(|caller| caller.key_id().cloned()),
                user: caller.map(|caller| Arc::clone(caller.user_id())),
                disconnected: end == RequestEnd::Disconnected,
            }),
            turn,
            more,
            start: self.started.into_std(),
            end: Instant::now(),
        }));
    }
}

impl RequestLog {
    /// Passes a turn that has outlived its request to the sink.
    pub(super) fn trace_turn(&self, summary: &TurnSummary, late: Vec<TurnSpan>) {
        log_spans(summary, &late);
        let origin = &summary.origin;
        let Some(trace) = origin.trace.filter(|trace| trace.is_recorded()) else { return };
        // A background turn has a span of its own already; that of another turn is the request's.
        let trace = if origin.request.is_some() { trace.child() } else { trace };
        let end = Instant::now();
        let mut turn = summary.clone();
        turn.origin.request = None;
        let start = turn.first_span().unwrap_or(end);
        self.traces.ended(Box::new(EndedTrace {
            trace,
            request: None,
            turn: Some(Box::new(turn)),
            more: late,
            start,
            end,
        }));
    }
}

/// Writes a line for each span at `debug`.
fn log_spans(turn: &TurnSummary, late: &[TurnSpan]) {
    if !tracing::enabled!(target: TARGET, tracing::Level::DEBUG) {
        return;
    }
    let zero = turn.first_span();
    for span in turn.spans.iter().chain(late) {
        let start = span.start.saturating_duration_since(zero.unwrap_or(span.start));
        tracing::event!(
            target: TARGET,
            tracing::Level::DEBUG,
            request.id = turn.origin.request_id.as_deref(),
            response.id = turn.response_id,
            kind = span.kind(),
            name = span.name(&turn.calls),
            start_us = start.as_micros() as u64,
            duration_us = span.end.saturating_duration_since(span.start).as_micros() as u64,
            error = span.error,
            "span"
        );
    }
}
