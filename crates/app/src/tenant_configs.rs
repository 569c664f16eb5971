//! Reads and changes a tenant's assistant settings, for the HTTP API, the command line and seeding.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use amalgam_assistant::settings::{AgentSettings, EffectiveSettings, resolve};
use amalgam_core::{
    Actor, AuditAction, Fault, FaultKind, Operator, Seal, SecretText, Store, hex,
    store::{AgentConfig, AgentProfile, Within},
};
use amalgam_protocol::{Json, Raw};
use sha2::{Digest as _, Sha256};

/// The maximum number of attempts under concurrent changes. At least one of the competing changes succeeds per attempt.
const MAX_ATTEMPTS: usize = 200;

const CHANGE: AuditAction = AuditAction::new("config.change");

/// Access to the settings of tenants, with those of the installation as a fallback.
#[derive(Clone, Copy)]
pub struct TenantConfigs<'a> {
    /// Stores the settings.
    pub store: &'a dyn Store,
    /// The settings of the installation.
    pub settings: &'a AgentSettings,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// The settings of a tenant, as stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredConfig {
    /// The settings, without the upstream key.
    pub settings: AgentSettings,
    /// The upstream key, encrypted.
    pub api_key: Option<String>,
    /// Incremented with every change; 0 if nothing was ever set.
    pub revision: u64,
    /// Milliseconds since 1970.
    pub updated_at_ms: Option<u64>,
}

/// The settings of a tenant after a change, before they are stored.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigDraft {
    /// The settings, without the upstream key.
    pub settings: AgentSettings,
    /// The upstream key, encrypted.
    pub api_key: Option<String>,
}

impl ConfigDraft {
    /// The settings as the audit stores them: without secrets. The digest of the encrypted key shows whether the key
    /// has changed.
    fn shown(&self) -> String {
        let settings = self.settings.shown();
        let api_key = self.api_key.as_ref().map(|sealed| format!("*** {:.8}", hex(&Sha256::digest(sealed))));
        let shown = Json::object(|writer| {
            for (name, value) in settings.raw().fields() {
                writer.key_text(&name.decode()).raw(value);
            }
            match &api_key {
                Some(text) => writer.key_text("api_key").raw(Json::string(text).raw()),
                None => writer.key_text("api_key").raw(Raw::NULL),
            }
        });
        shown.raw().text().to_owned()
    }
}

impl TenantConfigs<'_> {
    /// The settings of a tenant.
    pub async fn load(&self, within: Within<'_>) -> Result<StoredConfig, Fault> {
        match self.store.agent_config_within(within).await? {
            None => Ok(StoredConfig::default()),
            Some(config) => StoredConfig::read(config),
        }
    }

    /// Applies `change`, stores the result and returns it with what `change` returned; none if the tenant does not exist. After
    /// a concurrent change, `change` is applied again to the new settings. A change without effect is not stored.
    pub async fn change<T>(
        &self,
        within: Within<'_>,
        actor: &Actor,
        change: impl Fn(&mut ConfigDraft) -> Result<T, Fault>,
    ) -> Result<Option<(StoredConfig, T)>, Fault> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.load(within).await?;
            let before = ConfigDraft { settings: stored.settings.clone(), api_key: stored.api_key.clone() };
            let mut draft = before.clone();
            let returned = change(&mut draft)?;
            if draft == before && stored.revision > 0 {
                return Ok(Some((stored, returned)));
            }
            let config = AgentConfig {
                values: draft.settings.values(),
                api_key: draft.api_key.clone(),
                revision: stored.revision + 1,
                updated_at_ms: self.now_ms,
            };
            let (revision, updated_at_ms) = (config.revision, Some(config.updated_at_ms));
            let audit = actor.change(self.now_ms, within.tenant_id(), CHANGE, within.tenant_id().to_string());
            let audit = audit.before((stored.revision > 0).then(|| before.shown())).after(Some(draft.shown()));
            if self.store.put_agent_config(within, config, audit).await? {
                let stored = StoredConfig { settings: draft.settings, api_key: draft.api_key, revision, updated_at_ms };
                return Ok(Some((stored, returned)));
            }
            if self.store.tenant(Operator::of_this_process(), within.tenant_id()).await?.is_none() {
                return Ok(None);
            }
        }
        Err(Fault::new(FaultKind::Conflict, "Too many others change these settings; try again."))
    }

    /// The effective settings with their origins. Of the tenant's key only its presence is known.
    pub fn resolve(&self, stored: &StoredConfig, profile: Option<&AgentProfile>) -> EffectiveSettings {
        let own = AgentSettings {
            api_key: stored.api_key.as_ref().map(|_| SecretText(String::new())),
            ..stored.settings.clone()
        };
        resolve(&AgentSettings::defaults(), self.settings, &own, profile)
    }
}

/// The settings of tenants as they were read last, so that a turn does not read the same values again.
#[derive(Debug, Clone, Default)]
pub struct ReadConfigs(Arc<Mutex<HashMap<i64, Arc<StoredConfig>>>>);

impl ReadConfigs {
    /// The settings of a tenant, from the record of the store.
    pub fn read(&self, tenant_id: i64, config: AgentConfig) -> Result<Arc<StoredConfig>, Fault> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let version = (config.revision, Some(config.updated_at_ms));
        if let Some(stored) = known.get(&tenant_id)
            && (stored.revision, stored.updated_at_ms) == version
        {
            return Ok(Arc::clone(stored));
        }
        let stored = Arc::new(StoredConfig::read(config)?);
        known.insert(tenant_id, Arc::clone(&stored));
        Ok(stored)
    }
}

impl StoredConfig {
    /// From the record of the store.
    pub fn read(config: AgentConfig) -> Result<Self, Fault> {
        let settings = AgentSettings::from_values(config.values.raw()).map_err(|faults| {
            let names: Vec<String> = faults.into_iter().map(|fault| fault.name).collect();
            Fault::internal(format_args!("a tenant's settings cannot be read: {}", names.join(", ")))
        })?;
        let AgentConfig { api_key, revision, updated_at_ms, .. } = config;
        Ok(Self { settings, api_key, revision, updated_at_ms: Some(updated_at_ms) })
    }

    /// The settings with the upstream key decrypted for `context`, the tenant's; none if it cannot be decrypted.
    pub fn with_opened_key(&self, seal: &dyn Seal, context: &str) -> Option<AgentSettings> {
        let mut settings = self.settings.clone();
        if let Some(sealed) = &self.api_key {
            let key = seal.open(context, sealed)?;
            settings.api_key = Some(SecretText(String::from_utf8(key).ok()?));
        }
        Some(settings)
    }
}
