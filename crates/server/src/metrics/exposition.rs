//! The two text formats that Prometheus reads.

use http::HeaderMap;

/// A format of the exposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The older text format, for every other client.
    Text,
}

impl ExpositionFormat {
    /// The format that the client accepts.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let accepts = headers.get_all(http::header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        match accepts.into_iter().any(|value| value.contains("application/openmetrics-text")) {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The exposition in this format, from OpenMetrics.
    pub(crate) fn convert(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Text => as_text(&open_metrics),
        }
    }
}

/// Converts OpenMetrics: counters have their suffix in the lines that describe them too, and there is neither a unit nor an end.
fn as_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if line.starts_with("# HELP ") {
            // The line of the type, which follows, decides the name.
            help = Some(line);
            continue;
        }
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let described = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '));
        let Some((name, kind)) = described else {
            text.push_str(line);
            text.push('\n');
            continue;
        };
        // The older format has no information about the program; it is a gauge there.
        let (suffix, kind) = match kind {
            "counter" => ("_total", kind),
            "info" => ("_info", "gauge"),
            _ => ("", kind),
        };
        let words = help.take().and_then(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        if let Some((_, words)) = words {
            text.push_str(&format!("# HELP {name}{suffix} {words}\n"));
        }
        text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_described_under_the_name_of_their_samples() {
        let open_metrics = "# HELP a_requests Requests.\n# TYPE a_requests counter\na_requests_total{b=\"c\"} 1\n\
            # HELP a_build B.\n# TYPE a_build info\na_build_info 1\n\
            # HELP a_seconds Time.\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 2\n# EOF\n";
        assert_eq!(
            ExpositionFormat::Text.convert(open_metrics.to_owned()),
            "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\na_requests_total{b=\"c\"} 1\n\
             # HELP a_build_info B.\n# TYPE a_build_info gauge\na_build_info 1\n\
             # HELP a_seconds Time.\n# TYPE a_seconds gauge\na_seconds 2\n"
        );
    }
}
