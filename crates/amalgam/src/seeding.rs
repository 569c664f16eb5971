//! Seeds tenants with the default tools, profiles, settings and courses of the assistant. Idempotent.

use amalgam_app::TenantConfigs;
use amalgam_core::{
    Fault, Operator, Store, StoreError,
    assistant::{
        catalog::{PROFILES, ProfileSeed, TOOLS, ToolSeed, config_seed},
        settings::{AgentSettings, Fill},
    },
    store::{AgentProfile, BankOf, BankTool, Within},
};
use anyhow::{Context as _, bail};

use crate::config::Config;
use crate::courses::{self, Format};

/// The outcome of seeding one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Created,
    Updated,
    Unchanged,
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
        }
    }
}

/// Everything that a new installation's first tenant has.
pub(crate) async fn everything(store: &dyn Store, config: &Config, tenant_id: i64, now_ms: u64) -> anyhow::Result<()> {
    let gone = "the tenant vanished while it was set up";
    for seed in TOOLS {
        tool(store, seed, now_ms).await?;
    }
    for seed in PROFILES {
        profile(store, tenant_id, seed, now_ms).await?.context(gone)?;
    }
    let settings = config_values(config);
    settings_of(store, tenant_id, &settings, Fill::Empty, now_ms).await?.context(gone)?;
    let sample = courses::read(courses::SAMPLE.as_bytes(), Format::Json);
    if !sample.faults.is_empty() {
        bail!("the sample courses cannot be read");
    }
    let within = Within::Named(Operator::of_this_process(), tenant_id);
    store.put_courses(within, sample.courses, now_ms).await?.context(gone)?;
    Ok(())
}

/// Puts a tool into the common bank, in the place of the one of its name. One that is switched off stays off.
pub(crate) async fn tool(store: &dyn Store, seed: ToolSeed, now_ms: u64) -> Result<Outcome, StoreError> {
    let bank = BankOf::Common(Operator::of_this_process());
    let fresh = seed.bank_tool(now_ms);
    let Some(before) = store.tool(bank, seed.name).await? else {
        store.put_tool(bank, fresh).await?;
        return Ok(Outcome::Created);
    };
    let tool = BankTool {
        name: before.name.clone(),
        active: before.active,
        created_at_ms: before.created_at_ms,
        updated_at_ms: before.updated_at_ms,
        ..fresh
    };
    if tool == before {
        return Ok(Outcome::Unchanged);
    }
    // What is made from a tool is remembered by this moment, so that no two versions share one.
    let updated_at_ms = now_ms.max(before.updated_at_ms + 1);
    store.put_tool(bank, BankTool { updated_at_ms, ..tool }).await?;
    Ok(Outcome::Updated)
}

/// Gives a tenant a profile with its tools, in the place of the one of its slug; nothing when there is no such tenant. A model
/// or a tool that was chosen for it stays, and one that is switched off stays off.
pub(crate) async fn profile(
    store: &dyn Store,
    tenant_id: i64,
    seed: ProfileSeed,
    now_ms: u64,
) -> Result<Option<(Outcome, AgentProfile)>, StoreError> {
    let within = Within::Named(Operator::of_this_process(), tenant_id);
    let before = store.profile_versions(within, seed.slug, None, 1).await?.into_iter().next();
    let fresh = seed.profile(now_ms);
    let profile = match &before {
        Some(before) => AgentProfile {
            active: before.active,
            model: before.model.clone(),
            tool_choice: before.tool_choice.clone(),
            ..fresh
        },
        None => fresh,
    };
    let kept = store.put_profile(within, profile).await?;
    Ok(kept.map(|kept| {
        let outcome = match &before {
            None => Outcome::Created,
            Some(before) if before.version == kept.version => Outcome::Unchanged,
            Some(_) => Outcome::Updated,
        };
        (outcome, kept)
    }))
}

/// What tenants' settings are filled with. A model only where the installation's settings name one: otherwise the tenant
/// follows the installation's default, also when that changes.
pub(crate) fn config_values(config: &Config) -> AgentSettings {
    let values = config_seed(&AgentSettings::defaults(), &config.assistant);
    AgentSettings { model: config.assistant.model.clone(), ..values }
}

/// Fills a tenant's settings, never its key; the names of what is different now. Nothing when there is no such tenant.
pub(crate) async fn settings_of(
    store: &dyn Store,
    tenant_id: i64,
    values: &AgentSettings,
    fill: Fill,
    now_ms: u64,
) -> Result<Option<Vec<&'static str>>, Fault> {
    let nothing = AgentSettings::default();
    let configs = TenantConfigs { store, settings: &nothing, now_ms };
    let within = Within::Named(Operator::of_this_process(), tenant_id);
    let changed = configs.change(within, |draft| Ok(draft.settings.fill(values, fill))).await?;
    Ok(changed.map(|(_, names)| names))
}
