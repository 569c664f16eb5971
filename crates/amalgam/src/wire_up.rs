//! Assembles the server: configuration, store, upstreams, sealing, egress, engine and HTTP.

mod live_parts;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use amalgam_administration::{
    keys::{Pepper, PepperError},
    reload::{ConfigurationRequest, ReloadRequests},
};
use amalgam_app::{
    Application, CurrentApplication, Limits, ReadConfigs,
    assistant::{AssistantSettings, SessionQueues},
    execute::ExecuteSettings,
    knowledge::Knowledge,
};
use amalgam_assistant::settings::KEY_VARIABLE;
use amalgam_configuration::{Config, ImageUrls, KeepTranscripts, KeySetLocation, McpConfig, McpTransport, Secret};
use amalgam_core::{
    Catalog, Clock, Embedder, EmbeddingUpstreams, Fetch, Retrieval, Seal, Store, ToolProvider, TurnObserver,
    store::{BankStore, ConsoleStore, CourseStore, KnowledgeStore, ProcessId, TenancyStore},
    turn::Caps,
};
use amalgam_engine::{
    Admission, AdmissionSettings, Engine, EngineSettings, HousekeepingSettings, QueueLimits, ToolLimits,
};
use amalgam_execute::{envelope::UncountedUsage, request::Bounds};
use amalgam_models::{Key, ModelNames, ModelNamesSettings, Proxies, UpstreamSettings};
use amalgam_oidc::{JwksLocation, OidcProvider};
use amalgam_server::{
    AllowedOrigins, App, Auth, AuthParts, BuildInfo, CurrentApp, JwtSettings, ListenerConfig, MetricSources, Metrics,
    RefusalMeter, RequestLog, RequestLogSettings, ServerParts, ServerTls, TrustedProxies,
};
use amalgam_store::{KeyRing, Sealer, backup::folder_of};
use amalgam_tools::{
    Allowed, CoursePorts, Egress, EgressConfig, KnowledgePorts, McpProcess, McpServer, McpSettings, OperatorServer,
    Ports, ToolRegistryParts, builtins,
};
use anyhow::Context as _;
use secrecy::ExposeSecret as _;
use tokio::sync::mpsc;
use tracing::error;

use crate::{
    cmd::version,
    identity_provider, machine,
    storage::{self, OpenStore, StorePurpose},
    telemetry::ProcessTelemetry,
    tenancy::{self, ConfiguredAccess, FirstKey, Tenancy},
};

pub(crate) use live_parts::{CurrentModels, LiveParts};

/// The assembled server.
pub(crate) struct AssembledServer {
    pub(crate) application: CurrentApplication,
    pub(crate) names: Arc<ModelNames>,
    pub(crate) engine: Engine,
    /// What a new configuration replaces.
    pub(crate) live: LiveParts,
    /// Callers that want the configuration to be reloaded.
    pub(crate) reload_callers: mpsc::Receiver<ConfigurationRequest>,
    /// Owns processes and sessions, which end with the server.
    pub(crate) tools: Arc<amalgam_tools::ToolRegistry>,
    /// The retention and other periodic work.
    pub(crate) housekeeping: HousekeepingSettings,
    /// The first key of a new store, to be shown once.
    pub(crate) first_key: Option<FirstKey>,
    /// Counts connections that the listeners refuse.
    pub(crate) refusals: RefusalMeter,
}

/// Builds the server from its configuration; `url` is that of its listener.
pub(crate) async fn assemble(
    config: &Config,
    url: &str,
    certificate: Option<&ServerTls>,
) -> anyhow::Result<AssembledServer> {
    let clock = clock();
    let seal: Arc<dyn Seal> = Arc::new(sealer(config)?);
    let OpenStore { store, alone, flushes, .. } =
        storage::open(&config.store, config.pool, StorePurpose::Serving).await?;
    let pepper = match Pepper::of(&*store, &*seal).await {
        Ok(pepper) => pepper,
        // A process without the master key can still serve requests that do not need it.
        Err(error @ PepperError::Sealed) => {
            error!("keys of the store are refused: {error}");
            Pepper::of_this_process()
        }
        Err(error) => return Err(error.into()),
    };
    let Tenancy { access: ConfiguredAccess { configured, open }, first_key } =
        tenancy::prepare(config, &*store, &pepper, &*clock).await?;

    let names = names(config, &seal, &*clock)?;
    let embedder = Arc::new(CurrentModels::new(Arc::clone(&names)));
    let knowledge = knowledge(&store, Arc::clone(&embedder) as Arc<dyn Embedder>, &clock);
    let tools = tool_registry(config, &store, &knowledge, &seal, &clock, url)?;
    let auth = Auth::new(AuthParts {
        store: Arc::clone(&store) as Arc<dyn TenancyStore>,
        sessions: Arc::clone(&store) as Arc<dyn ConsoleStore>,
        clock: Arc::clone(&clock),
        pepper,
        configured,
        open,
        jwt: config.jwt.as_ref().map(jwt).transpose()?,
        single_sign_on: config.oidc.is_some(),
        proxies: TrustedProxies::new(config.server.trusted_proxies.clone()),
        max_connections_per_key: config.server.max_connections_per_key,
    });
    let admission = Admission::new(admission_settings(config));
    let telemetry = ProcessTelemetry::new(config, Arc::clone(&clock))?;
    let refusals = RefusalMeter::default();
    let sources = MetricSources {
        store: flushes,
        telemetry: telemetry.meter.clone(),
        refusals: refusals.clone(),
        certificate: certificate.cloned(),
        disk: Some(disk_of_store(config)),
    };
    let log = request_log(config, sources, &telemetry, &*clock);
    let engine = engine(config, &admission, &clock, Arc::new(egress(config)), &store, &log);
    let (reload, reload_callers) = ReloadRequests::new();
    let application = Arc::new(Application {
        engine: engine.clone(),
        catalog: Arc::clone(&names) as Arc<dyn Catalog>,
        embeddings: Arc::clone(&names) as Arc<dyn EmbeddingUpstreams>,
        store,
        clock,
        seal,
        webhook_sender: Arc::new(egress(config)),
        toolbox: Arc::clone(&tools) as Arc<dyn ToolProvider>,
        knowledge,
        embedder: Arc::clone(&embedder) as Arc<dyn Embedder>,
        execute: execute(config),
        assistant: AssistantSettings { settings: config.assistant.clone(), public_url: public_url(config, url) },
        limits: limits(config),
        session_queues: SessionQueues::default(),
        read_configs: ReadConfigs::default(),
    });
    let app = App::new(ServerParts {
        app: Arc::clone(&application),
        auth: auth.clone(),
        origins: AllowedOrigins::new(config.server.allowed_origins.clone(), config.server.public_url.as_deref()),
        reload,
        log: Arc::clone(&log),
        oidc: oidc_provider(config, url)?.map(Arc::new),
    });
    let housekeeping = HousekeepingSettings {
        events: config.retention.events,
        transcripts: config.retention.transcripts,
        responses: config.retention.responses,
        alone,
    };
    let live = LiveParts { auth, admission, embedder, telemetry, log, server: CurrentApp::new(Arc::new(app)) };
    let application = CurrentApplication::new(application);
    Ok(AssembledServer { application, names, engine, live, reload_callers, tools, housekeeping, first_key, refusals })
}

fn execute(config: &Config) -> ExecuteSettings {
    let amalgam_configuration::ExecuteConfig { casing, unknown_fields, context_tokens, estimate_usage } =
        config.execute;
    let usual = ExecuteSettings::default();
    ExecuteSettings {
        casing,
        bounds: Bounds { unknown_fields, ..usual.bounds },
        context_tokens: context_tokens.into(),
        uncounted: match estimate_usage {
            true => UncountedUsage::Estimated,
            false => UncountedUsage::Zero,
        },
    }
}

/// How many turns run and wait.
pub(crate) fn admission_settings(config: &Config) -> AdmissionSettings {
    let amalgam_configuration::LimitsConfig {
        max_in_flight, max_in_flight_per_tenant, max_waiting, queue_wait, ..
    } = config.limits;
    let max_in_flight_per_tenant = max_in_flight_per_tenant.unwrap_or(max_in_flight);
    AdmissionSettings { max_in_flight, max_in_flight_per_tenant, max_waiting, queue_wait }
}

/// The maximum time before a stream's head is sent while no model has accepted.
const HEAD_AFTER: Duration = Duration::from_secs(1);

fn engine(
    config: &Config,
    admission: &Admission,
    clock: &Arc<dyn Clock>,
    fetch: Arc<dyn Fetch>,
    store: &Arc<dyn Store>,
    log: &Arc<RequestLog>,
) -> Engine {
    // A new id for each start: claims of an earlier run of this process do not belong to it.
    let process = ProcessId(rand::random());
    let settings = engine_settings(config);
    let observer = Arc::clone(log) as Arc<dyn TurnObserver>;
    Engine::new(settings, admission.clone(), Arc::clone(clock), fetch, Arc::clone(store), process, observer)
}

/// Limits and intervals of turns.
pub(crate) fn engine_settings(config: &Config) -> EngineSettings {
    let keeps_transcripts =
        config.retention.keep_transcripts != KeepTranscripts::None && !config.retention.transcripts.is_zero();
    EngineSettings {
        turn_deadline: config.limits.turn_deadline,
        keepalive: config.limits.keepalive,
        head_after: HEAD_AFTER,
        transcripts: keeps_transcripts.then_some(config.retention.transcripts),
        upload_bytes: usize::try_from(config.limits.media_bytes).unwrap_or(usize::MAX),
        tools: tool_limits(config),
        reserve_output_tokens: config.limits.reserve_output_tokens.into(),
    }
}

/// The lines of requests, and the metrics.
fn request_log(
    config: &Config,
    sources: MetricSources,
    telemetry: &ProcessTelemetry,
    clock: &dyn Clock,
) -> Arc<RequestLog> {
    let build = BuildInfo {
        version: version::VERSION.to_owned(),
        commit: version::COMMIT.unwrap_or_default().to_owned(),
        started_at_ms: clock.now_ms(),
    };
    let metrics = Metrics::new(&build, sources);
    Arc::new(RequestLog::new(metrics, telemetry.sink(), &request_lines(config)))
}

/// Which lines of requests are written.
pub(crate) fn request_lines(config: &Config) -> RequestLogSettings {
    RequestLogSettings { sample: config.log.sample, doors: config.log.doors.clone() }
}

/// A folder on the disk that fills: of the database file, or of the other data if the database is a server.
fn disk_of_store(config: &Config) -> PathBuf {
    match &config.store {
        amalgam_configuration::StoreUrl::Sqlite(path) => folder_of(path).to_owned(),
        amalgam_configuration::StoreUrl::Postgres(_) => config.data.clone(),
    }
}

fn tool_limits(config: &Config) -> ToolLimits {
    let limits = &config.limits;
    ToolLimits {
        caps: Caps {
            rounds: limits.tool_iterations,
            calls: limits.tool_calls,
            calls_at_once: limits.tool_calls_at_once,
            tokens: limits.turn_tokens.map(u64::from),
            // The rest of the time is for the model's final answer.
            time: limits.turn_deadline / 5 * 4,
            ..Caps::default()
        },
        parallel: limits.parallel_tools,
        output_bytes: usize::try_from(limits.tool_output_bytes).unwrap_or(usize::MAX),
        approval_deadline: limits.approval_deadline,
    }
}

/// All upstreams and their model names. Connects to nothing.
pub(crate) fn names(config: &Config, seal: &Arc<dyn Seal>, clock: &dyn Clock) -> anyhow::Result<Arc<ModelNames>> {
    let openai_key = match &config.assistant.api_key {
        Some(key) => Key::Given(key.0.clone().into()),
        None => Key::Missing { variable: KEY_VARIABLE.to_owned() },
    };
    let settings = ModelNamesSettings {
        upstreams: config.upstreams.iter().map(|named| upstream(named, &config.proxies)).collect(),
        has_upstreams: config.has_upstreams,
        models: config.models.clone(),
        openai: UpstreamSettings::openai(openai_key, &config.proxies),
        started_at: clock.now_ms() / 1000,
    };
    Ok(Arc::new(ModelNames::new(settings, Arc::clone(seal)).context("preparing the upstreams")?))
}

/// Searches the store, with embeddings of the configured upstreams.
pub(crate) fn knowledge(store: &Arc<dyn Store>, embedder: Arc<dyn Embedder>, clock: &Arc<dyn Clock>) -> Arc<Knowledge> {
    Arc::new(Knowledge::new(Arc::clone(store) as Arc<dyn KnowledgeStore>, embedder, Arc::clone(clock)))
}

/// All tools of this installation. Starts and connects nothing before a turn needs it.
pub(crate) fn tool_registry(
    config: &Config,
    store: &Arc<dyn Store>,
    knowledge: &Arc<Knowledge>,
    seal: &Arc<dyn Seal>,
    clock: &Arc<dyn Clock>,
    url: &str,
) -> anyhow::Result<Arc<amalgam_tools::ToolRegistry>> {
    let knowledge = KnowledgePorts {
        store: Arc::clone(store) as Arc<dyn KnowledgeStore>,
        retrieval: Arc::clone(knowledge) as Arc<dyn Retrieval>,
    };
    let servers: anyhow::Result<BTreeMap<_, _>> =
        config.mcp.iter().map(|mcp| Ok((mcp.name.clone(), operator_server(mcp)?))).collect();
    Ok(Arc::new(amalgam_tools::ToolRegistry::new(ToolRegistryParts {
        store: Arc::clone(store) as Arc<dyn BankStore>,
        seal: Arc::clone(seal),
        egress: Arc::new(egress(config)),
        builtins: builtins(&Ports {
            clock: Arc::clone(clock),
            courses: Some(CoursePorts {
                store: Arc::clone(store) as Arc<dyn CourseStore>,
                base_url: public_url(config, url),
            }),
            knowledge: Some(knowledge.clone()),
        }),
        knowledge: Some(knowledge),
        servers: servers?,
        clock: Arc::clone(clock),
    })))
}

/// The guarded HTTP client for addresses that callers and tenants name.
fn egress(config: &Config) -> Egress {
    Egress::new(EgressConfig { allow_private: config.egress.allow_private.clone(), ..EgressConfig::default() })
}

/// The guarded HTTP client for one address that the operator configured, which may be private.
pub(crate) fn egress_to(url: &str) -> anyhow::Result<Egress> {
    egress_to_and(url, Vec::new())
}

/// The same client, which may also reach these private targets.
pub(crate) fn egress_to_and(url: &str, mut allow_private: Vec<Allowed>) -> anyhow::Result<Egress> {
    let uri: http::Uri = url.parse().context("it is not valid")?;
    let host = uri.host().context("it has no host")?;
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 });
    allow_private.push(format!("{host}:{port}").parse()?);
    Ok(Egress::new(EgressConfig { allow_private, ..EgressConfig::default() }))
}

fn operator_server(mcp: &McpConfig) -> anyhow::Result<OperatorServer> {
    let tenants = mcp.tenants.clone();
    if let Some(variable) = mcp.missing() {
        return Ok(OperatorServer { server: Err(format!("the variable {variable} is not set")), tenants });
    }
    let (label, timeout) = (mcp.name.clone(), mcp.timeout);
    let known = |secret: &Secret| secret.value().cloned();
    let server = match &mcp.reached {
        McpTransport::Process { command, args, env } => {
            let env = env.iter().filter_map(|(name, value)| Some((name.clone(), known(value)?))).collect();
            McpServer::start(McpProcess { label, command: command.clone(), args: args.clone(), env, timeout })
        }
        McpTransport::Http { url, authorization } => {
            let authorization = authorization.as_ref().and_then(known);
            let egress = egress_to(url).with_context(|| format!("reading the address of the MCP server {label}"))?;
            let settings =
                McpSettings { label, url: url.clone(), authorization, headers: Vec::new(), tenant_id: None, timeout };
            McpServer::connect(settings, Arc::new(egress))
                .map_err(|fault| anyhow::anyhow!("MCP server {}: {}: {}", mcp.name, fault.field, fault.reason))?
        }
    };
    Ok(OperatorServer { server: Ok(server), tenants })
}

/// The sealer with the installation's master keys, which the first start creates.
pub(crate) fn sealer(config: &Config) -> anyhow::Result<Sealer> {
    match &config.secret_key {
        Some(keys) => Ok(Sealer::new(&KeyRing::from_text(keys.expose_secret()).context("reading AMALGAM_SECRET_KEY")?)),
        None => {
            let path = config.key_file();
            Sealer::following(&path).with_context(|| format!("opening the key in {}", path.display()))
        }
    }
}

/// The sealer for commands that only read: without a key file none is created, and a temporary key opens nothing.
pub(crate) fn existing_sealer(config: &Config) -> anyhow::Result<Sealer> {
    let path = config.key_file();
    match config.secret_key.is_some() || path.exists() {
        true => sealer(config),
        false => Ok(Sealer::new(&KeyRing::temporary())),
    }
}

fn jwt(jwt: &amalgam_configuration::JwtConfig) -> anyhow::Result<JwtSettings> {
    let jwks = match &jwt.jwks {
        None => None,
        Some(KeySetLocation::File(path)) => Some(JwksLocation::File(path.clone())),
        Some(KeySetLocation::Url(url)) => {
            let egress = egress_to(url).context("reading the address of the set of keys")?;
            Some(JwksLocation::Url { url: url.clone(), fetch: Arc::new(egress) })
        }
    };
    Ok(JwtSettings {
        secret: jwt.secret.clone(),
        jwks,
        tenant_claim: jwt.tenant_claim.clone(),
        issuer: jwt.issuer.clone(),
        audience: jwt.audience.clone(),
        max_lifetime: jwt.max_lifetime,
    })
}

/// The provider that signs users of the console in. Asks it nothing yet, so that the server starts without it.
fn oidc_provider(config: &Config, url: &str) -> anyhow::Result<Option<OidcProvider>> {
    let Some(oidc) = &config.oidc else { return Ok(None) };
    let private = config.egress.allow_private.clone();
    Ok(Some(OidcProvider::new(identity_provider::settings(oidc, &public_url(config, url), private)?)))
}

/// The limits of the listener.
pub(crate) fn listener(config: &Config, refusals: RefusalMeter) -> ListenerConfig {
    ListenerConfig {
        refusals,
        max_connections: config.server.max_connections,
        max_connections_per_address: config.server.max_connections_per_address,
        proxies: TrustedProxies::new(config.server.trusted_proxies.clone()),
        header_timeout: config.server.header_timeout,
        drain_timeout: config.server.drain_timeout,
        ..ListenerConfig::default()
    }
}

/// The limits of requests.
pub(crate) fn limits(config: &Config) -> Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let limits = &config.limits;
    Limits {
        body_bytes: bytes(limits.body_bytes),
        media_bytes: bytes(limits.media_bytes),
        body_pause: config.server.body_timeout,
        websocket_idle: config.server.websocket_idle_timeout,
        json_depth: limits.json_depth,
        input_items: limits.input_items,
        content_parts: limits.content_parts,
        tools: limits.tools,
        schema_nodes: limits.schema_nodes,
        string_bytes: bytes(limits.string_bytes),
        file_bytes: bytes(limits.file_bytes),
        files_bytes_per_tenant: limits.files_bytes_per_tenant,
        request_bytes_total: bytes(limits.request_bytes_total.unwrap_or_else(machine::request_bytes)),
        remembered_bytes: bytes(limits.remembered_bytes),
        queue: QueueLimits { of_tenant: limits.max_queued as u64, of_all: limits.max_queued_total as u64 },
    }
}

/// The server's public URL, without a trailing slash; by default that of the listener.
fn public_url(config: &Config, url: &str) -> String {
    config.server.public_url.clone().unwrap_or_else(|| url.to_owned())
}

/// An upstream's settings for the models crate.
fn upstream(upstream: &amalgam_configuration::UpstreamConfig, proxies: &Proxies) -> UpstreamSettings {
    let remote = upstream.remote.as_ref();
    let key = match remote.and_then(|remote| remote.api_key.as_ref()) {
        None => Key::None,
        Some(Secret::Known { value, .. }) => Key::Given(value.clone()),
        Some(Secret::Missing { name }) => Key::Missing { variable: name.clone() },
    };
    let second = Duration::from_secs(1);
    UpstreamSettings {
        name: upstream.name.clone(),
        kind: upstream.kind.clone(),
        base_url: remote.map(|remote| remote.base_url.clone()).unwrap_or_default(),
        proxy: remote.and_then(|remote| proxies.for_upstream(&remote.base_url)),
        key,
        headers: remote.map(known_headers).unwrap_or_default(),
        models: remote.map(|remote| remote.models.clone()).unwrap_or_default(),
        connect_timeout: remote.map_or(second, |remote| remote.connect_timeout),
        first_byte_timeout: remote.map_or(second, |remote| remote.first_byte_timeout),
        total_timeout: remote.and_then(|remote| remote.total_timeout),
        idle_timeout: remote.map_or(second, |remote| remote.idle_timeout),
        retries: remote.map_or(0, |remote| remote.retries),
        fetch_images: remote.is_some_and(|remote| remote.image_urls == ImageUrls::Fetch),
        history_recovery: remote.is_some_and(|remote| remote.history_recovery),
    }
}

/// The headers with a value; those of unset variables are left out, as `check` has warned.
fn known_headers(remote: &amalgam_configuration::Remote) -> Vec<(String, String)> {
    let known = |(name, secret): (&String, &Secret)| match secret {
        Secret::Known { value, .. } => Some((name.clone(), value.expose_secret().to_owned())),
        Secret::Missing { .. } => None,
    };
    remote.headers.iter().filter_map(known).collect()
}

/// The machine's clock, shared.
pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// The machine's clock.
pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the implementation of the clock")]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
