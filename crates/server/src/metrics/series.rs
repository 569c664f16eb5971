//! The counters of one model, upstream, tenant or tool, and metrics that are read when they are requested.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock, atomic::AtomicU64},
    time::Duration,
};

use amalgam_core::{TelemetryMeter, TelemetrySignal, store::StoreMeter};
use amalgam_protocol::Usage;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, NoLabelSet},
    metrics::{
        MetricType,
        counter::{ConstCounter, Counter},
        family::Family,
        gauge::ConstGauge,
        histogram::Histogram,
    },
    registry::Registry,
};

use super::{
    gen_ai::{GenAiFamilies, GenAiModel},
    label_values::LabelValue,
    process::{DiskSpace, ProcessUse},
};
use amalgam_listener::{RefusalMeter, ServerTls};

type CounterOfUsd = Counter<f64, AtomicU64>;
type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelTokenLabels {
    model: LabelValue,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantTokenLabels {
    tenant: LabelValue,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantStatusLabels {
    tenant: LabelValue,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamLabels {
    upstream: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpstreamStatusLabels {
    upstream: LabelValue,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabels {
    tool: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolOutcomeLabels {
    tool: LabelValue,
    outcome: &'static str,
}

/// The families of what turns use.
pub(super) struct TurnFamilies {
    tokens: Family<ModelTokenLabels, Counter>,
    cost: Family<ModelLabels, CounterOfUsd>,
    tenant_turns: Family<TenantStatusLabels, Counter>,
    tenant_tokens: Family<TenantTokenLabels, Counter>,
    tenant_cost: Family<TenantLabels, CounterOfUsd>,
    upstream_requests: Family<UpstreamStatusLabels, Counter>,
    upstream_retries: Family<UpstreamLabels, Counter>,
    first_token: HistogramFamily<UpstreamLabels>,
    tool_calls: Family<ToolOutcomeLabels, Counter>,
    tool_seconds: HistogramFamily<ToolLabels>,
}

impl TurnFamilies {
    pub(super) fn register(registry: &mut Registry, seconds: fn() -> Histogram) -> Self {
        let families = Self {
            tokens: Family::default(),
            cost: Family::default(),
            tenant_turns: Family::default(),
            tenant_tokens: Family::default(),
            tenant_cost: Family::default(),
            upstream_requests: Family::default(),
            upstream_retries: Family::default(),
            first_token: Family::new_with_constructor(seconds),
            tool_calls: Family::default(),
            tool_seconds: Family::new_with_constructor(seconds),
        };
        registry.register(
            "tokens",
            "Tokens by model and kind; input includes cached_input and cache_write, output includes reasoning",
            families.tokens.clone(),
        );
        registry.register("cost_usd", "Known cost of model calls in US dollars, by model", families.cost.clone());
        registry.register("tenant_turns", "Ended turns by tenant", families.tenant_turns.clone());
        registry.register("tenant_tokens", "Tokens by tenant and kind", families.tenant_tokens.clone());
        registry.register(
            "tenant_cost_usd",
            "Known cost of model calls in US dollars, by tenant",
            families.tenant_cost.clone(),
        );
        registry.register(
            "upstream_requests",
            "Model calls by upstream and status",
            families.upstream_requests.clone(),
        );
        registry.register("upstream_retries", "Further attempts of model calls", families.upstream_retries.clone());
        registry.register(
            "time_to_first_token_seconds",
            "Time from the start of a turn to its first output, by upstream",
            families.first_token.clone(),
        );
        registry.register("tool_calls", "Calls of server-run tools by tool and outcome", families.tool_calls.clone());
        registry.register("tool_duration_seconds", "Time of calls of server-run tools", families.tool_seconds.clone());
        families
    }

    pub(super) fn of_model(&self, label: LabelValue, gen_ai: &Arc<GenAiFamilies>) -> ModelSeries {
        let tokens = |kind| self.tokens.get_or_create_owned(&ModelTokenLabels { model: label.clone(), kind });
        ModelSeries {
            tokens: TokenCounters::new(tokens),
            cost: self.cost.get_or_create_owned(&ModelLabels { model: label.clone() }),
            gen_ai: GenAiModel::new(gen_ai, label.clone()),
            label,
        }
    }

    pub(super) fn of_tenant(&self, tenant: LabelValue) -> TenantSeries {
        let tokens = |kind| self.tenant_tokens.get_or_create_owned(&TenantTokenLabels { tenant: tenant.clone(), kind });
        let turns =
            |status| self.tenant_turns.get_or_create_owned(&TenantStatusLabels { tenant: tenant.clone(), status });
        TenantSeries {
            tokens: TokenCounters::new(tokens),
            ended: turns("ended"),
            failed: turns("failed"),
            cost: self.tenant_cost.get_or_create_owned(&TenantLabels { tenant: tenant.clone() }),
        }
    }

    pub(super) fn of_upstream(&self, label: LabelValue) -> UpstreamSeries {
        let upstream = UpstreamLabels { upstream: label.clone() };
        let requests = |status| {
            self.upstream_requests.get_or_create_owned(&UpstreamStatusLabels { upstream: label.clone(), status })
        };
        UpstreamSeries {
            ok: requests("ok"),
            failed: requests("failed"),
            retries: self.upstream_retries.get_or_create_owned(&upstream),
            first_token: self.first_token.get_or_create_owned(&upstream),
            label,
        }
    }

    pub(super) fn of_tool(&self, tool: LabelValue) -> ToolSeries {
        ToolSeries {
            seconds: self.tool_seconds.get_or_create_owned(&ToolLabels { tool: tool.clone() }),
            calls: self.tool_calls.clone(),
            outcomes: RwLock::default(),
            tool,
        }
    }
}

/// Tokens by kind.
pub(super) struct TokenCounters {
    input: Counter,
    cached_input: Counter,
    cache_write: Counter,
    output: Counter,
    reasoning: Counter,
}

impl TokenCounters {
    fn new(of_kind: impl Fn(&'static str) -> Counter) -> Self {
        Self {
            input: of_kind("input"),
            cached_input: of_kind("cached_input"),
            cache_write: of_kind("cache_write"),
            output: of_kind("output"),
            reasoning: of_kind("reasoning"),
        }
    }

    pub(super) fn add(&self, usage: &Usage) {
        for (counter, tokens) in [
            (&self.input, usage.input_tokens),
            (&self.cached_input, usage.cached_tokens),
            (&self.cache_write, usage.cache_write_tokens),
            (&self.output, usage.output_tokens),
            (&self.reasoning, usage.reasoning_tokens),
        ] {
            if tokens > 0 {
                counter.inc_by(tokens);
            }
        }
    }
}

/// The counters of a model.
pub(super) struct ModelSeries {
    pub(super) label: LabelValue,
    pub(super) tokens: TokenCounters,
    pub(super) cost: CounterOfUsd,
    pub(super) gen_ai: GenAiModel,
}

/// The counters of a tenant.
pub(super) struct TenantSeries {
    ended: Counter,
    failed: Counter,
    pub(super) tokens: TokenCounters,
    pub(super) cost: CounterOfUsd,
}

impl TenantSeries {
    /// The counter of turns that ended with an answer, or without one.
    pub(super) fn turns(&self, answered: bool) -> &Counter {
        if answered { &self.ended } else { &self.failed }
    }
}

/// The counters of an upstream.
pub(super) struct UpstreamSeries {
    pub(super) label: LabelValue,
    ok: Counter,
    failed: Counter,
    pub(super) retries: Counter,
    pub(super) first_token: Histogram,
}

impl UpstreamSeries {
    pub(super) fn requests(&self, failed: bool) -> &Counter {
        if failed { &self.failed } else { &self.ok }
    }
}

/// The counters of a tool.
pub(super) struct ToolSeries {
    tool: LabelValue,
    seconds: Histogram,
    calls: Family<ToolOutcomeLabels, Counter>,
    /// The counters of the outcomes so far, a handful.
    outcomes: RwLock<Vec<(&'static str, Counter)>>,
}

impl ToolSeries {
    pub(super) fn ended(&self, outcome: &'static str, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        let known = self.outcomes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, counter)) = known.iter().find(|(known, _)| *known == outcome) {
            counter.inc();
            return;
        }
        drop(known);
        let counter = self.calls.get_or_create_owned(&ToolOutcomeLabels { tool: self.tool.clone(), outcome });
        counter.inc();
        self.outcomes.write().unwrap_or_else(PoisonError::into_inner).push((outcome, counter));
    }
}

/// The flushes of the store, and the budgets that were reached there.
#[derive(Debug)]
pub(super) struct StoreCollector(pub(super) StoreMeter);

impl Collector for StoreCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let flushes = self.0.read();
        let (help, kind) =
            ("Time of a commit of the store, which may contain writes of many turns", MetricType::Histogram);
        let histogram = encoder.encode_descriptor("store_flush_seconds", help, None, kind)?;
        let mut histogram = histogram;
        histogram.encode_histogram::<NoLabelSet>(flushes.seconds, flushes.count, &flushes.buckets, None)?;
        let help = "Writes that were committed";
        let writes = encoder.encode_descriptor("store_flushed_writes", help, None, MetricType::Counter)?;
        ConstCounter::new(flushes.writes).encode(writes)?;
        let help = "Budgets that have reached a threshold, by kind of limit and per cent, in writes of this process";
        let mut budgets = encoder.encode_descriptor("budget_reached", help, None, MetricType::Counter)?;
        for (kind, percent, number) in self.0.budgets() {
            let labels = [("kind", kind.singular()), ("threshold", if percent < 100 { "80" } else { "100" })];
            ConstCounter::new(number).encode(budgets.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The connections that were refused before a request was routed.
#[derive(Debug)]
pub(super) struct RefusalCollector(pub(super) RefusalMeter);

impl Collector for RefusalCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Connections that were refused before a request was routed, by reason";
        let mut refused = encoder.encode_descriptor("connections_refused", help, None, MetricType::Counter)?;
        for (reason, number) in self.0.read() {
            ConstCounter::new(number).encode(refused.encode_family(&[("reason", reason.name())])?)?;
        }
        Ok(())
    }
}

/// The certificate and the disk, if there are any.
#[derive(Debug)]
pub(super) struct MachineCollector {
    pub(super) certificate: Option<ServerTls>,
    pub(super) disk: Option<PathBuf>,
}

impl Collector for MachineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let disk = self.disk.as_deref().and_then(DiskSpace::read);
        let expiry = self.certificate.as_ref().map(|certificate| certificate.validity().not_after);
        let gauges = [
            ("certificate_expiry_seconds", "When the server's certificate expires, since 1970", expiry),
            ("disk_free_bytes", "Free space on the disk of the store", disk.map(|disk| disk.free_bytes)),
            ("disk_size_bytes", "Size of the disk of the store", disk.map(|disk| disk.size_bytes)),
        ];
        for (name, help, value) in gauges {
            let encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            if let Some(value) = value {
                ConstGauge::new(value as f64).encode(encoder)?;
            }
        }
        Ok(())
    }
}

/// The numbers of records that were exported to a telemetry collector, and dropped.
#[derive(Debug)]
pub(super) struct TelemetryCollector(pub(super) TelemetryMeter);

impl Collector for TelemetryCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read = TelemetrySignal::ALL.map(|signal| (signal.name(), self.0.read(signal)));
        let help = "Spans and exports of metrics that the telemetry collector accepted";
        let mut exported = encoder.encode_descriptor("telemetry_exported", help, None, MetricType::Counter)?;
        for (signal, (number, _)) in read {
            ConstCounter::new(number).encode(exported.encode_family(&[("signal", signal)])?)?;
        }
        let help = "Spans and exports of metrics that no telemetry collector received";
        let mut dropped = encoder.encode_descriptor("telemetry_dropped", help, None, MetricType::Counter)?;
        for (signal, (_, number)) in read {
            ConstCounter::new(number).encode(dropped.encode_family(&[("signal", signal)])?)?;
        }
        Ok(())
    }
}

/// Values that the operating system reports about the process.
#[derive(Debug)]
pub(super) struct ProcessCollector {
    pub(super) started_at_ms: u64,
    pub(super) read: fn() -> ProcessUse,
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let process = (self.read)();
        let gauges = [
            ("process_resident_memory_bytes", "Resident memory", process.resident_bytes as f64),
            ("process_virtual_memory_bytes", "Virtual memory", process.virtual_bytes as f64),
            ("process_open_fds", "Open files and sockets", process.open_files as f64),
            ("process_start_time_seconds", "When the process started, since 1970", self.started_at_ms as f64 / 1000.0),
        ];
        for (name, help, value) in gauges {
            ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)?;
        }
        let help = "CPU time of the process";
        let cpu = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
        ConstCounter::new(process.cpu_seconds).encode(cpu)
    }
}
