//! Reads and changes what a tenant has set; over HTTP, from the command line, at the first start.

use amalgam_core::{
    Fault, FaultKind, Operator, Seal, SecretText, Store,
    assistant::settings::{Resolved, Settings, resolve},
    store::{AgentConfig, AgentProfile, Within},
};

/// How often a change is tried while others change the same. Each time at least one of them gets its way.
const TRIES: usize = 200;

/// The settings of tenants, and those of the installation behind them.
#[derive(Clone, Copy)]
pub struct TenantConfigs<'a> {
    /// Keeps them.
    pub store: &'a dyn Store,
    /// The installation's.
    pub settings: &'a Settings,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// What a tenant has set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredConfig {
    /// By name, without its key.
    pub settings: Settings,
    /// The key for its upstream, sealed.
    pub api_key: Option<String>,
    /// Grows with every change; 0 where nothing was ever set.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: Option<u64>,
}

/// What it is to become.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigDraft {
    /// By name, without its key.
    pub settings: Settings,
    /// The key for its upstream, sealed.
    pub api_key: Option<String>,
}

impl TenantConfigs<'_> {
    /// What a tenant has set.
    pub async fn kept(&self, within: Within<'_>) -> Result<StoredConfig, Fault> {
        match self.store.agent_config_within(within).await? {
            None => Ok(StoredConfig::default()),
            Some(config) => StoredConfig::read(config),
        }
    }

    /// Changes it, and gives what is kept then with what `change` gave; nothing when there is no such tenant. Whoever changes
    /// the same at the same time loses nothing: `change` is then asked again with what that one has set. A change that
    /// changes nothing is not written.
    pub async fn change<T>(
        &self,
        within: Within<'_>,
        change: impl Fn(&mut ConfigDraft) -> Result<T, Fault>,
    ) -> Result<Option<(StoredConfig, T)>, Fault> {
        for _ in 0..TRIES {
            let kept = self.kept(within).await?;
            let before = ConfigDraft { settings: kept.settings.clone(), api_key: kept.api_key.clone() };
            let mut draft = before.clone();
            let given = change(&mut draft)?;
            if draft == before && kept.revision > 0 {
                return Ok(Some((kept, given)));
            }
            let config = AgentConfig {
                values: draft.settings.values(),
                api_key: draft.api_key.clone(),
                revision: kept.revision + 1,
                updated_at_ms: self.now_ms,
            };
            let (revision, updated_at_ms) = (config.revision, Some(config.updated_at_ms));
            if self.store.put_agent_config(within, config).await? {
                let kept = StoredConfig { settings: draft.settings, api_key: draft.api_key, revision, updated_at_ms };
                return Ok(Some((kept, given)));
            }
            if self.store.tenant(Operator::of_this_process(), within.tenant_id()).await?.is_none() {
                return Ok(None);
            }
        }
        Err(Fault::new(FaultKind::Conflict, "Too many others change these settings; try again."))
    }

    /// What counts, with whose word it is. The tenant's key is only said to be there.
    pub fn resolve(&self, kept: &StoredConfig, profile: Option<&AgentProfile>) -> Resolved {
        let own =
            Settings { api_key: kept.api_key.as_ref().map(|_| SecretText(String::new())), ..kept.settings.clone() };
        resolve(&Settings::defaults(), self.settings, &own, profile)
    }
}

impl StoredConfig {
    /// What the store keeps.
    pub fn read(config: AgentConfig) -> Result<Self, Fault> {
        let settings = Settings::from_values(config.values.raw()).map_err(|faults| {
            let names: Vec<String> = faults.into_iter().map(|fault| fault.name).collect();
            Fault::internal(format_args!("a tenant's settings cannot be read: {}", names.join(", ")))
        })?;
        let AgentConfig { api_key, revision, updated_at_ms, .. } = config;
        Ok(Self { settings, api_key, revision, updated_at_ms: Some(updated_at_ms) })
    }

    /// The settings with the key opened, which is sealed for `context`, the tenant's; nothing when that cannot be done.
    pub fn opened(&self, seal: &dyn Seal, context: &str) -> Option<Settings> {
        let mut settings = self.settings.clone();
        if let Some(sealed) = &self.api_key {
            let key = seal.open(context, sealed)?;
            settings.api_key = Some(SecretText(String::from_utf8(key).ok()?));
        }
        Some(settings)
    }
}
