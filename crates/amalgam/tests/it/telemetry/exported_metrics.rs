//! The metrics of the process by OTLP: the same families and values as `/metrics`.

#![expect(clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use std::collections::BTreeSet;

use amalgam_testkit::{Amalgam, Setup};
use opentelemetry_proto::tonic::metrics::v1::{Metric, metric::Data, number_data_point::Value as Number};
use serde_json::json;

use super::collector::{Collector, attributes};
use crate::support::{BINARY, SOON, eventually};

/// The families that the text of Prometheus describes.
fn families(text: &str) -> BTreeSet<String> {
    let described = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let exported = |name: &str| match name {
        "gen_ai_client_token_usage" => "gen_ai.client.token.usage".to_owned(),
        "gen_ai_client_operation_duration_seconds" => "gen_ai.client.operation.duration".to_owned(),
        name => name.to_owned(),
    };
    described.map(|(name, _)| exported(name)).collect()
}

/// The number of requests of a door.
fn requests(metrics: &[Metric], door: &str) -> Option<f64> {
    let metric = metrics.iter().find(|metric| metric.name == "amalgam_requests_total")?;
    let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
    assert!(sum.is_monotonic && sum.aggregation_temporality == 2, "{metric:?}");
    let of_door = sum.data_points.iter().find(|point| attributes(point.attributes.clone())["door"] == door)?;
    assert!(of_door.start_time_unix_nano > 0 && of_door.time_unix_nano >= of_door.start_time_unix_nano);
    match of_door.value {
        Some(Number::AsDouble(number)) => Some(number),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn exported_metrics_have_the_families_and_values_of_the_text() {
    let collector = Collector::start();
    let setup = collector.setup_with(Setup::new(), "metrics_interval = \"50ms\"\n");
    let amalgam = Amalgam::start(BINARY, setup).await;
    for _ in 0..3 {
        let answer = amalgam.client().post_json("/v1/responses", &json!({"model": "demo", "input": "Hi"})).await;
        assert_eq!(answer.status, 200);
    }
    let metrics = eventually("three requests", SOON, async || {
        let metrics = collector.metrics("amalgam_requests_total").await;
        (requests(&metrics, "responses") == Some(3.0)).then_some(metrics)
    })
    .await;
    let text = amalgam.client().get("/metrics").await.text();
    let exported: BTreeSet<String> = metrics.iter().map(|metric| metric.name.clone()).collect();
    assert_eq!(exported, families(&text));
    let durations = metrics.iter().find(|metric| metric.name == "amalgam_request_duration_seconds").unwrap();
    let Some(Data::Histogram(histogram)) = &durations.data else { panic!("{durations:?}") };
    let mut of_responses =
        histogram.data_points.iter().filter(|point| attributes(point.attributes.clone())["door"] == "responses");
    let point = of_responses.next().expect("the door has a histogram");
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (3, 3));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert!(point.sum.unwrap() > 0.0 && !durations.description.is_empty());
    let tokens = metrics.iter().find(|metric| metric.name == "gen_ai.client.token.usage").unwrap();
    let Some(Data::Histogram(histogram)) = &tokens.data else { panic!("{tokens:?}") };
    let kinds: BTreeSet<String> = histogram
        .data_points
        .iter()
        .map(|point| attributes(point.attributes.clone())["gen_ai.token.type"].to_string())
        .collect();
    assert_eq!((&*tokens.unit, kinds.len(), histogram.data_points[0].count), ("{token}", 2, 3), "{tokens:?}");
    let of_input = attributes(histogram.data_points[0].attributes.clone());
    assert_eq!(
        (&of_input["gen_ai.operation.name"], &of_input["gen_ai.provider.name"], &of_input["gen_ai.request.model"]),
        (&json!("chat"), &json!("amalgam.demo"), &json!("demo"))
    );
}
