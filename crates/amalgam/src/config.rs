//! The configuration: typed, complete, checked as a whole before anything starts.
//!
//! Layers are flags over environment over file over defaults. `schema` defines the keys; `assemble` turns the
//! configured values into the types below; `checks` validates rules across keys. Only this part of the program reads
//! the environment.

mod assemble;
mod assistant;
mod changes;
mod checks;
mod choices;
mod environment;
mod fault;
mod file;
mod keys;
mod layers;
mod listen_address;
mod proxy;
mod reader;
mod schema;
mod secret;
mod sources;
mod store_url;
mod suggest;
mod units;
mod value;

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use amalgam_assistant::settings::AgentSettings as AssistantSettings;
use amalgam_core::{Door, Network, TenantState};
use amalgam_execute::{envelope::Casing, request::UnknownFields};
use amalgam_models::{ConfiguredModel, Proxies, UpstreamKind};
use amalgam_tools::Allowed;
use secrecy::SecretString;
use tracing::level_filters::LevelFilter;

pub(crate) use changes::changes;
pub(crate) use choices::{Choice, ImageUrls, KeepTranscripts, Kind, LogFormat, Modality};
pub(crate) use fault::{Fault, Faults, Origin};
pub(crate) use listen_address::ListenAddress;
pub(crate) use reader::{DisplayedValue, Setting};
pub(crate) use secret::Secret;
pub(crate) use sources::{Flags, Sources};
pub(crate) use store_url::StoreUrl;
pub(crate) use units::duration_from_text;

/// The complete configuration of a process.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// The file that was read.
    pub(crate) file: Option<PathBuf>,
    pub(crate) data: PathBuf,
    pub(crate) log: Log,
    /// The address of metrics that needs no key.
    pub(crate) metrics_listen: Option<ListenAddress>,
    pub(crate) telemetry: Telemetry,
    /// The key that seals values.
    pub(crate) secret_key: Option<SecretString>,
    /// A key with all rights, for the tenant with id 1.
    pub(crate) bootstrap_key: Option<SecretString>,
    pub(crate) server: Server,
    pub(crate) store: StoreUrl,
    pub(crate) pool: Pool,
    pub(crate) jwt: Option<Jwt>,
    pub(crate) retention: Retention,
    /// At least one.
    pub(crate) tenants: Vec<Tenant>,
    /// At least one; in the order of precedence for models that several serve.
    pub(crate) upstreams: Vec<Upstream>,
    /// The proxies between this machine and its upstreams.
    pub(crate) proxies: Proxies,
    pub(crate) models: Vec<ConfiguredModel>,
    pub(crate) mcp: Vec<Mcp>,
    pub(crate) execute: Execute,
    pub(crate) limits: Limits,
    pub(crate) egress: Egress,
    /// The settings of the assistants of all tenants.
    pub(crate) assistant: AssistantSettings,
    /// Whether upstreams are configured; if not, the built-in demo is used.
    pub(crate) has_upstreams: bool,
    /// `[assistant] model`. Also in `assistant`, unless `AI_AGENT_MODEL` is set.
    pub(crate) assistant_model: Option<String>,
    /// Whether tenant 1 of an empty store gets the sample assistant.
    pub(crate) seed_demo: bool,
}

/// A configuration with its warnings and displayed values.
#[derive(Debug)]
pub(crate) struct LoadedConfig {
    pub(crate) config: Config,
    /// Every effective value with its origin.
    pub(crate) settings: Vec<Setting>,
    /// Settings that work but are probably not intended.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Log {
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
    /// The share of successful requests that get a line.
    pub(crate) sample: f64,
    /// The lowest level of the lines of doors.
    pub(crate) doors: Vec<(Door, LevelFilter)>,
}

/// What is exported by OpenTelemetry's protocol.
#[derive(Debug, Clone)]
pub(crate) struct Telemetry {
    /// None: nothing is exported.
    pub(crate) otlp: Option<Collector>,
    pub(crate) service_name: String,
    /// Further attributes of the resource.
    pub(crate) attributes: BTreeMap<String, Secret>,
    /// The share of new traces that are exported.
    pub(crate) sample: f64,
    /// Whether spans of tool calls include arguments and results.
    pub(crate) content: bool,
    pub(crate) interval: Duration,
    pub(crate) metrics_interval: Duration,
    pub(crate) queue: usize,
}

/// A collector of telemetry.
#[derive(Debug, Clone)]
pub(crate) struct Collector {
    /// Without a trailing slash.
    pub(crate) url: String,
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) listen: ListenAddress,
    /// The address of the administration, if other machines can reach `listen`.
    pub(crate) admin_listen: ListenAddress,
    /// HTTPS on TCP listeners.
    pub(crate) tls: Option<TlsFiles>,
    /// The public URL, without a trailing slash. None: the listening address.
    pub(crate) public_url: Option<String>,
    /// Other origins whose web pages may call the server.
    pub(crate) allowed_origins: Vec<String>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_address: usize,
    pub(crate) max_connections_per_key: usize,
    pub(crate) websocket_idle_timeout: Duration,
    pub(crate) header_timeout: Duration,
    pub(crate) body_timeout: Duration,
    pub(crate) drain_timeout: Duration,
}

/// The files of the server's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// The connection pool of a database server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pool {
    pub(crate) connections: usize,
    /// The timeout of a statement.
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) name: String,
    pub(crate) id: i64,
    /// None: as stored.
    pub(crate) state: Option<TenantState>,
    pub(crate) keys: Vec<SecretString>,
    /// Whether it is configured, rather than the built-in default.
    pub(crate) declared: bool,
}

/// Which tokens are accepted; a secret, a set of keys, or both.
#[derive(Debug, Clone)]
pub(crate) struct Jwt {
    pub(crate) secret: Option<SecretString>,
    pub(crate) jwks: Option<KeySetLocation>,
    pub(crate) tenant_claim: String,
    /// None: any.
    pub(crate) issuer: Option<String>,
    /// None: any.
    pub(crate) audience: Option<String>,
    pub(crate) max_lifetime: Duration,
}

/// The location of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySetLocation {
    File(PathBuf),
    Url(String),
}

/// How long data is stored.
#[derive(Debug, Clone)]
pub(crate) struct Retention {
    /// None: without limit.
    pub(crate) responses: Option<Duration>,
    pub(crate) events: Duration,
    pub(crate) transcripts: Duration,
    pub(crate) keep_transcripts: KeepTranscripts,
}

#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) name: String,
    /// Its API, with the settings of its kind.
    pub(crate) kind: UpstreamKind,
    /// How it is reached; none for the built-in demo.
    pub(crate) remote: Option<Remote>,
}

/// An upstream that is reached over the network.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    /// `http` or `https`, host and path; no trailing slash, no query, no user.
    pub(crate) base_url: String,
    pub(crate) api_key: Option<Secret>,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, Secret>,
    /// Empty: the upstream's own list.
    pub(crate) models: Vec<String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) first_byte_timeout: Duration,
    /// None: the turn's deadline.
    pub(crate) total_timeout: Option<Duration>,
    pub(crate) idle_timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) image_urls: ImageUrls,
    pub(crate) history_recovery: bool,
}

/// An MCP server whose tools turns may use.
#[derive(Debug, Clone)]
pub(crate) struct Mcp {
    pub(crate) name: String,
    pub(crate) reached: McpTransport,
    pub(crate) timeout: Duration,
    /// None: all.
    pub(crate) tenants: Option<Vec<i64>>,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub(crate) enum McpTransport {
    Process { command: String, args: Vec<String>, env: BTreeMap<String, Secret> },
    Http { url: String, authorization: Option<Secret> },
}

/// The strict turn contract.
#[derive(Debug, Clone)]
pub(crate) struct Execute {
    pub(crate) casing: Casing,
    pub(crate) unknown_fields: UnknownFields,
    pub(crate) context_tokens: u32,
    pub(crate) estimate_usage: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) max_in_flight: usize,
    pub(crate) max_in_flight_per_tenant: Option<usize>,
    pub(crate) max_waiting: usize,
    pub(crate) queue_wait: Duration,
    pub(crate) reserve_output_tokens: u32,
    pub(crate) turn_deadline: Duration,
    pub(crate) keepalive: Duration,
    pub(crate) body_bytes: u64,
    pub(crate) media_bytes: u64,
    pub(crate) json_depth: usize,
    pub(crate) input_items: usize,
    pub(crate) content_parts: usize,
    pub(crate) tools: usize,
    pub(crate) schema_nodes: usize,
    pub(crate) string_bytes: u64,
    pub(crate) file_bytes: u64,
    pub(crate) files_bytes_per_tenant: u64,
    /// None: derived from the machine's memory.
    pub(crate) request_bytes_total: Option<u64>,
    pub(crate) remembered_bytes: u64,
    pub(crate) max_queued: usize,
    pub(crate) max_queued_total: usize,
    pub(crate) tool_iterations: u32,
    pub(crate) tool_calls: u32,
    pub(crate) tool_calls_at_once: u32,
    pub(crate) parallel_tools: usize,
    pub(crate) tool_output_bytes: u64,
    /// None: no limit.
    pub(crate) turn_tokens: Option<u32>,
    pub(crate) approval_deadline: Duration,
}

#[derive(Debug, Clone)]
pub(crate) struct Egress {
    pub(crate) allow_private: Vec<Allowed>,
}

impl Config {
    /// Merges the sources and checks the result; reports all faults at once.
    pub(crate) fn load(sources: &Sources) -> Result<LoadedConfig, Faults> {
        assemble::load(sources)
    }

    /// Whether callers need a key or a token. Without one only loopback is served, and every caller acts for the one
    /// tenant.
    pub(crate) fn needs_key(&self) -> bool {
        self.bootstrap_key.is_some() || self.jwt.is_some() || self.tenants.iter().any(|tenant| !tenant.keys.is_empty())
    }

    /// Whether only this machine can reach the server.
    pub(crate) fn is_local(&self) -> bool {
        self.server.listen.is_local()
    }

    /// The file with the master keys, unless the environment has them.
    pub(crate) fn key_file(&self) -> PathBuf {
        self.data.join("secret.key")
    }
}

impl Mcp {
    /// The unset variable that should hold a secret of the server; without it the server cannot run.
    pub(crate) fn missing(&self) -> Option<&str> {
        match &self.reached {
            McpTransport::Process { env, .. } => env.values().find_map(Secret::missing),
            McpTransport::Http { authorization, .. } => authorization.as_ref().and_then(Secret::missing),
        }
    }
}

impl Remote {
    pub(crate) fn encrypted(&self) -> bool {
        self.base_url.starts_with("https:")
    }
}
