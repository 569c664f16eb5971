//! Seeds tenants with the default tools, profiles, settings and courses of the assistant. Idempotent.

use amalgam_app::TenantConfigs;
use amalgam_assistant::{
    catalog::{PROFILES, ProfileSeed, TOOLS, ToolSeed},
    courses::{self, CourseFormat},
    settings::{AgentSettings, Fill},
};
use amalgam_core::{
    AuditAction, Fault, INSTALLATION, Operator, StoreError,
    store::{AgentProfile, BankOf, BankTool, Within},
};

use serde_json::json;

use super::{Administration, access::no_tenant, audit::snapshot, profiles, tool_bank};

/// Courses were imported into a tenant's catalogue.
pub const IMPORT_COURSES: AuditAction = AuditAction::new("courses.import");

/// The outcome of seeding one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedOutcome {
    /// It did not exist.
    Created,
    /// It was different.
    Updated,
    /// It existed already.
    Unchanged,
}

impl SeedOutcome {
    /// As commands print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Unchanged => "unchanged",
        }
    }
}

impl Administration<'_> {
    /// Seeds a tenant with everything that its assistant needs, and with the sample courses.
    pub async fn seed(&self, tenant_id: i64, settings: &AgentSettings) -> Result<(), Fault> {
        for seed in TOOLS {
            self.seed_tool(seed).await?;
        }
        for seed in PROFILES {
            self.seed_profile(tenant_id, seed).await?;
        }
        self.fill_settings(tenant_id, settings, Fill::Empty).await?;
        // A test checks that every row of the sample is valid.
        let sample = courses::read(courses::SAMPLE.as_bytes(), CourseFormat::Json);
        let within = Within::Named(Operator::of_this_process(), tenant_id);
        self.announce(tenant_id, IMPORT_COURSES, "sample", &json!({"courses": sample.courses.len()})).await?;
        self.store.put_courses(within, sample.courses, self.now_ms).await?.ok_or_else(|| no_tenant(tenant_id))?;
        Ok(())
    }

    /// Adds a tool to the common bank, or replaces the tool with the same name. An inactive tool stays inactive.
    pub async fn seed_tool(&self, seed: ToolSeed) -> Result<SeedOutcome, StoreError> {
        let bank = BankOf::Common(Operator::of_this_process());
        let fresh = seed.bank_tool(self.now_ms);
        let Some(before) = self.store.tool(bank, seed.name).await? else {
            let audit = self.change(INSTALLATION, tool_bank::PUT, seed.name).after(shown(&fresh));
            self.store.put_tool(bank, fresh, audit).await?;
            return Ok(SeedOutcome::Created);
        };
        let tool = BankTool {
            name: before.name.clone(),
            active: before.active,
            created_at_ms: before.created_at_ms,
            updated_at_ms: before.updated_at_ms,
            ..fresh
        };
        if tool == before {
            return Ok(SeedOutcome::Unchanged);
        }
        // The cache key contains this time, so that no two versions may share one.
        let updated_at_ms = self.now_ms.max(before.updated_at_ms + 1);
        let tool = BankTool { updated_at_ms, ..tool };
        let audit = self.change(INSTALLATION, tool_bank::PUT, seed.name).before(shown(&before)).after(shown(&tool));
        self.store.put_tool(bank, tool, audit).await?;
        Ok(SeedOutcome::Updated)
    }

    /// Adds a profile with its tools to a tenant, or replaces the profile with the same slug. The model and the tool
    /// choice of the existing profile stay, and an inactive profile stays inactive.
    pub async fn seed_profile(&self, tenant_id: i64, seed: ProfileSeed) -> Result<(SeedOutcome, AgentProfile), Fault> {
        let within = Within::Named(Operator::of_this_process(), tenant_id);
        let before = self.store.profile_versions(within, seed.slug, None, 1).await?.into_iter().next();
        let mut profile = seed.profile(self.now_ms);
        if let Some(before) = &before {
            profile.active = before.active;
            (profile.model, profile.tool_choice) = (before.model.clone(), before.tool_choice.clone());
        }
        let audit = self.change(tenant_id, profiles::PUT, seed.slug);
        let audit = audit.before(before.as_ref().map(profiles::shown)).after(Some(profiles::shown(&profile)));
        let stored = self.store.put_profile(within, profile, audit).await?.ok_or_else(|| no_tenant(tenant_id))?;
        let outcome = match before {
            None => SeedOutcome::Created,
            Some(before) if before.version == stored.version => SeedOutcome::Unchanged,
            Some(_) => SeedOutcome::Updated,
        };
        Ok((outcome, stored))
    }

    /// Fills a tenant's settings, never its key; the names of the settings that changed.
    pub async fn fill_settings(
        &self,
        tenant_id: i64,
        values: &AgentSettings,
        fill: Fill,
    ) -> Result<Vec<&'static str>, Fault> {
        let installation = AgentSettings::default();
        let configs = TenantConfigs { store: self.store, settings: &installation, now_ms: self.now_ms };
        let within = Within::Named(Operator::of_this_process(), tenant_id);
        let changed = configs.change(within, &self.actor, |draft| Ok(draft.settings.fill(values, fill))).await?;
        changed.map(|(_, names)| names).ok_or_else(|| no_tenant(tenant_id))
    }
}

/// A built-in tool as the audit stores it; its settings have no secrets.
fn shown(tool: &BankTool) -> Option<String> {
    snapshot(&tool_bank::ToolView::of(tool.clone(), tool.settings.clone()))
}
