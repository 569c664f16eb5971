//! Ended requests and turns as OTLP spans.

use std::{collections::VecDeque, time::Instant};

use amalgam_core::{Clock, Door, EndedRequest, EndedTrace, TurnSpan, TurnStep, TurnSummary, new_span_id};
use amalgam_protocol::Status;

use crate::{
    attributes::Attributes,
    message::{
        CLIENT, ERROR, ExportTraces, INTERNAL, InstrumentationScope, Resource, ResourceSpans, SAMPLED, SERVER,
        ScopeSpans, Span, SpanStatus,
    },
    model_call::{ModelCallSpan, tool_attributes},
};

/// The time of an instant: both clocks are read once for each export.
pub(crate) struct TimeAnchor {
    instant: Instant,
    unix_ns: u64,
}

impl TimeAnchor {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self { instant: Instant::now(), unix_ns: clock.now_ms().saturating_mul(1_000_000) }
    }

    fn unix_ns(&self, at: Instant) -> u64 {
        let nanoseconds = |duration: std::time::Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match self.instant.checked_duration_since(at) {
            Some(earlier) => self.unix_ns.saturating_sub(nanoseconds(earlier)),
            None => self.unix_ns.saturating_add(nanoseconds(at.saturating_duration_since(self.instant))),
        }
    }
}

/// An export of these requests and turns.
pub(crate) fn export(
    ended: &VecDeque<Box<EndedTrace>>,
    resource: Resource,
    scope: InstrumentationScope,
    at: &TimeAnchor,
) -> ExportTraces {
    let mut spans = Vec::with_capacity(ended.iter().map(|ended| ended.len()).sum());
    for ended in ended {
        add_spans(&mut spans, ended, at);
    }
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    ExportTraces { resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }] }
}

fn add_spans(spans: &mut Vec<Span>, ended: &EndedTrace, at: &TimeAnchor) {
    let turn = ended.turn.as_deref();
    let (name, kind, mut attributes, failed) = match &ended.request {
        Some(request) => {
            let (attributes, failed) = request_attributes(request, turn);
            (request_name(request), SERVER, attributes, failed)
        }
        None => {
            let door = turn.map_or("turn", |turn| Door::from(turn.origin.wire).name());
            (format!("turn {door}"), INTERNAL, turn_origin_attributes(turn), turn.is_some_and(has_failed))
        }
    };
    if let Some(turn) = turn {
        add_turn_attributes(&mut attributes, turn);
    }
    let trace = ended.trace;
    let span = |id: u64, parent: Option<u64>, start: Instant, end: Instant| Span {
        trace_id: trace.trace_id.to_be_bytes().to_vec(),
        span_id: id.to_be_bytes().to_vec(),
        parent_span_id: parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        start_time_unix_nano: at.unix_ns(start),
        end_time_unix_nano: at.unix_ns(end),
        flags: SAMPLED,
        ..Span::default()
    };
    let status = |failed: bool| failed.then_some(SpanStatus { code: ERROR });
    spans.push(Span {
        name,
        kind,
        attributes: attributes.into_list(),
        status: status(failed),
        ..span(trace.span_id, trace.parent_id, ended.start, ended.end)
    });
    for step in turn.map(|turn| turn.spans.as_slice()).unwrap_or_default().iter().chain(&ended.more) {
        let (name, kind, attributes) = step_of(step, turn);
        let id = if step.id == 0 { new_span_id() } else { step.id };
        spans.push(Span {
            name,
            kind,
            attributes: attributes.into_list(),
            status: status(step.error.is_some()),
            ..span(id, Some(trace.span_id), step.start, step.end)
        });
    }
}

/// Name, kind and attributes of a part of a turn.
fn step_of(span: &TurnSpan, turn: Option<&TurnSummary>) -> (String, i32, Attributes) {
    let mut attributes = Attributes::default();
    let name = match &span.step {
        TurnStep::ModelCall { call, first_token, provider, answered_as } => {
            if let Some(call) = turn.and_then(|turn| turn.calls.get(*call)) {
                let call = ModelCallSpan {
                    call,
                    span,
                    first_token: *first_token,
                    provider,
                    answered_as: answered_as.as_deref(),
                    conversation: turn.and_then(|turn| turn.origin.session_id.as_deref()),
                };
                return (call.name(), CLIENT, call.attributes());
            }
            "chat".to_owned()
        }
        TurnStep::ToolCall(tool) => {
            return (format!("execute_tool {}", tool.name), INTERNAL, tool_attributes(tool, span.error));
        }
        TurnStep::Queue(queue) => {
            attributes.add("amalgam.queue", queue.name());
            format!("queue {}", queue.name())
        }
        TurnStep::Write(part) => {
            attributes.add("amalgam.store.part", part.name());
            format!("store {}", part.name())
        }
        TurnStep::Prompt | TurnStep::Retrieval => span.kind().to_owned(),
    };
    attributes.add("error.type", span.error);
    (name, INTERNAL, attributes)
}

fn request_name(request: &EndedRequest) -> String {
    match request.route {
        Some(route) => format!("{} {route}", request.method),
        None => request.method.clone(),
    }
}

/// The attributes of a request after the HTTP conventions, and whether it failed: of responses, only those from 500 are failures of a
/// server.
fn request_attributes(request: &EndedRequest, turn: Option<&TurnSummary>) -> (Attributes, bool) {
    let failed = request.status >= 500 || turn.is_some_and(has_failed);
    let mut attributes = Attributes::default();
    attributes.add("http.request.method", &*request.method);
    attributes.add("http.route", request.route);
    attributes.add("url.path", &*request.path);
    attributes.add("http.response.status_code", u64::from(request.status));
    let error = request.error.as_deref().or_else(|| turn.and_then(|turn| turn.error.as_deref()));
    attributes.add("error.type", error);
    attributes.add("amalgam.request.id", &*request.request_id);
    attributes.add("amalgam.door", request.door.name());
    attributes.add("amalgam.tenant.id", request.tenant_id);
    attributes.add("amalgam.key.id", request.key_id.as_deref());
    attributes.add("user.id", request.user.as_deref());
    attributes.add("amalgam.disconnected", request.disconnected.then_some(true));
    (attributes, failed)
}

/// The attributes of a turn without its request that the request would have.
fn turn_origin_attributes(turn: Option<&TurnSummary>) -> Attributes {
    let mut attributes = Attributes::default();
    let Some(turn) = turn else { return attributes };
    attributes.add("amalgam.request.id", turn.origin.request_id.as_deref());
    attributes.add("amalgam.door", Door::from(turn.origin.wire).name());
    attributes.add("amalgam.tenant.id", turn.tenant_id);
    attributes.add("amalgam.key.id", turn.origin.key_id.as_deref());
    attributes.add("user.id", &*turn.user);
    attributes.add("error.type", turn.error.as_deref());
    attributes
}

/// The facts of a turn. Sums of tokens have names of their own, because those of the conventions are on the model calls: a backend
/// that sums them would count twice.
fn add_turn_attributes(attributes: &mut Attributes, turn: &TurnSummary) {
    let (last, origin) = (turn.last_call(), &turn.origin);
    attributes.add("amalgam.response.id", &*turn.response_id);
    attributes.add("amalgam.turn.status", turn.status.name());
    attributes.add("amalgam.model", &*origin.model);
    attributes.add("amalgam.upstream", last.map(|call| &*call.upstream));
    attributes.add("amalgam.upstream_model", last.map(|call| &*call.model));
    attributes.add("gen_ai.agent.name", origin.profile.as_deref());
    attributes.add("gen_ai.conversation.id", origin.session_id.as_deref());
    if turn.calls.iter().any(|call| call.usage.is_some()) {
        let tokens = turn.tokens();
        attributes.add("amalgam.usage.input_tokens", tokens.input);
        attributes.add("amalgam.usage.cached_tokens", tokens.cached_input);
        attributes.add("amalgam.usage.output_tokens", tokens.output);
        attributes.add("amalgam.usage.reasoning_tokens", tokens.reasoning);
    }
    attributes.add("amalgam.cost_usd", turn.cost().map(|cost| cost.usd()));
    attributes.add("amalgam.first_token_ms", turn.first_token_ms);
    attributes.add("amalgam.calls", turn.calls.len() as u64);
    attributes.add("amalgam.tools", turn.tools.len() as u64);
    attributes.add("amalgam.retries", u64::from(turn.retries()));
    attributes.add("amalgam.losses", u64::from(turn.losses));
    attributes.add("amalgam.stored", turn.stored);
}

fn has_failed(turn: &TurnSummary) -> bool {
    turn.status == Status::Failed
}
