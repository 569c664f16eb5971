//! Collectors that are slow, absent or moved: no turn waits for them, and what is dropped is counted.

#![expect(clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::time::{Duration, Instant};

use amalgam_testkit::{Amalgam, Client, Gate, Reply, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::json;

use super::collector::Collector;
use crate::support::{BINARY, SOON, eventually};

/// The value of a metric line.
async fn value_of(client: &Client, line: &str) -> u64 {
    let text = client.get("/metrics").await.text();
    let value = text.lines().find_map(|one| one.strip_prefix(line)?.trim().parse::<f64>().ok());
    value.unwrap_or_else(|| panic!("{line} is not in {text}")) as u64
}

const DROPPED: &str = "amalgam_telemetry_dropped_total{signal=\"traces\"}";
const EXPORTED: &str = "amalgam_telemetry_exported_total{signal=\"traces\"}";

async fn turn(client: &Client) -> Duration {
    let started = Instant::now();
    let answer = client.post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    started.elapsed()
}

#[tokio::test]
async fn a_collector_that_never_answers_or_is_absent_delays_no_turn_and_the_dropped_spans_are_counted() {
    let silent = Upstream::always(Reply::hang());
    let absent = format!("http://{}", Upstream::unused_address());
    for url in [silent.url(), absent] {
        let telemetry = format!("[telemetry]\notlp = \"{url}\"\ninterval = \"10ms\"\ntimeout = \"60s\"\nqueue = 3\n");
        let amalgam = Amalgam::start(BINARY, Setup::new().extra(&telemetry)).await;
        let client = amalgam.client();
        eventually("dropped spans", SOON, async || {
            assert!(turn(&client).await < Duration::from_secs(10));
            (value_of(&client, DROPPED).await > 0).then_some(())
        })
        .await;
        assert_eq!(value_of(&client, EXPORTED).await, 0);
        // Nor does it delay the end of the process by more than its moment.
        let stopping = Instant::now();
        amalgam.terminate().await;
        assert!(stopping.elapsed() < Duration::from_secs(20), "{url}");
    }
}

#[tokio::test]
async fn an_export_that_a_collector_cannot_take_now_is_sent_again() {
    let collector = Collector { server: Upstream::start() };
    collector.server.enqueue(Reply::status(503).header("retry-after", "0"));
    collector.server.enqueue(Reply::bytes("application/x-protobuf", ""));
    let amalgam = Amalgam::start(BINARY, collector.setup_with(Setup::new(), "metrics_interval = \"0s\"\n")).await;
    let client = amalgam.client().with_header("x-request-id", "again");
    turn(&client).await;
    collector.server.wait_for_requests(2).await;
    let exports = collector.exports("/v1/traces");
    assert_eq!(exports[0].body, exports[1].body);
}

#[tokio::test]
async fn a_reload_changes_the_collector_and_can_end_the_export() {
    let (first, second) = (Collector::start(), Collector::start());
    let setup =
        |collector: &Collector| collector.setup_with(Setup::new(), "headers = { authorization = \"Bearer t0ken\" }\n");
    let amalgam = Amalgam::start(BINARY, setup(&first)).await;
    let operator = amalgam.client().with_key(&amalgam.first_key());
    let reload = async |toml: String| {
        std::fs::write(amalgam.folder().join("amalgam.toml"), toml).unwrap();
        let answer = operator.request(Method::POST, "/admin/reload", &[], Bytes::new()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let client = |id: &str| amalgam.client().with_header("x-request-id", id);
    turn(&client("before")).await;
    first.request("before").await;
    assert_eq!(first.exports("/v1/traces")[0].header("authorization"), Some("Bearer t0ken"));
    let report = reload(setup(&second).toml()).await;
    assert_eq!(report["changed"], json!(["telemetry.otlp"]), "{report}");
    turn(&client("after")).await;
    second.request("after").await;
    reload(Setup::new().toml()).await;
    turn(&client("off")).await;
    turn(&client("off")).await;
    let both = [first.spans(), second.spans()].concat();
    assert!(both.iter().all(|span| span.attribute("amalgam.request.id") != "off"));
    assert!(!amalgam.stderr().contains("t0ken"));
}

#[tokio::test]
async fn spans_that_wait_when_the_process_stops_are_exported_first() {
    let collector = Collector::start();
    let setup = collector.setup(Setup::new()).env("AMALGAM_TELEMETRY_INTERVAL", "10m");
    let amalgam = Amalgam::start(BINARY, setup).await;
    turn(&amalgam.client().with_header("x-request-id", "last")).await;
    assert_eq!(collector.exports("/v1/traces").len(), 0);
    amalgam.terminate().await;
    collector.request("last").await;
}

#[tokio::test]
async fn the_variables_of_the_specification_configure_what_the_file_does_not() {
    let collector = Collector::start();
    let env = Setup::new()
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.server.url())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        .env("OTEL_SERVICE_NAME", "not this one")
        .extra("[telemetry]\ninterval = \"20ms\"\nservice_name = \"by-file\"\n");
    let amalgam = Amalgam::start(BINARY, env).await;
    turn(&amalgam.client().with_header("x-request-id", "standard")).await;
    collector.request("standard").await;
    let export = &collector.exports("/v1/traces")[0];
    let resource = super::collector::resource_of(export);
    assert_eq!(export.header("x-tenant"), Some("blue"));
    assert_eq!(
        (&resource["deployment.environment.name"], &resource["service.name"]),
        (&json!("test"), &json!("by-file"))
    );
}

#[tokio::test]
async fn a_slow_collector_does_not_hold_up_a_stream() {
    let gate = Gate::new();
    let slow = Upstream::always(Reply::bytes("application/x-protobuf", "").behind(&gate));
    let telemetry = format!("[telemetry]\notlp = \"{}\"\ninterval = \"10ms\"\n", slow.url());
    let amalgam = Amalgam::start(BINARY, Setup::new().extra(&telemetry)).await;
    turn(&amalgam.client()).await;
    slow.wait_for_requests(1).await;
    let request = json!({"model": "demo", "input": "Hi", "stream": true});
    let answer = amalgam.client().post_json("/v1/responses", &request).await;
    assert_eq!(answer.json_events().last().unwrap()["type"], "response.completed");
    gate.open();
}
