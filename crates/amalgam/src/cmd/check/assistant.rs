//! The effective assistant settings of one tenant, each with its origin.

use std::sync::Arc;

use amalgam_app::{TenantConfigs, assistant::with_default_model};
use amalgam_assistant::settings::{AgentSettings, Fact, KEY_VARIABLE, Origin};
use amalgam_core::{
    Operator, Seal, Store,
    store::{AgentProfile, Within},
};
use anyhow::Context as _;
use serde_json::{Value, json};

use super::{columns, value_as_text};
use crate::command_context::now_ms;
use crate::wire_up::{self, SystemClock};
use amalgam_configuration::Config;

/// The number of profiles that one read returns.
const PAGE: usize = 200;
/// The number of characters of a text that are shown.
const SHOWN: usize = 47;

/// A tenant's assistant.
pub(super) struct Assistant {
    tenant_id: i64,
    tenant: String,
    enabled: bool,
    /// Whether the installation's model is from `[assistant] model`.
    model_in_file: bool,
    facts: Vec<Fact>,
    profiles: Vec<AgentProfile>,
}

impl Assistant {
    /// Reads the assistant's settings from the store and the configuration.
    pub(super) async fn of(config: &Config, store: Option<Arc<dyn Store>>, tenant_id: i64) -> anyhow::Result<Self> {
        let store = store.context("the store cannot be opened, so tenants cannot be read")?;
        let operator = Operator::of_this_process();
        let tenant = store.tenant(operator, tenant_id).await?;
        let tenant = tenant.with_context(|| format!("there is no tenant {tenant_id}"))?;
        let within = Within::Named(operator, tenant_id);
        let configs = TenantConfigs { store: &*store, settings: &config.assistant, now_ms: now_ms() };
        let seal: Arc<dyn Seal> = Arc::new(wire_up::existing_sealer(config)?);
        let names = wire_up::names(config, &seal, &SystemClock)?;
        let resolved = with_default_model(&*names, configs.resolve(&configs.load(within).await?, None)).await;
        let facts = resolved.facts();
        let profiles = all_profiles(&*store, within).await?;
        let model_in_file = config.assistant_model.is_some() && config.assistant_model == config.assistant.model;
        Ok(Self { tenant_id, tenant: tenant.name, enabled: tenant.ai_agent_enabled, model_in_file, facts, profiles })
    }

    /// Three columns: setting, value, origin; then the profiles.
    pub(super) fn as_text(&self) -> String {
        let state = if self.enabled { "on" } else { "off" };
        let rows: Vec<[String; 3]> = self
            .facts
            .iter()
            .map(|fact| [fact.key.to_owned(), shown(&value(fact)), self.origin(fact)])
            .chain(self.profiles.iter().map(profile_row))
            .collect();
        format!("\nthe assistant of tenant {} ({}) is {state}\n{}", self.tenant_id, self.tenant, columns(&rows))
    }

    /// The origin of a value, named by the variable or key that users can change.
    fn origin(&self, fact: &Fact) -> String {
        match fact.origin {
            Origin::Settings if fact.key == "model" && self.model_in_file => "[assistant] model".to_owned(),
            Origin::Settings => {
                let variable = AgentSettings::KEYS.iter().find(|(known, _)| *known == fact.key);
                format!("variable {}", variable.map_or(KEY_VARIABLE, |(_, variable)| *variable))
            }
            other => other.name().to_owned(),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        let setting = |fact: &Fact| json!({"key": fact.key, "value": value(fact), "origin": fact.origin.name()});
        let profile = |profile: &AgentProfile| {
            json!({
                "slug": profile.slug,
                "active": profile.active,
                "version": profile.version,
                "model": profile.model,
                "tools": profile.tools,
            })
        };
        json!({
            "tenant_id": self.tenant_id,
            "ai_agent_enabled": self.enabled,
            "settings": self.facts.iter().map(setting).collect::<Vec<_>>(),
            "profiles": self.profiles.iter().map(profile).collect::<Vec<_>>(),
        })
    }
}

async fn all_profiles(store: &dyn Store, within: Within<'_>) -> anyhow::Result<Vec<AgentProfile>> {
    let mut profiles: Vec<AgentProfile> = Vec::new();
    loop {
        let after = profiles.last().map(|profile| profile.slug.clone());
        let page = store.profiles_within(within, after.as_deref(), PAGE).await?;
        let last = page.len() < PAGE;
        profiles.extend(page);
        if last {
            return Ok(profiles);
        }
    }
}

fn value(fact: &Fact) -> Value {
    serde_json::from_slice(fact.value.bytes()).unwrap_or_default()
}

/// A value on one line.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "(not set)".to_owned(),
        other => value_as_text(other),
    };
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", line.split_at(end).0),
        None => line,
    }
}

fn profile_row(profile: &AgentProfile) -> [String; 3] {
    let model = profile.model.as_deref().unwrap_or("the tenant's model");
    let tools = if profile.tools.is_empty() { "no tools".to_owned() } else { profile.tools.join(", ") };
    let state = if profile.active { "active" } else { "not active" };
    [format!("profile {}", profile.slug), format!("{model}; {tools}"), format!("version {}, {state}", profile.version)]
}
