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
mod log_filter;
mod oidc;
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

pub use changes::changes;
pub use choices::{ImageUrls, KeepTranscripts, Kind, LogFormat, Modality, NamedChoice};
pub use fault::{ConfigFault, ConfigFaults, ValueOrigin};
pub use listen_address::ListenAddress;
pub use oidc::OidcConfig;
pub use reader::{DisplayedValue, Setting};
pub use secret::{Secret, SecretFrom};
pub use sources::{Flags, Sources};
pub use store_url::StoreUrl;

/// The complete configuration of a process.
#[derive(Debug, Clone)]
pub struct Config {
    /// The file that was read.
    pub file: Option<PathBuf>,
    /// The folder of the database, the keys and uploaded files.
    pub data: PathBuf,
    /// Which lines are logged, and how.
    pub log: LogConfig,
    /// The address of metrics that needs no key.
    pub metrics_listen: Option<ListenAddress>,
    /// What is exported to a collector.
    pub telemetry: TelemetryConfig,
    /// The key that seals values.
    pub secret_key: Option<SecretString>,
    /// A key with all rights, for the tenant with id 1.
    pub bootstrap_key: Option<SecretString>,
    /// How the server is reached.
    pub server: ServerConfig,
    /// The database.
    pub store: StoreUrl,
    /// The connections to a database server.
    pub pool: PoolConfig,
    /// Which tokens of callers are accepted; none if only keys are.
    pub jwt: Option<JwtConfig>,
    /// The provider that signs users of the console in.
    pub oidc: Option<OidcConfig>,
    /// How long data is stored.
    pub retention: RetentionConfig,
    /// At least one.
    pub tenants: Vec<TenantConfig>,
    /// At least one; in the order of precedence for models that several serve.
    pub upstreams: Vec<UpstreamConfig>,
    /// The proxies between this machine and its upstreams.
    pub proxies: Proxies,
    /// The names that callers may ask for.
    pub models: Vec<ConfiguredModel>,
    /// The MCP servers of the operator.
    pub mcp: Vec<McpConfig>,
    /// The settings of the strict contract.
    pub execute: ExecuteConfig,
    /// The limits of requests and turns.
    pub limits: LimitsConfig,
    /// Which private addresses may be called.
    pub egress: EgressTargets,
    /// The settings of the assistants of all tenants.
    pub assistant: AssistantSettings,
    /// Whether upstreams are configured; if not, the built-in demo is used.
    pub has_upstreams: bool,
    /// `[assistant] model`. Also in `assistant`, unless `AI_AGENT_MODEL` is set.
    pub assistant_model: Option<String>,
    /// Whether tenant 1 of an empty store gets the sample assistant.
    pub seed_demo: bool,
}

/// A configuration with its warnings and displayed values.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The configuration itself.
    pub config: Config,
    /// Every effective value with its origin.
    pub settings: Vec<Setting>,
    /// Settings that work but are probably not intended.
    pub warnings: Vec<String>,
}

/// Which lines are logged, and how.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// The directives of the log filter.
    pub filter: String,
    /// Text or JSON.
    pub format: LogFormat,
    /// The share of successful requests that get a line.
    pub sample: f64,
    /// The lowest level of the lines of doors.
    pub doors: Vec<(Door, LevelFilter)>,
}

/// What is exported by OpenTelemetry's protocol.
#[derive(Debug, Clone)]
pub struct TelemetryConfig {
    /// None: nothing is exported.
    pub otlp: Option<Collector>,
    /// The name of the service in exported telemetry.
    pub service_name: String,
    /// Further attributes of the resource.
    pub attributes: BTreeMap<String, Secret>,
    /// The share of new traces that are exported.
    pub sample: f64,
    /// Whether spans of tool calls include arguments and results.
    pub content: bool,
    /// The longest time until traces are exported.
    pub interval: Duration,
    /// The time between two exports of the metrics.
    pub metrics_interval: Duration,
    /// The maximum number of requests and turns that wait for an export.
    pub queue: usize,
}

/// A collector of telemetry.
#[derive(Debug, Clone)]
pub struct Collector {
    /// Without a trailing slash.
    pub url: String,
    /// Headers of each export.
    pub headers: BTreeMap<String, Secret>,
    /// The time for one request.
    pub timeout: Duration,
}

/// How the server is reached, and what its connections may cost.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The address of the server.
    pub listen: ListenAddress,
    /// The address of the administration, if other machines can reach `listen`.
    pub admin_listen: ListenAddress,
    /// HTTPS on TCP listeners.
    pub tls: Option<TlsFiles>,
    /// The public URL, without a trailing slash. None: the listening address.
    pub public_url: Option<String>,
    /// Other origins whose web pages may call the server.
    pub allowed_origins: Vec<String>,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: Vec<Network>,
    /// The maximum number of connections.
    pub max_connections: usize,
    /// The maximum number of connections from one address.
    pub max_connections_per_address: usize,
    /// The maximum number of connections that use one key.
    pub max_connections_per_key: usize,
    /// How long a WebSocket may be silent.
    pub websocket_idle_timeout: Duration,
    /// The time for the head of a request.
    pub header_timeout: Duration,
    /// The time for the body of a request.
    pub body_timeout: Duration,
    /// The time that running requests have when the server stops.
    pub drain_timeout: Duration,
}

/// The files of the server's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, PEM.
    pub certificate: PathBuf,
    /// The private key, PEM.
    pub key: PathBuf,
}

/// The connection pool of a database server.
#[derive(Debug, Clone, Copy)]
pub struct PoolConfig {
    /// The maximum number of connections.
    pub connections: usize,
    /// The timeout of a statement.
    pub timeout: Duration,
}

/// A tenant with keys in the configuration file.
#[derive(Debug, Clone)]
pub struct TenantConfig {
    /// The name in the configuration file.
    pub name: String,
    /// The number of the tenant in the store.
    pub id: i64,
    /// None: as stored.
    pub state: Option<TenantState>,
    /// The keys of its callers.
    pub keys: Vec<SecretString>,
    /// Whether it is configured, rather than the built-in default.
    pub declared: bool,
}

/// Which tokens are accepted; a secret, a set of keys, or both.
#[derive(Debug, Clone)]
pub struct JwtConfig {
    /// The shared secret of HS256.
    pub secret: Option<SecretString>,
    /// The public keys of the issuer.
    pub jwks: Option<KeySetLocation>,
    /// The claim with the number of the tenant.
    pub tenant_claim: String,
    /// None: any.
    pub issuer: Option<String>,
    /// None: any.
    pub audience: Option<String>,
    /// The longest lifetime of a token.
    pub max_lifetime: Duration,
}

/// The location of an issuer's keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySetLocation {
    /// A file with a set of keys.
    File(PathBuf),
    /// An address that serves a set of keys.
    Url(String),
}

/// How long data is stored.
#[derive(Debug, Clone)]
pub struct RetentionConfig {
    /// None: without limit.
    pub responses: Option<Duration>,
    /// For stored stream events.
    pub events: Duration,
    /// For exact model calls.
    pub transcripts: Duration,
    /// Which model calls are stored.
    pub keep_transcripts: KeepTranscripts,
}

/// A server that provides models.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// The name in the configuration file.
    pub name: String,
    /// Its API, with the settings of its kind.
    pub kind: UpstreamKind,
    /// How it is reached; none for the built-in demo.
    pub remote: Option<Remote>,
}

/// An upstream that is reached over the network.
#[derive(Debug, Clone)]
pub struct Remote {
    /// `http` or `https`, host and path; no trailing slash, no query, no user.
    pub base_url: String,
    /// The key for the upstream.
    pub api_key: Option<Secret>,
    /// Names in lower case.
    pub headers: BTreeMap<String, Secret>,
    /// Empty: the upstream's own list.
    pub models: Vec<String>,
    /// The time for a connection.
    pub connect_timeout: Duration,
    /// The time until the first byte of an answer.
    pub first_byte_timeout: Duration,
    /// None: the turn's deadline.
    pub total_timeout: Option<Duration>,
    /// The longest pause within an answer.
    pub idle_timeout: Duration,
    /// How often a failed call is repeated.
    pub retries: u32,
    /// Whether images are fetched here or by the upstream.
    pub image_urls: ImageUrls,
    /// Whether a history that the upstream refuses is sent again as text.
    pub history_recovery: bool,
}

/// An MCP server whose tools turns may use.
#[derive(Debug, Clone)]
pub struct McpConfig {
    /// The name in the configuration file.
    pub name: String,
    /// How the server is reached.
    pub reached: McpTransport,
    /// The time for one request.
    pub timeout: Duration,
    /// None: all.
    pub tenants: Option<Vec<i64>>,
}

/// How an MCP server is reached.
#[derive(Debug, Clone)]
pub enum McpTransport {
    /// A child process that speaks over its standard streams.
    Process {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables beside the inherited ones.
        env: BTreeMap<String, Secret>,
    },
    /// A server over HTTP.
    Http {
        /// Its address.
        url: String,
        /// The value of the header `authorization`.
        authorization: Option<Secret>,
    },
}

/// The strict turn contract.
#[derive(Debug, Clone)]
pub struct ExecuteConfig {
    /// The casing of field names in answers.
    pub casing: Casing,
    /// Whether unknown fields of a request are refused.
    pub unknown_fields: UnknownFields,
    /// The maximum number of tokens of a turn's context.
    pub context_tokens: u32,
    /// Whether usage is estimated where the upstream does not report it.
    pub estimate_usage: bool,
}

/// The limits of requests, turns and what they store.
#[derive(Debug, Clone)]
pub struct LimitsConfig {
    /// The maximum number of turns that run at once.
    pub max_in_flight: usize,
    /// The same for one tenant.
    pub max_in_flight_per_tenant: Option<usize>,
    /// The maximum number of turns that wait for a slot.
    pub max_waiting: usize,
    /// How long a turn waits for a slot.
    pub queue_wait: Duration,
    /// The output tokens that are reserved for a call without a maximum.
    pub reserve_output_tokens: u32,
    /// The longest duration of a turn.
    pub turn_deadline: Duration,
    /// The silence after which a stream gets a keepalive event.
    pub keepalive: Duration,
    /// The maximum size of a body without media.
    pub body_bytes: u64,
    /// The maximum size of the media in a body.
    pub media_bytes: u64,
    /// The maximum depth of JSON.
    pub json_depth: usize,
    /// The maximum number of input items.
    pub input_items: usize,
    /// The maximum number of content parts.
    pub content_parts: usize,
    /// The maximum number of tools.
    pub tools: usize,
    /// The maximum number of nodes of a JSON Schema.
    pub schema_nodes: usize,
    /// The maximum length of a text.
    pub string_bytes: u64,
    /// The maximum size of an uploaded file.
    pub file_bytes: u64,
    /// The maximum size of all files of a tenant.
    pub files_bytes_per_tenant: u64,
    /// None: derived from the machine's memory.
    pub request_bytes_total: Option<u64>,
    /// The maximum size of what connections remember of unstored responses.
    pub remembered_bytes: u64,
    /// The maximum number of background turns of a tenant that wait.
    pub max_queued: usize,
    /// The maximum number of background turns that wait.
    pub max_queued_total: usize,
    /// The maximum number of tool rounds of a turn.
    pub tool_iterations: u32,
    /// The maximum number of server-run calls of a turn.
    pub tool_calls: u32,
    /// The maximum number of calls in one answer of a model.
    pub tool_calls_at_once: u32,
    /// The maximum number of calls that run at once in this process.
    pub parallel_tools: usize,
    /// The maximum size of the output of a call.
    pub tool_output_bytes: u64,
    /// None: no limit.
    pub turn_tokens: Option<u32>,
    /// How long a call waits for its approval.
    pub approval_deadline: Duration,
}

/// The guarded way to addresses that callers name.
#[derive(Debug, Clone)]
pub struct EgressTargets {
    /// Private targets that tools, images and webhooks may reach.
    pub allow_private: Vec<Allowed>,
}

impl Config {
    /// Merges the sources and checks the result; reports all faults at once.
    pub fn load(sources: &Sources) -> Result<LoadedConfig, ConfigFaults> {
        assemble::load(sources)
    }

    /// Whether callers need a key or a token. Without one only loopback is served, and every caller acts for the one
    /// tenant.
    pub fn needs_key(&self) -> bool {
        self.bootstrap_key.is_some() || self.jwt.is_some() || self.tenants.iter().any(|tenant| !tenant.keys.is_empty())
    }

    /// Whether only this machine can reach the server.
    pub fn is_local(&self) -> bool {
        self.server.listen.is_local()
    }

    /// The file with the master keys, unless the environment has them.
    pub fn key_file(&self) -> PathBuf {
        self.data.join("secret.key")
    }
}

impl McpConfig {
    /// The unset variable that should hold a secret of the server; without it the server cannot run.
    pub fn missing(&self) -> Option<&str> {
        match &self.reached {
            McpTransport::Process { env, .. } => env.values().find_map(Secret::missing),
            McpTransport::Http { authorization, .. } => authorization.as_ref().and_then(Secret::missing),
        }
    }
}

impl Remote {
    /// Whether the connection is encrypted.
    pub fn encrypted(&self) -> bool {
        self.base_url.starts_with("https:")
    }
}
