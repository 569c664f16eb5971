//! Metrics of model calls under the names of OpenTelemetry's GenAI conventions. Prometheus gets them with underscores; the export by OTLP
//! gives them their own names.

use std::sync::{Arc, PoisonError, RwLock};

use amalgam_core::CallSummary;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::Registry,
};

use super::label_values::LabelValue;

/// The bounds that the conventions recommend, in tokens.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

/// The same, in seconds.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// The provider of a call whose span was left out.
const UNKNOWN: &str = "_OTHER";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    gen_ai_operation_name: &'static str,
    gen_ai_provider_name: &'static str,
    gen_ai_request_model: LabelValue,
    gen_ai_token_type: &'static str,
}

/// The families.
pub(super) struct GenAiFamilies {
    tokens: Family<TokenLabels, Histogram, fn() -> Histogram>,
    seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
}

impl GenAiFamilies {
    pub(super) fn register(registry: &mut Registry) -> Arc<Self> {
        let tokens: fn() -> Histogram = || Histogram::new(TOKENS);
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let families =
            Self { tokens: Family::new_with_constructor(tokens), seconds: Family::new_with_constructor(seconds) };
        registry.register(
            "gen_ai_client_token_usage",
            "Tokens of model calls, by kind (gen_ai.client.token.usage)",
            families.tokens.clone(),
        );
        registry.register(
            "gen_ai_client_operation_duration_seconds",
            "Time of model calls (gen_ai.client.operation.duration)",
            families.seconds.clone(),
        );
        Arc::new(families)
    }

    fn of(&self, provider: &'static str, model: &LabelValue) -> GenAiSeries {
        let tokens = |kind| {
            self.tokens.get_or_create_owned(&TokenLabels {
                gen_ai_operation_name: "chat",
                gen_ai_provider_name: provider,
                gen_ai_request_model: model.clone(),
                gen_ai_token_type: kind,
            })
        };
        GenAiSeries {
            provider,
            input: tokens("input"),
            output: tokens("output"),
            seconds: self.seconds.get_or_create_owned(&CallLabels {
                gen_ai_operation_name: "chat",
                gen_ai_provider_name: provider,
                gen_ai_request_model: model.clone(),
            }),
        }
    }
}

/// What is counted for a model at a provider.
#[derive(Clone)]
struct GenAiSeries {
    provider: &'static str,
    input: Histogram,
    output: Histogram,
    seconds: Histogram,
}

/// What is counted for a model. There are few providers.
pub(super) struct GenAiModel {
    families: Arc<GenAiFamilies>,
    model: LabelValue,
    series: RwLock<Vec<GenAiSeries>>,
}

impl GenAiModel {
    pub(super) fn new(families: &Arc<GenAiFamilies>, model: LabelValue) -> Self {
        Self { families: Arc::clone(families), model, series: RwLock::default() }
    }

    /// Counts a call of a provider.
    pub(super) fn count(&self, call: &CallSummary, provider: Option<&'static str>) {
        let provider = provider.unwrap_or(UNKNOWN);
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.iter().find(|series| series.provider == provider) {
            return series.count(call);
        }
        drop(known);
        let series = self.families.of(provider, &self.model);
        series.count(call);
        self.series.write().unwrap_or_else(PoisonError::into_inner).push(series);
    }
}

impl GenAiSeries {
    fn count(&self, call: &CallSummary) {
        self.seconds.observe(call.duration_ms as f64 / 1000.0);
        if let Some(usage) = &call.usage {
            self.input.observe(usage.input_tokens as f64);
            self.output.observe(usage.output_tokens as f64);
        }
    }
}
