//! Counts what a turn used, and passes its summary to the store and to the observer.

use std::sync::Arc;

use amalgam_core::{CallSummary, FaultKind, Scope, TurnOrigin, TurnSummary};
use amalgam_protocol::{ErrorObject, Status};

use crate::{
    call_record::{CallRecord, MeteredCalls},
    engine::Identity,
    partial_usage::UncountedCall,
    running_turns::{ListedUntilDropped, RunningTurns},
};

/// Counts what one turn used. It reports once; a turn that another process continues is not reported here.
#[derive(Clone)]
pub(crate) struct TurnMeter {
    running: Arc<RunningTurns>,
    call_record: CallRecord,
    /// The summary of the running turn, without its calls.
    summary: Arc<TurnSummary>,
}

/// How a turn ended.
pub(crate) struct MeteredEnd<'a> {
    pub(crate) status: Status,
    pub(crate) error: Option<&'a ErrorObject>,
    pub(crate) losses: usize,
    pub(crate) ended_at_ms: u64,
}

impl TurnMeter {
    pub(crate) fn new(
        running: &Arc<RunningTurns>,
        call_record: CallRecord,
        scope: &Scope,
        identity: &Identity,
        origin: TurnOrigin,
        stored: bool,
    ) -> Self {
        let summary = TurnSummary {
            response_id: identity.response_id.clone(),
            tenant_id: scope.tenant_id(),
            user: Arc::clone(scope.user_id()),
            origin,
            status: Status::InProgress,
            error: None,
            created_at_ms: identity.created_at_ms,
            ended_at_ms: None,
            first_token_ms: None,
            calls: Vec::new(),
            tools: Vec::new(),
            spans: Vec::new(),
            losses: 0,
            stored,
        };
        Self { running: Arc::clone(running), call_record, summary: Arc::new(summary) }
    }

    /// The summary of the running turn.
    pub(crate) fn begun(&self) -> Box<TurnSummary> {
        Box::new(TurnSummary::clone(&self.summary))
    }

    /// The summary of the running turn, with its finished calls.
    pub(crate) fn so_far(&self) -> Box<TurnSummary> {
        let (calls, tools) = self.call_record.finished_calls();
        let first_token_ms = self.first_token_ms(&calls);
        Box::new(TurnSummary { first_token_ms, calls, tools, ..(*self.summary).clone() })
    }

    /// Milliseconds from the turn's start to the first output of these calls.
    fn first_token_ms(&self, calls: &[CallSummary]) -> Option<u64> {
        let first_output_at = calls.iter().find_map(|call| Some(call.asked_at_ms + call.first_token_ms?));
        first_output_at.map(|at| at.saturating_sub(self.summary.created_at_ms))
    }

    /// Lists the turn as running until the guard is dropped.
    pub(crate) fn list(&self) -> ListedUntilDropped {
        self.running.list(Arc::clone(&self.summary))
    }

    /// The summary of the ended turn, with these calls.
    pub(crate) fn ended(&self, end: &MeteredEnd<'_>, calls: MeteredCalls) -> Box<TurnSummary> {
        let MeteredCalls { calls, tools, spans, .. } = calls;
        let calls: Vec<_> = calls.into_iter().map(|metered| metered.summary).collect();
        Box::new(TurnSummary {
            status: end.status,
            error: end.error.map(|error| error.code.clone().unwrap_or_else(|| error.kind.to_string())),
            ended_at_ms: Some(end.ended_at_ms),
            first_token_ms: self.first_token_ms(&calls),
            calls,
            tools,
            spans,
            losses: u32::try_from(end.losses).unwrap_or(u32::MAX),
            ..(*self.summary).clone()
        })
    }

    /// Takes the calls so far.
    pub(crate) fn take_calls(&self) -> MeteredCalls {
        self.call_record.take_metered()
    }

    /// Reports a turn that is not stored: to the observer, and to the list of turns and the usage.
    pub(crate) fn report_unstored(self, end: MeteredEnd<'_>, uncounted: Option<UncountedCall>) {
        let mut calls = self.take_calls();
        let Some(uncounted) = uncounted else {
            self.running.limiter.settle_later(calls.settlements(end.ended_at_ms));
            return self.running.report_unstored(*self.ended(&end, calls));
        };
        let (status, error, losses, ended_at_ms) = (end.status, end.error.cloned(), end.losses, end.ended_at_ms);
        let running = Arc::clone(&self.running);
        running.tasks.spawn(async move {
            calls.add_usage(uncounted.count().await);
            self.running.limiter.settle_later(calls.settlements(ended_at_ms));
            let end = MeteredEnd { status, error: error.as_ref(), losses, ended_at_ms };
            self.running.report_unstored(*self.ended(&end, calls));
        });
    }
}

/// The status of a turn that ended with a fault.
pub(crate) fn status_of(kind: FaultKind) -> Status {
    match kind {
        FaultKind::Cancelled => Status::Cancelled,
        _ => Status::Failed,
    }
}
