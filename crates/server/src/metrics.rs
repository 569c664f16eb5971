//! The metrics of the process: one typed struct that counts, and its text for Prometheus.
//!
//! Counting takes no lock that waits for another request and allocates nothing after the first event of a label value. `docs/operations.md`
//! describes every metric.

mod door;
mod exposition;
mod gen_ai;
mod label_values;
mod process;
mod series;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use amalgam_core::{CallSummary, Door, TelemetryMeter, TurnQueue, TurnStep, TurnSummary, store::StoreMeter};
use amalgam_protocol::Status;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

pub(crate) use self::door::of_path as door_of_path;
pub(crate) use self::exposition::ExpositionFormat;
use self::{
    gen_ai::GenAiFamilies,
    label_values::{LabelValue, LabelValues},
    process::ProcessUse,
    series::{
        MachineCollector, ModelSeries, ProcessCollector, RefusalCollector, StoreCollector, TelemetryCollector,
        TenantSeries, ToolSeries, TurnFamilies, UpstreamSeries,
    },
};
use amalgam_listener::{RefusalMeter, ServerTls};

/// Upper bounds of the time of requests, first tokens and waits, in seconds.
const SECONDS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0];

/// Upper bounds of the time of store writes, in seconds.
const WRITE_SECONDS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0];

/// The version, the commit and the start time of the running program.
#[derive(Debug, Clone, Default)]
pub struct BuildInfo {
    /// The version.
    pub version: String,
    /// The commit that it was built from, if that is known.
    pub commit: String,
    /// When the process started, in milliseconds since 1970.
    pub started_at_ms: u64,
}

/// What counts outside of the metrics, and what is read when they are requested.
#[derive(Debug, Clone, Default)]
pub struct MetricSources {
    /// The commits of the store, and the budgets that were reached.
    pub store: StoreMeter,
    /// What was exported.
    pub telemetry: TelemetryMeter,
    /// Connections that were refused.
    pub refusals: RefusalMeter,
    /// The certificate of the listeners.
    pub certificate: Option<ServerTls>,
    /// A folder on the disk of the store.
    pub disk: Option<PathBuf>,
}

/// All metrics of the process.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: [Histogram; Door::ALL.len()],
    errors: Family<ErrorLabels, Counter>,
    classes: LabelValues<LabelValue>,
    streams_open: Gauge,
    turns: Family<TurnLabels, Counter>,
    models: LabelValues<ModelSeries>,
    upstreams: LabelValues<UpstreamSeries>,
    tenants: LabelValues<TenantSeries>,
    tools: LabelValues<ToolSeries>,
    queue_wait: [Histogram; 3],
    write_seconds: Histogram,
    writes: [Counter; 2],
    turns_in_flight: Gauge,
    queue_depth: Family<QueueLabels, Gauge>,
    breakers: Family<BreakerLabels, Gauge>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    door: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ErrorLabels {
    door: &'static str,
    class: LabelValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TurnLabels {
    door: &'static str,
    model: LabelValue,
    upstream: LabelValue,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabels {
    door: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BreakerLabels {
    upstream: String,
}

/// The values that are read when metrics are requested.
#[derive(Debug, Clone, Default)]
pub(crate) struct LiveState {
    pub(crate) turns_in_flight: usize,
    /// Turns that wait in a queue; none if the queue cannot be counted now.
    pub(crate) queued: Vec<(TurnQueue, Option<u64>)>,
    /// The upstreams, and whether the circuit breaker of each is open.
    pub(crate) breakers: Vec<(String, bool)>,
}

fn histogram_of_seconds() -> Histogram {
    Histogram::new(SECONDS)
}

impl Metrics {
    /// All metrics at zero.
    pub fn new(build: &BuildInfo, sources: MetricSources) -> Arc<Self> {
        let MetricSources { store, telemetry, refusals, certificate, disk } = sources;
        let mut all = Registry::default();
        let started_at_ms = build.started_at_ms;
        all.register_collector(Box::new(ProcessCollector { started_at_ms, read: ProcessUse::read }));
        let gen_ai = GenAiFamilies::register(&mut all);
        let registry = all.sub_registry_with_prefix("amalgam");
        let seconds: fn() -> Histogram = histogram_of_seconds;
        let requests = Family::<RequestLabels, Counter>::default();
        registry.register("requests", "HTTP requests by door and status", requests.clone());
        let request_seconds = Family::<DoorLabels, Histogram, fn() -> Histogram>::new_with_constructor(seconds);
        registry.register(
            "request_duration_seconds",
            "Time from the head of a request to the end of its response body",
            request_seconds.clone(),
        );
        let errors = Family::<ErrorLabels, Counter>::default();
        registry.register(
            "errors",
            "Refused and failed requests, and failed turns, by class of the error",
            errors.clone(),
        );
        let streams_open = Gauge::default();
        registry.register("streams_open", "Responses that are being streamed", streams_open.clone());
        let turns = Family::<TurnLabels, Counter>::default();
        registry.register("turns", "Ended turns by door, answering model and upstream, and status", turns.clone());
        let families = TurnFamilies::register(registry, seconds);
        let queue_wait = Family::<QueueLabels, Histogram, fn() -> Histogram>::new_with_constructor(seconds);
        registry.register(
            "queue_wait_seconds",
            "Time that turns waited in a queue before they started",
            queue_wait.clone(),
        );
        let write_seconds = Histogram::new(WRITE_SECONDS);
        registry.register("store_write_seconds", "Time of a turn's write, until it is durable", write_seconds.clone());
        let writes = Family::<OutcomeLabels, Counter>::default();
        registry.register("store_writes", "Writes of turns by outcome", writes.clone());
        let turns_in_flight = Gauge::default();
        registry.register("turns_in_flight", "Turns that run in this process", turns_in_flight.clone());
        let queue_depth = Family::<QueueLabels, Gauge>::default();
        registry.register("queue_depth", "Turns that wait in a queue", queue_depth.clone());
        let breakers = Family::<BreakerLabels, Gauge>::default();
        registry.register(
            "upstream_breaker_open",
            "Whether an upstream's circuit breaker is open (1) or closed (0)",
            breakers.clone(),
        );
        let labels = vec![("version", build.version.clone()), ("commit", build.commit.clone())];
        registry.register("build", "The running program", Info::new(labels));
        registry.register_collector(Box::new(StoreCollector(store)));
        registry.register_collector(Box::new(RefusalCollector(refusals)));
        registry.register_collector(Box::new(MachineCollector { certificate, disk }));
        registry.register_collector(Box::new(TelemetryCollector(telemetry)));

        let of_queue = |queue: TurnQueue| queue_wait.get_or_create_owned(&QueueLabels { queue: queue.name() });
        let of_outcome = |outcome| writes.get_or_create_owned(&OutcomeLabels { outcome });
        let families = Arc::new(families);
        let (model, upstream, tenant) = (Arc::clone(&families), Arc::clone(&families), Arc::clone(&families));
        Arc::new(Self {
            request_seconds: Door::ALL
                .map(|door| request_seconds.get_or_create_owned(&DoorLabels { door: door.name() })),
            registry: all,
            requests,
            errors,
            classes: LabelValues::new(|class| class),
            streams_open,
            turns,
            models: LabelValues::new(move |label| model.of_model(label, &gen_ai)),
            upstreams: LabelValues::new(move |label| upstream.of_upstream(label)),
            tenants: LabelValues::new(move |label| tenant.of_tenant(label)),
            tools: LabelValues::new(move |label| families.of_tool(label)),
            queue_wait: [TurnQueue::Background, TurnQueue::Session, TurnQueue::Admission].map(of_queue),
            write_seconds,
            writes: [of_outcome("stored"), of_outcome("failed")],
            turns_in_flight,
            queue_depth,
            breakers,
        })
    }

    /// Counts a request that has ended.
    pub(crate) fn request_ended(&self, door: Door, status: u16, took: Duration) {
        self.requests.get_or_create(&RequestLabels { door: door.name(), status }).inc();
        self.request_seconds[door as usize].observe(took.as_secs_f64());
    }

    /// Counts a refused or failed request, or a failed turn.
    pub(crate) fn failed(&self, door: Door, class: &str) {
        let class = self.classes.of(class).as_ref().clone();
        self.errors.get_or_create(&ErrorLabels { door: door.name(), class }).inc();
    }

    /// A response has begun to stream.
    pub(crate) fn stream_opened(&self) {
        self.streams_open.inc();
    }

    /// A stream has ended.
    pub(crate) fn stream_closed(&self) {
        self.streams_open.dec();
    }

    /// Counts an ended turn with its calls.
    pub(crate) fn turn_ended(&self, summary: &TurnSummary) {
        let tenant = self.tenants.of(itoa(summary.tenant_id, &mut [0; 20]));
        let status = summary.status.name();
        let ended_well = matches!(summary.status, Status::Completed | Status::Incomplete);
        tenant.turns(ended_well).inc();
        let mut last = None;
        for (index, call) in summary.calls.iter().enumerate() {
            let provider = summary.spans.iter().find_map(|span| match &span.step {
                TurnStep::ModelCall { call, provider, .. } if *call == index => Some(*provider),
                _ => None,
            });
            let counted = self.count_call(call, &tenant);
            counted.0.gen_ai.count(call, provider);
            last = Some(counted);
        }
        // A turn that ended before a model was called has no model of an upstream.
        let (model, upstream) = last.unwrap_or_else(|| (self.models.of("none"), self.upstreams.of("none")));
        if let Some(ms) = summary.first_token_ms {
            upstream.first_token.observe(ms as f64 / 1000.0);
        }
        let (model, upstream) = (model.label.clone(), upstream.label.clone());
        let door = Door::from(summary.origin.wire).name();
        self.turns.get_or_create(&TurnLabels { door, model, upstream, status }).inc();
    }

    fn count_call(&self, call: &CallSummary, tenant: &TenantSeries) -> (Arc<ModelSeries>, Arc<UpstreamSeries>) {
        let (model, upstream) = (self.models.of(&call.model), self.upstreams.of(&call.upstream));
        upstream.requests(call.failed).inc();
        if call.retries > 0 {
            upstream.retries.inc_by(call.retries.into());
        }
        if let Some(usage) = &call.usage {
            model.tokens.add(usage);
            tenant.tokens.add(usage);
        }
        if let Some(cost) = call.cost {
            model.cost.inc_by(cost.usd());
            tenant.cost.inc_by(cost.usd());
        }
        (model, upstream)
    }

    /// Counts a finished call of a server-run tool.
    pub(crate) fn tool_ended(&self, tool: &str, failure: Option<&'static str>, took: Duration) {
        self.tools.of(tool).ended(failure.unwrap_or("ok"), took);
    }

    /// Counts a turn that has waited in a queue.
    pub(crate) fn waited(&self, queue: TurnQueue, took: Duration) {
        let [background, session, admission] = &self.queue_wait;
        let histogram = match queue {
            TurnQueue::Background => background,
            TurnQueue::Session => session,
            TurnQueue::Admission => admission,
        };
        histogram.observe(took.as_secs_f64());
    }

    /// Counts a write of a turn.
    pub(crate) fn written(&self, stored: bool, took: Duration) {
        let [ok, failed] = &self.writes;
        if stored {
            ok.inc()
        } else {
            failed.inc()
        };
        self.write_seconds.observe(took.as_secs_f64());
    }

    /// All metrics as text.
    pub(crate) fn render(&self, live: LiveState, format: ExpositionFormat) -> String {
        self.turns_in_flight.set(live.turns_in_flight as i64);
        for (queue, depth) in live.queued {
            let labels = QueueLabels { queue: queue.name() };
            match depth {
                Some(depth) => drop(self.queue_depth.get_or_create(&labels).set(depth as i64)),
                None => drop(self.queue_depth.remove(&labels)),
            }
        }
        // A reload may have removed upstreams.
        self.breakers.clear();
        for (upstream, open) in live.breakers {
            self.breakers.get_or_create(&BreakerLabels { upstream }).set(open.into());
        }
        let mut text = String::with_capacity(16 * 1024);
        // A String accepts every write.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        format.convert(text)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Metrics")
    }
}

/// A number as text without an allocation.
fn itoa(number: i64, buffer: &mut [u8; 20]) -> &str {
    use std::io::Write as _;
    let mut left: &mut [u8] = buffer;
    let _ = write!(left, "{number}");
    let unused = left.len();
    std::str::from_utf8(&buffer[..20 - unused]).unwrap_or_default()
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
