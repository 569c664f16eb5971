//! A collector that decodes what it receives with the published messages of OTLP.

#![expect(clippy::expect_used, clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::collections::BTreeMap;

use amalgam_testkit::{Reply, Request, Setup, Upstream};
use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value::Value as AnyValue},
    metrics::v1::Metric,
    trace::v1::Span,
};
use prost::Message as _;
use serde_json::{Value, json};

use crate::support::{SOON, eventually};

/// A collector on this machine.
pub(super) struct Collector {
    pub(super) server: Upstream,
}

/// A span with its values in a form that tests can compare.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SeenSpan {
    pub(super) trace_id: String,
    pub(super) id: String,
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) kind: i32,
    pub(super) failed: bool,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) attributes: BTreeMap<String, Value>,
}

/// The server's clock has milliseconds, and each export reads it again.
const CLOCK_NS: u64 = 5_000_000;

pub(super) const INTERNAL: i32 = 1;
pub(super) const SERVER: i32 = 2;
pub(super) const CLIENT: i32 = 3;

impl Collector {
    /// A collector that accepts everything.
    pub(super) fn start() -> Self {
        Self { server: Upstream::always(Reply::bytes("application/x-protobuf", "")) }
    }

    /// The set-up of a server that exports to it soon.
    pub(super) fn setup(&self, setup: Setup) -> Setup {
        self.setup_with(setup, "")
    }

    /// The same, with further settings of `[telemetry]`.
    pub(super) fn setup_with(&self, setup: Setup, more: &str) -> Setup {
        let url = self.server.url();
        setup.extra(&format!("[telemetry]\notlp = \"{url}\"\ninterval = \"20ms\"\n{more}"))
    }

    pub(super) fn exports(&self, path: &str) -> Vec<Request> {
        self.server.requests().into_iter().filter(|request| request.path == path).collect()
    }

    /// All spans so far.
    pub(super) fn spans(&self) -> Vec<SeenSpan> {
        self.exports("/v1/traces").iter().flat_map(spans_of).collect()
    }

    /// Waits for the span of the request with this id, and returns it with its children in the order of their starts.
    pub(super) async fn request(&self, request_id: &str) -> (SeenSpan, Vec<SeenSpan>) {
        let is_it = |span: &SeenSpan| span.kind == SERVER && span.attribute("amalgam.request.id") == request_id;
        let request = self.span(&format!("the span of {request_id}"), is_it).await;
        let children = self.children(&request);
        (request, children)
    }

    /// Waits for a span.
    pub(super) async fn span(&self, what: &str, is_it: impl Fn(&SeenSpan) -> bool) -> SeenSpan {
        eventually(what, SOON, async || self.spans().into_iter().find(&is_it)).await
    }

    pub(super) fn children(&self, parent: &SeenSpan) -> Vec<SeenSpan> {
        let mut children: Vec<SeenSpan> = self.spans().into_iter().filter(|span| span.parent == parent.id).collect();
        children.sort_by_key(|span| span.start_ns);
        for child in &children {
            assert_eq!(child.trace_id, parent.trace_id, "{child:?}");
            let earliest = parent.start_ns - CLOCK_NS;
            assert!(child.start_ns >= earliest && child.end_ns >= child.start_ns, "{parent:?} {child:?}");
        }
        children
    }

    /// Waits for an export of metrics that has this one with a value.
    pub(super) async fn metrics(&self, name: &str) -> Vec<Metric> {
        eventually(name, SOON, async || {
            let exports = self.exports("/v1/metrics");
            let decoded = exports.iter().map(|request| {
                ExportMetricsServiceRequest::decode(request.body.clone()).expect("an export can be decoded")
            });
            let metrics = decoded.map(|export| {
                let scopes = export.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
                scopes.flat_map(|scope| scope.metrics).collect::<Vec<_>>()
            });
            let mut with_it = metrics.filter(|metrics| metrics.iter().any(|metric| metric.name == name));
            with_it.next_back()
        })
        .await
    }
}

impl SeenSpan {
    pub(super) fn attribute(&self, name: &str) -> Value {
        self.attributes.get(name).cloned().unwrap_or_default()
    }

    /// The value that a request in this span sends as `traceparent`.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.id)
    }
}

/// The names of spans.
pub(super) fn names(spans: &[SeenSpan]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// The attributes of the resource of an export.
pub(super) fn resource_of(request: &Request) -> BTreeMap<String, Value> {
    let export = ExportTraceServiceRequest::decode(request.body.clone()).expect("an export can be decoded");
    let resource = export.resource_spans.into_iter().next().and_then(|spans| spans.resource);
    attributes(resource.expect("an export names its resource").attributes)
}

fn spans_of(request: &Request) -> Vec<SeenSpan> {
    assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
    let export = ExportTraceServiceRequest::decode(request.body.clone()).expect("an export can be decoded");
    let scopes = export.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).map(seen).collect()
}

fn seen(span: Span) -> SeenSpan {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    SeenSpan {
        trace_id: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        failed: span.status.is_some_and(|status| status.code == 2),
        start_ns: span.start_time_unix_nano,
        end_ns: span.end_time_unix_nano,
        attributes: attributes(span.attributes),
    }
}

pub(super) fn attributes(list: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let value = |pair: &KeyValue| match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(AnyValue::StringValue(text)) => json!(text),
        Some(AnyValue::BoolValue(value)) => json!(value),
        Some(AnyValue::IntValue(number)) => json!(number),
        Some(AnyValue::DoubleValue(number)) => json!(number),
        other => panic!("an attribute of a kind that is not used here: {other:?}"),
    };
    list.iter().map(|pair| (pair.key.clone(), value(pair))).collect()
}
