//! Joins everything: configuration, upstreams, sealing, the way out, engine and server.

use std::{path::Path, sync::Arc};

use amalgam_core::{Clock, Seal, TenantState};
use amalgam_engine::{Admission, Engine, EngineSettings};
use amalgam_models::{Dialect, Key, Registry, SystemRole, ToolCalls, UpstreamKind, UpstreamSettings};
use amalgam_server::{App, Auth, Limits, ListenerConfig, Tenant};
use amalgam_store::{MasterKey, Sealer};
use amalgam_tools::{Egress, EgressConfig};
use anyhow::Context as _;
use secrecy::ExposeSecret as _;

use crate::{
    catalog::Names,
    config::{self, Config, ImageUrls, Secret, Speaks, State},
};

/// The server, ready to listen, and the door that lets turns in.
pub(crate) struct Joined {
    pub(crate) app: Arc<App>,
    pub(crate) admission: Admission,
}

/// Builds the server from its configuration.
pub(crate) fn join(config: &Config) -> anyhow::Result<Joined> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let seal: Arc<dyn Seal> = Arc::new(Sealer::new(&master_key(config)?));
    let upstreams = config.upstreams.iter().map(upstream).collect();
    let registry = Registry::build(upstreams, seal).context("preparing the upstreams")?;
    let egress =
        Egress::new(EgressConfig { allow_private: config.egress.allow_private.clone(), ..EgressConfig::default() });
    let names = Names::new(config, Arc::new(registry), clock.now_ms() / 1000);
    let admission = Admission::new(config.limits.max_in_flight);
    let settings = EngineSettings { turn_deadline: config.limits.turn_deadline, keepalive: config.limits.keepalive };
    let engine = Engine::new(settings, admission.clone(), clock, Arc::new(egress));
    let tenants: Vec<Tenant> = config.tenants.iter().map(tenant).collect();
    let app = App::new(engine, Arc::new(names), Auth::new(&tenants), limits(config));
    Ok(Joined { app: Arc::new(app), admission })
}

/// How connections are taken.
pub(crate) fn listener(config: &Config) -> ListenerConfig {
    ListenerConfig {
        max_connections: config.server.max_connections,
        header_timeout: config.server.header_timeout,
        drain_timeout: config.server.drain_timeout,
        ..ListenerConfig::default()
    }
}

fn master_key(config: &Config) -> anyhow::Result<MasterKey> {
    match &config.secret_key {
        Some(value) => MasterKey::from_env_value(value.expose_secret()).context("reading AMALGAM_SECRET_KEY"),
        None => {
            let path = config.data.join("secret.key");
            MasterKey::load_or_create(&path).with_context(|| format!("opening the key in {}", shown(&path)))
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn tenant(tenant: &config::Tenant) -> Tenant {
    let state = match tenant.state {
        State::Stored => TenantState::Stored,
        State::Stateless => TenantState::Stateless,
    };
    Tenant { id: tenant.id, state, keys: tenant.keys.clone() }
}

fn limits(config: &Config) -> Limits {
    let bytes = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let limits = &config.limits;
    Limits {
        body_bytes: bytes(limits.body_bytes),
        media_bytes: bytes(limits.media_bytes),
        body_pause: config.server.body_timeout,
        json_depth: limits.json_depth,
        input_items: limits.input_items,
        tools: limits.tools,
        schema_nodes: limits.schema_nodes,
        string_bytes: bytes(limits.string_bytes),
    }
}

/// An upstream as the models crate wants it told.
pub(crate) fn upstream(upstream: &config::Upstream) -> UpstreamSettings {
    let kind = match &upstream.speaks {
        Speaks::Responses { dialect, .. } => UpstreamKind::Responses {
            dialect: match dialect {
                config::Dialect::Standard => Dialect::Standard,
                config::Dialect::Agn003 => Dialect::Agn003,
            },
        },
        Speaks::Chat { tool_calls, system_role, stream_usage, .. } => UpstreamKind::Chat {
            tool_calls: match tool_calls {
                config::ToolCalls::Native => ToolCalls::Native,
                config::ToolCalls::Constrained => ToolCalls::Constrained,
            },
            system_role: match system_role {
                config::SystemRole::System => SystemRole::System,
                config::SystemRole::Developer => SystemRole::Developer,
                config::SystemRole::User => SystemRole::User,
            },
            stream_usage: *stream_usage,
        },
        Speaks::Anthropic { anthropic_version, max_output_tokens, .. } => UpstreamKind::Anthropic {
            version: anthropic_version.clone(),
            max_output_tokens: u64::from(*max_output_tokens),
        },
        Speaks::Demo { pace } => UpstreamKind::Demo { pace: *pace },
    };
    let remote = upstream.remote();
    let key = match remote.and_then(|remote| remote.api_key.as_ref()) {
        None => Key::None,
        Some(Secret::Known { value, .. }) => Key::Given(value.clone()),
        Some(Secret::Missing { name }) => Key::Missing { variable: name.clone() },
    };
    let second = std::time::Duration::from_secs(1);
    UpstreamSettings {
        name: upstream.name.clone(),
        kind,
        base_url: remote.map(|remote| remote.base_url.clone()).unwrap_or_default(),
        key,
        headers: remote.map(known_headers).unwrap_or_default(),
        models: remote.map(|remote| remote.models.clone()).unwrap_or_default(),
        connect_timeout: remote.map_or(second, |remote| remote.connect_timeout),
        first_byte_timeout: remote.map_or(second, |remote| remote.first_byte_timeout),
        idle_timeout: remote.map_or(second, |remote| remote.idle_timeout),
        retries: remote.map_or(0, |remote| remote.retries),
        fetch_images: remote.is_some_and(|remote| remote.image_urls == ImageUrls::Fetch),
        history_recovery: remote.is_some_and(|remote| remote.history_recovery),
    }
}

/// Headers whose value is there; one that waits for a variable is left out, as `check` has warned.
fn known_headers(remote: &config::Remote) -> Vec<(String, String)> {
    let known = |(name, secret): (&String, &Secret)| match secret {
        Secret::Known { value, .. } => Some((name.clone(), value.expose_secret().to_owned())),
        Secret::Missing { .. } => None,
    };
    remote.headers.iter().filter_map(known).collect()
}

/// The machine's clock.
struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that everybody else is handed")]
    fn now_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}
