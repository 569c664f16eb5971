//! Merges the layers and reads every key into its field.

use std::path::{Path, PathBuf};
use std::time::Duration;

use amalgam_core::Price;
use amalgam_models::{ConfiguredModel, UpstreamKind};
use secrecy::{ExposeSecret as _, SecretString};

use super::fault::{ConfigFault, ConfigFaults, ValueOrigin};
use super::layers::{KeyPath, Layers, LocatedValue};
use super::reader::Reader;
use super::schema::Section;
use super::secret::Secret;
use super::sources::{Flags, Sources};
use super::value::DoorLevels;
use super::{
    Collector, Config, EgressTargets, ExecuteConfig, JwtConfig, KeySetLocation, Kind, LimitsConfig, LoadedConfig,
    LogConfig, McpConfig, McpTransport, Modality, NamedChoice as _, PoolConfig, Remote, RetentionConfig, ServerConfig,
    StoreUrl, TelemetryConfig, TenantConfig, TlsFiles, UpstreamConfig, assistant, checks, environment, file, oidc,
    proxy,
};

pub(crate) fn load(sources: &Sources) -> Result<LoadedConfig, ConfigFaults> {
    let mut layers = Layers::default();
    let mut faults = Vec::new();
    if let Some(file) = &sources.file
        && let Err(faults) = file::read(file, &mut layers, &mut faults)
    {
        ConfigFaults::none_of(faults)?;
    }
    let unknown = environment::read(&sources.env, &mut layers, &mut faults);
    put_flags(&sources.flags, &mut layers, &mut faults);
    add_demo(&mut layers);

    let mut reader = Reader::new(&layers, &sources.env, faults);
    let config = config(&mut reader, sources);
    checks::all(&config, &mut reader);
    for name in unknown.iter().filter(|name| !reader.pointed_to.contains(*name)) {
        reader.warnings.push(environment::unknown_warning(name, &layers));
    }
    let Reader { faults, warnings, settings, .. } = reader;
    ConfigFaults::none_of(faults)?;
    Ok(LoadedConfig { config, settings, warnings })
}

fn put_flags(flags: &Flags, layers: &mut Layers, faults: &mut Vec<ConfigFault>) {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_str().map(str::to_owned));
    let process = KeyPath::section(Section::Process);
    for (flag, at, key, text) in [
        ("--config", &process, "config", path(&flags.config)),
        ("--data", &process, "data", path(&flags.data)),
        ("--listen", &KeyPath::section(Section::Server), "listen", flags.listen.clone().map(Some)),
    ] {
        match text {
            Some(Some(text)) => layers.put(at, key, LocatedValue::plain(text, ValueOrigin::Flag(flag))),
            Some(None) => faults.push(ConfigFault::new(ValueOrigin::Flag(flag), "the path is not readable text")),
            None => {}
        }
    }
}

/// Adds the defaults if nothing is configured: one tenant and one model.
fn add_demo(layers: &mut Layers) {
    let mut put = |section: Section, key: &'static str, value: &str| {
        if layers.names(section).next().is_none() {
            let at = KeyPath::entry(section, "demo");
            layers.declare(&at, ValueOrigin::Default);
            layers.put(&at, key, LocatedValue::plain(value, ValueOrigin::Default));
        }
    };
    put(Section::Tenants, "id", "1");
    put(Section::Upstreams, "kind", Kind::Demo.name());
}

fn config(reader: &mut Reader<'_>, sources: &Sources) -> Config {
    let process = &KeyPath::section(Section::Process);
    let _: Option<String> = reader.optional(process, "config");
    let data: PathBuf = reader.value(process, "data");
    let log = log(reader);
    let metrics_listen = reader.optional(&KeyPath::section(Section::Metrics), "listen");
    let telemetry = telemetry(reader);
    let bootstrap_key = process_secret(reader, "bootstrap_key");
    let secret_key = process_secret(reader, "secret_key");
    let server = server(reader);
    let url = reader.optional(&KeyPath::section(Section::Store), "url");
    let store = url.unwrap_or_else(|| StoreUrl::in_folder(&data));
    let pool = pool(reader);
    let tenants: Vec<TenantConfig> = entries(reader, Section::Tenants, tenant);
    let jwt = jwt(reader);
    let oidc = oidc::read(reader);
    let upstreams: Vec<UpstreamConfig> = entries(reader, Section::Upstreams, upstream).into_iter().flatten().collect();
    let models: Vec<ConfiguredModel> = entries(reader, Section::Models, model);
    let upstreams = with_demo(upstreams, &models);
    let mcp = entries(reader, Section::Mcp, mcp).into_iter().flatten().collect();
    let assistant_model: Option<String> = reader.optional(&KeyPath::section(Section::Assistant), "model");
    let mut assistant = assistant::read(&sources.env, reader);
    assistant.model = assistant.model.or_else(|| assistant_model.clone());
    Config {
        file: sources.file.as_ref().map(|file| file.path.clone()),
        data,
        log,
        metrics_listen,
        telemetry,
        secret_key,
        bootstrap_key,
        server,
        store,
        pool,
        jwt,
        oidc,
        retention: retention(reader),
        tenants,
        upstreams,
        proxies: proxy::read(&sources.env, reader),
        models,
        mcp,
        execute: execute(reader),
        limits: limits(reader),
        egress: egress(reader),
        assistant,
        has_upstreams: is_declared(reader, Section::Upstreams),
        assistant_model,
        seed_demo: reader.value(&KeyPath::section(Section::Seed), "demo"),
    }
}

/// Whether the file or the environment configures entries of a section, besides the built-in one.
fn is_declared(reader: &Reader<'_>, section: Section) -> bool {
    let origins = reader.layers.names(section).map(|name| reader.layers.entry_origin(&KeyPath::entry(section, name)));
    origins.flatten().any(|origin| *origin != ValueOrigin::Default)
}

fn process_secret(reader: &mut Reader<'_>, name: &str) -> Option<SecretString> {
    let at = &KeyPath::section(Section::Process);
    let secret: Secret = reader.optional(at, name)?;
    if let Some(variable) = secret.missing() {
        reader.fault(reader.origin(at, name), format!("the variable {variable} is not set"));
    }
    secret.value().cloned()
}

fn log(reader: &mut Reader<'_>) -> LogConfig {
    let at = &KeyPath::section(Section::Log);
    LogConfig {
        filter: reader.value(at, "level"),
        format: reader.value(at, "format"),
        sample: reader.value(at, "sample"),
        doors: reader.value::<DoorLevels>(at, "doors").0,
    }
}

fn telemetry(reader: &mut Reader<'_>) -> TelemetryConfig {
    let at = &KeyPath::section(Section::Telemetry);
    let otlp = reader.optional::<String>(at, "otlp");
    let (headers, timeout) = (reader.value(at, "headers"), reader.value(at, "timeout"));
    if otlp.is_some() && !cfg!(feature = "otel") {
        reader.fault(reader.origin(at, "otlp"), "this binary was built without the feature `otel`");
    }
    TelemetryConfig {
        otlp: otlp.map(|url| Collector { url, headers, timeout }),
        service_name: reader.value(at, "service_name"),
        attributes: reader.value(at, "attributes"),
        sample: reader.value(at, "sample"),
        content: reader.value(at, "content"),
        interval: reader.value(at, "interval"),
        metrics_interval: reader.value(at, "metrics_interval"),
        queue: reader.value(at, "queue"),
    }
}

fn pool(reader: &mut Reader<'_>) -> PoolConfig {
    let at = &KeyPath::section(Section::Store);
    PoolConfig { connections: reader.value(at, "connections"), timeout: reader.value(at, "timeout") }
}

fn server(reader: &mut Reader<'_>) -> ServerConfig {
    let at = &KeyPath::section(Section::Server);
    ServerConfig {
        listen: reader.value(at, "listen"),
        admin_listen: reader.value(at, "admin_listen"),
        tls: tls(reader),
        public_url: reader.optional(at, "public_url"),
        allowed_origins: reader.value(at, "allowed_origins"),
        trusted_proxies: reader.value(at, "trusted_proxies"),
        max_connections: reader.value(at, "max_connections"),
        max_connections_per_address: reader.value(at, "max_connections_per_address"),
        max_connections_per_key: reader.value(at, "max_connections_per_key"),
        websocket_idle_timeout: reader.value(at, "websocket_idle_timeout"),
        header_timeout: reader.value(at, "header_timeout"),
        body_timeout: reader.value(at, "body_timeout"),
        drain_timeout: reader.value(at, "drain_timeout"),
    }
}

fn tls(reader: &mut Reader<'_>) -> Option<TlsFiles> {
    let at = &KeyPath::section(Section::Tls);
    let files = ["certificate", "key"].map(|name| reader.optional::<PathBuf>(at, name).map(|path| (name, path)));
    match files {
        [None, None] => None,
        [Some((name, certificate)), Some((_, key))] => Some(TlsFiles {
            certificate: beside_file(reader, at, name, certificate),
            key: beside_file(reader, at, "key", key),
        }),
        [Some((set, _)), None] | [None, Some((set, _))] => {
            let missing = if set == "key" { "certificate" } else { "key" };
            reader.fault(reader.origin(at, set), format!("{at} has a '{set}' and no '{missing}'; it needs both"));
            None
        }
    }
}

/// A path of the configuration file is relative to its folder.
fn beside_file(reader: &Reader<'_>, at: &KeyPath, name: &str, path: PathBuf) -> PathBuf {
    match reader.origin(at, name) {
        ValueOrigin::File { path: file, .. } => file.parent().unwrap_or(Path::new("")).join(path),
        _ => path,
    }
}

fn entries<T>(reader: &mut Reader<'_>, section: Section, read: fn(&mut Reader<'_>, &KeyPath, &str) -> T) -> Vec<T> {
    let names: Vec<&str> = reader.layers.names(section).collect();
    names.into_iter().map(|name| read(reader, &KeyPath::entry(section, name), name)).collect()
}

fn tenant(reader: &mut Reader<'_>, at: &KeyPath, name: &str) -> TenantConfig {
    check_entry_name(reader, at, name);
    let id = reader.value(at, "id");
    let state = reader.optional(at, "state");
    let declared = reader.layers.entry_origin(at).is_some_and(|origin| *origin != ValueOrigin::Default);
    let secrets: Vec<Secret> = reader.value(at, "keys");
    let mut keys = Vec::with_capacity(secrets.len());
    for (index, secret) in secrets.into_iter().enumerate() {
        match secret {
            Secret::Known { value, .. } => keys.push(value),
            // Starting without it would lock out the tenant's callers, or let every caller in.
            Secret::Missing { name } => reader.fault(
                reader.item_origin(at, "keys", index),
                format!("a key of {at} is in the variable {name}, which is not set"),
            ),
        }
    }
    TenantConfig { name: name.to_owned(), id, state, keys, declared }
}

fn jwt(reader: &mut Reader<'_>) -> Option<JwtConfig> {
    let at = &KeyPath::section(Section::Auth);
    let written: Option<Secret> = reader.optional(at, "jwt_secret");
    if let Some(variable) = written.as_ref().and_then(Secret::missing) {
        // Starting without it would lock out all callers that use it.
        reader.fault(reader.origin(at, "jwt_secret"), format!("the variable {variable} is not set"));
    }
    let secret = written.and_then(|secret| secret.value().cloned());
    if secret.as_ref().is_some_and(|secret| secret.expose_secret().len() < MIN_JWT_SECRET_BYTES) {
        let message =
            format!("the secret of tokens has {MIN_JWT_SECRET_BYTES} characters or more, so that it cannot be guessed");
        reader.fault(reader.origin(at, "jwt_secret"), message);
    }
    let jwks = reader.optional::<String>(at, "jwks").map(|text| match text.contains("://") {
        true => KeySetLocation::Url(text),
        // Relative to the configuration file, as with the files of secrets.
        false => KeySetLocation::File(beside_file(reader, at, "jwks", text.into())),
    });
    let tenant_claim = reader.value(at, "jwt_tenant_claim");
    let max_lifetime = reader.value(at, "jwt_max_lifetime");
    let [issuer, audience] = ["jwt_issuer", "jwt_audience"].map(|key| reader.optional::<String>(at, key));
    if secret.is_none() && jwks.is_none() {
        return None;
    }
    for (key, value) in [("jwt_issuer", &issuer), ("jwt_audience", &audience)] {
        if value.is_none() {
            let message = format!("{key} is not set: tokens need it; \"*\" accepts any");
            reader.fault(reader.origin(at, if jwks.is_some() { "jwks" } else { "jwt_secret" }), message);
        }
    }
    let [issuer, audience] = [issuer, audience].map(|value| value.filter(|value| value != ANY));
    Some(JwtConfig { secret, jwks, tenant_claim, issuer, audience, max_lifetime })
}

/// Disables the check of an issuer or an audience.
const ANY: &str = "*";

/// The size of the hash, which RFC 7518 requires.
const MIN_JWT_SECRET_BYTES: usize = 32;

fn upstream(reader: &mut Reader<'_>, at: &KeyPath, name: &str) -> Option<UpstreamConfig> {
    check_entry_name(reader, at, name);
    let kind: Kind = reader.optional(at, "kind")?;
    let misplaced = reader.layers.keys(at).filter(|(key, _)| !at.section.key(key).is_some_and(|key| key.fits(kind)));
    let misplaced: Vec<_> = misplaced.map(|(key, located)| (key, located.origin.clone())).collect();
    for (key, origin) in misplaced {
        let kinds = at.section.key(key).map(|key| key.kinds).unwrap_or_default();
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
        let message = format!("'{key}' is for upstreams of kind {}; {at} is of kind {}", kinds.join(", "), kind.name());
        reader.fault(origin, message);
    }
    let remote = (kind != Kind::Demo).then(|| remote(reader, at));
    let kind = match kind {
        Kind::Responses => UpstreamKind::Responses {
            dialect: reader.value(at, "dialect"),
            keeps_state: reader.value(at, "keeps_state"),
        },
        Kind::Chat => UpstreamKind::Chat {
            tool_calls: reader.value(at, "tool_calls"),
            system_role: reader.value(at, "system_role"),
            stream_usage: reader.value(at, "stream_usage"),
            replay_reasoning: reader.value(at, "replay_reasoning"),
        },
        Kind::Anthropic => UpstreamKind::Anthropic {
            version: reader.value(at, "anthropic_version"),
            max_output_tokens: u64::from(reader.value::<u32>(at, "max_output_tokens")),
            structured_output: reader.value(at, "structured_output"),
        },
        Kind::Demo => UpstreamKind::Demo { pace: reader.value(at, "pace") },
    };
    Some(UpstreamConfig { name: name.to_owned(), kind, remote })
}

/// Adds the built-in demo if a fallback names it.
fn with_demo(mut upstreams: Vec<UpstreamConfig>, models: &[ConfiguredModel]) -> Vec<UpstreamConfig> {
    let demo = Kind::Demo.name();
    let wanted = models.iter().any(|model| model.fallback.iter().any(|name| name == demo));
    let is_known = models.iter().any(|model| model.name == demo)
        || upstreams.iter().any(|upstream| match &upstream.remote {
            Some(remote) => upstream.name == demo || remote.models.iter().any(|name| name == demo),
            None => true,
        });
    if wanted && !is_known {
        upstreams.push(UpstreamConfig {
            name: demo.to_owned(),
            kind: UpstreamKind::Demo { pace: DEMO_PACE },
            remote: None,
        });
    }
    upstreams
}

/// The default pause between two words of the demo.
const DEMO_PACE: Duration = Duration::from_millis(20);

fn remote(reader: &mut Reader<'_>, at: &KeyPath) -> Remote {
    Remote {
        base_url: reader.value(at, "base_url"),
        api_key: reader.optional(at, "api_key"),
        headers: reader.value(at, "headers"),
        models: reader.value(at, "models"),
        connect_timeout: reader.value(at, "connect_timeout"),
        first_byte_timeout: reader.value(at, "first_byte_timeout"),
        total_timeout: reader.optional(at, "total_timeout"),
        idle_timeout: reader.value(at, "idle_timeout"),
        retries: reader.value(at, "retries"),
        image_urls: reader.value(at, "image_urls"),
        history_recovery: reader.value(at, "history_recovery"),
    }
}

fn model(reader: &mut Reader<'_>, at: &KeyPath, name: &str) -> ConfiguredModel {
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c.is_control()) {
        reader.fault(reader.origin(at, ""), format!("{at}: the name of a model has no spaces and is not empty"));
    }
    ConfiguredModel {
        name: name.to_owned(),
        upstream: reader.value(at, "upstream"),
        model: reader.optional(at, "model").unwrap_or_else(|| name.to_owned()),
        fallback: reader.value(at, "fallback"),
        context_window: reader.optional::<u32>(at, "context_window").map(u64::from),
        max_output_tokens: reader.optional::<u32>(at, "max_output_tokens").map(u64::from),
        price: price(reader, at),
        modalities: reader.value::<Vec<Modality>>(at, "modalities").into_iter().map(Modality::name).collect(),
        tools: reader.value(at, "tools"),
        structured_output: reader.value(at, "structured_output"),
    }
}

fn price(reader: &mut Reader<'_>, at: &KeyPath) -> Option<Price> {
    let mut rate = |key: &str| reader.optional::<f64>(at, key);
    let (input, output) = (rate("price.input"), rate("price.output"));
    let (cached_input, cache_write) = (rate("price.cached_input"), rate("price.cache_write"));
    let reasoning = rate("price.reasoning");
    match (input, output) {
        (Some(input), Some(output)) => Some(Price { input, cached_input, cache_write, output, reasoning }),
        (None, None) if cached_input.or(cache_write).or(reasoning).is_none() => None,
        (input, _) => {
            let key = if input.is_none() { "input" } else { "output" };
            reader.fault(reader.origin(at, "upstream"), format!("the price of {at} has no '{key}'"));
            None
        }
    }
}

fn mcp(reader: &mut Reader<'_>, at: &KeyPath, name: &str) -> Option<McpConfig> {
    check_entry_name(reader, at, name);
    let (command, url): (Option<String>, Option<String>) = (reader.optional(at, "command"), reader.optional(at, "url"));
    let timeout = reader.value(at, "timeout");
    let tenants = reader.optional(at, "tenants");
    let written = |key: &str| reader.layers.get(at, key).is_some();
    let (runs, is_remote) = (written("command"), written("url"));
    let of_the_other: &[&str] = match (runs, is_remote) {
        (true, false) => &["authorization"],
        (false, true) => &["args", "env"],
        _ => {
            let reason = if runs { "not both" } else { "and has neither" };
            reader.fault(reader.origin(at, "url"), format!("{at} has a 'command' or a 'url', {reason}"));
            return None;
        }
    };
    for key in of_the_other.iter().filter(|key| written(key)).collect::<Vec<_>>() {
        let home = if runs { "url" } else { "command" };
        reader.fault(reader.origin(at, key), format!("'{key}' of {at} goes with '{home}'"));
    }
    let reached = match runs {
        true => {
            McpTransport::Process { command: command?, args: reader.value(at, "args"), env: reader.value(at, "env") }
        }
        false => McpTransport::Http { url: url?, authorization: reader.optional(at, "authorization") },
    };
    Some(McpConfig { name: name.to_owned(), reached, timeout, tenants })
}

fn execute(reader: &mut Reader<'_>) -> ExecuteConfig {
    let at = &KeyPath::section(Section::Execute);
    ExecuteConfig {
        casing: reader.value(at, "casing"),
        unknown_fields: reader.value(at, "unknown_fields"),
        context_tokens: reader.value(at, "context_tokens"),
        estimate_usage: reader.value(at, "estimate_usage"),
    }
}

fn limits(reader: &mut Reader<'_>) -> LimitsConfig {
    let at = &KeyPath::section(Section::Limits);
    LimitsConfig {
        max_in_flight: reader.value(at, "max_in_flight"),
        max_in_flight_per_tenant: reader.optional(at, "max_in_flight_per_tenant"),
        max_waiting: reader.value(at, "max_waiting"),
        queue_wait: reader.value(at, "queue_wait"),
        reserve_output_tokens: reader.value(at, "reserve_output_tokens"),
        turn_deadline: reader.value(at, "turn_deadline"),
        keepalive: reader.value(at, "keepalive"),
        body_bytes: reader.value(at, "body_bytes"),
        media_bytes: reader.value(at, "media_bytes"),
        json_depth: reader.value(at, "json_depth"),
        input_items: reader.value(at, "input_items"),
        content_parts: reader.value(at, "content_parts"),
        tools: reader.value(at, "tools"),
        schema_nodes: reader.value(at, "schema_nodes"),
        string_bytes: reader.value(at, "string_bytes"),
        file_bytes: reader.value(at, "file_bytes"),
        files_bytes_per_tenant: reader.value(at, "files_bytes_per_tenant"),
        request_bytes_total: reader.optional(at, "request_bytes_total"),
        remembered_bytes: reader.value(at, "remembered_bytes"),
        max_queued: reader.value(at, "max_queued"),
        max_queued_total: reader.value(at, "max_queued_total"),
        tool_iterations: reader.value(at, "tool_iterations"),
        tool_calls: reader.value(at, "tool_calls"),
        tool_calls_at_once: reader.value(at, "tool_calls_at_once"),
        parallel_tools: reader.value(at, "parallel_tools"),
        tool_output_bytes: reader.value(at, "tool_output_bytes"),
        turn_tokens: reader.optional(at, "turn_tokens"),
        approval_deadline: reader.value(at, "approval_deadline"),
    }
}

fn retention(reader: &mut Reader<'_>) -> RetentionConfig {
    let at = &KeyPath::section(Section::Retention);
    RetentionConfig {
        responses: reader.optional(at, "responses"),
        events: reader.value(at, "events"),
        transcripts: reader.value(at, "transcripts"),
        keep_transcripts: reader.value(at, "keep_transcripts"),
    }
}

fn egress(reader: &mut Reader<'_>) -> EgressTargets {
    EgressTargets { allow_private: reader.value(&KeyPath::section(Section::Egress), "allow_private") }
}

/// Names of tenants and upstreams are in logs, metrics and `UPSTREAM/model`: they have only plain characters.
fn check_entry_name(reader: &mut Reader<'_>, at: &KeyPath, name: &str) {
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if name.is_empty() || name.len() > 64 || !plain {
        let message = format!("{at}: a name has up to 64 letters, digits, dots, dashes and underscores");
        reader.fault(reader.origin(at, ""), message);
    }
}
