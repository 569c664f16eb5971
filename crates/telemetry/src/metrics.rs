//! The metrics of the process as OTLP: read from the text that Prometheus gets, so that both have the same families and values.

use std::collections::{BTreeMap, btree_map::Entry};

use crate::{
    attributes::Attributes,
    message::{
        CUMULATIVE, ExportMetrics, Gauge, Histogram, HistogramPoint, InstrumentationScope, KeyValue, Metric,
        MetricData, NumberPoint, Resource, ResourceMetrics, ScopeMetrics, Sum,
    },
};

/// Metrics of the GenAI conventions, whose names Prometheus cannot have: there, here, and the unit.
const CONVENTIONAL: [(&str, &str, &str); 2] = [
    ("gen_ai_client_token_usage", "gen_ai.client.token.usage", "{token}"),
    ("gen_ai_client_operation_duration_seconds", "gen_ai.client.operation.duration", "s"),
];

/// Their labels: there, and here.
const CONVENTIONAL_LABELS: [(&str, &str); 4] = [
    ("gen_ai_operation_name", "gen_ai.operation.name"),
    ("gen_ai_provider_name", "gen_ai.provider.name"),
    ("gen_ai_request_model", "gen_ai.request.model"),
    ("gen_ai_token_type", "gen_ai.token.type"),
];

/// The start of the process and the present, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Period {
    pub(crate) start_ns: u64,
    pub(crate) now_ns: u64,
}

/// An export of the metrics in `text`, which has Prometheus' text format 0.0.4.
pub(crate) fn export(text: &str, resource: Resource, scope: InstrumentationScope, period: Period) -> ExportMetrics {
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics: families(text, period) }];
    ExportMetrics { resource_metrics: vec![ResourceMetrics { resource: Some(resource), scope_metrics }] }
}

/// Names and values.
type Labels<'a> = Vec<(&'a str, String)>;

/// A family while its lines are read.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    numbers: Vec<NumberPoint>,
    histograms: Vec<HistogramLines<'a>>,
    /// The index of a histogram by its labels.
    by_labels: BTreeMap<Labels<'a>, usize>,
}

#[derive(Default)]
struct HistogramLines<'a> {
    labels: Labels<'a>,
    /// Upper bounds with the number of values up to each.
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

fn families(text: &str, period: Period) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let mut family = Family::default();
    let mut help = ("", "");
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ').unwrap_or((described, ""));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            metrics.extend(std::mem::take(&mut family).finish(period));
            let help = if help.0 == name { help.1 } else { "" };
            family = Family { name, help, kind, ..Family::default() };
        } else if let Some(sample) = Sample::read(line) {
            family.add(sample, period);
        }
    }
    metrics.extend(family.finish(period));
    metrics
}

/// A line with a value.
struct Sample<'a> {
    name: &'a str,
    /// The text between the braces.
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let (head, value) = line.rsplit_once(' ')?;
        let (name, labels) = match head.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (head, ""),
        };
        Some(Self { name, labels, value: value.parse().ok()? })
    }
}

impl<'a> Family<'a> {
    fn add(&mut self, sample: Sample<'a>, period: Period) {
        if self.kind != "histogram" {
            self.numbers.push(NumberPoint {
                start_time_unix_nano: if self.kind == "counter" { period.start_ns } else { 0 },
                time_unix_nano: period.now_ns,
                as_double: Some(sample.value),
                attributes: attributes(labels(sample.labels)),
            });
            return;
        }
        let Some(part) = sample.name.strip_prefix(self.name) else { return };
        let mut own = labels(sample.labels);
        let bound = own.iter().position(|(key, _)| *key == "le").map(|at| own.remove(at).1);
        let index = match self.by_labels.entry(own) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.histograms.push(HistogramLines { labels: new.key().clone(), ..HistogramLines::default() });
                *new.insert(self.histograms.len() - 1)
            }
        };
        let Some(histogram) = self.histograms.get_mut(index) else { return };
        match (part, bound) {
            ("_bucket", Some(bound)) => {
                histogram.buckets.push((bound.parse().unwrap_or(f64::INFINITY), sample.value as u64));
            }
            ("_sum", _) => histogram.sum = sample.value,
            ("_count", _) => histogram.count = sample.value as u64,
            _ => {}
        }
    }

    fn finish(self, period: Period) -> Option<Metric> {
        let Self { name, help, kind, numbers: data_points, histograms, .. } = self;
        let data = match kind {
            "counter" => MetricData::Sum(Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true }),
            "gauge" => MetricData::Gauge(Gauge { data_points }),
            "histogram" => MetricData::Histogram(Histogram {
                data_points: histograms.into_iter().map(|lines| lines.finish(period)).collect(),
                aggregation_temporality: CUMULATIVE,
            }),
            _ => return None,
        };
        let (name, unit) =
            CONVENTIONAL.iter().find(|known| known.0 == name).map_or((name, ""), |known| (known.1, known.2));
        Some(Metric { name: name.to_owned(), description: help.to_owned(), unit: unit.to_owned(), data: Some(data) })
    }
}

impl HistogramLines<'_> {
    /// Prometheus counts values up to a bound, OTLP those between two bounds.
    fn finish(self, period: Period) -> HistogramPoint {
        let mut before = 0;
        let bucket_counts = self.buckets.iter().map(|(_, up_to)| {
            let between = up_to.saturating_sub(before);
            before = *up_to;
            between
        });
        HistogramPoint {
            start_time_unix_nano: period.start_ns,
            time_unix_nano: period.now_ns,
            count: self.count,
            sum: Some(self.sum),
            bucket_counts: bucket_counts.collect(),
            explicit_bounds: self.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
            attributes: attributes(self.labels),
        }
    }
}

fn attributes(labels: Labels<'_>) -> Vec<KeyValue> {
    let mut attributes = Attributes::default();
    for (key, value) in &labels {
        let key = CONVENTIONAL_LABELS.iter().find(|known| known.0 == *key).map_or(*key, |known| known.1);
        attributes.add(key, value.as_str());
    }
    attributes.into_list()
}

/// Reads `a="b",c="d"`.
fn labels(mut text: &str) -> Labels<'_> {
    let mut labels = Vec::new();
    while let Some((key, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next() {
                Some((_, '\\')) => value.push(match characters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, other)) => other,
                    None => '\\',
                }),
                Some((at, '"')) => break at,
                Some((_, other)) => value.push(other),
                None => return labels,
            }
        };
        labels.push((key.trim_start_matches(','), value));
        text = rest.get(end + 1..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::{
        collector::metrics::v1::ExportMetricsServiceRequest,
        metrics::v1::{metric::Data, number_data_point::Value},
    };
    use prost::Message as _;

    use super::*;

    const TEXT: &str = "\
# HELP turns_total Ended turns
# TYPE turns_total counter
turns_total{model=\"a\\\"b\\\\c,d=\\\"\",status=\"ok\"} 3
turns_total{model=\"x\",status=\"ok\"} 0.5
# HELP wait_seconds Waits
# TYPE wait_seconds histogram
wait_seconds_sum{queue=\"a\"} 7.5
wait_seconds_count{queue=\"a\"} 4
wait_seconds_bucket{le=\"0.5\",queue=\"a\"} 1
wait_seconds_bucket{queue=\"a\",le=\"2.0\"} 3
wait_seconds_bucket{queue=\"a\",le=\"+Inf\"} 4
# TYPE open gauge
open -2
";

    #[test]
    fn the_text_of_prometheus_becomes_sums_gauges_and_histograms() {
        let scope = InstrumentationScope::default();
        let export = export(TEXT, Resource::default(), scope, Period { start_ns: 5, now_ns: 9 });
        let read = ExportMetricsServiceRequest::decode(export.encode_to_vec().as_slice()).unwrap();
        let [turns, wait, open] = read.resource_metrics[0].scope_metrics[0].metrics.as_slice() else {
            panic!("{read:?}")
        };
        assert_eq!((&*turns.name, &*turns.description), ("turns_total", "Ended turns"));
        let Some(Data::Sum(sum)) = &turns.data else { panic!("{turns:?}") };
        let values: Vec<_> = sum.data_points.iter().map(|point| (point.start_time_unix_nano, point.value)).collect();
        assert_eq!(values, [(5, Some(Value::AsDouble(3.0))), (5, Some(Value::AsDouble(0.5)))]);
        let labels = format!("{:?}", sum.data_points[0].attributes);
        assert!(labels.contains(r#"a\"b\\c,d=\""#), "{labels}");
        let Some(Data::Histogram(histogram)) = &wait.data else { panic!("{wait:?}") };
        let point = &histogram.data_points[0];
        assert_eq!((&*point.bucket_counts, &*point.explicit_bounds), (&[1, 2, 1][..], &[0.5, 2.0][..]));
        assert_eq!((point.count, point.sum, point.attributes.len()), (4, Some(7.5), 1));
        let Some(Data::Gauge(gauge)) = &open.data else { panic!("{open:?}") };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(-2.0)));
    }
}
