//! The profiles of a tenant's assistants and their versions.

mod diff;
mod put_profile;

use std::collections::HashSet;

use amalgam_app::{Application, TenantConfigs, not_found};
use amalgam_assistant::{prompt, settings::AgentSettings};
use amalgam_core::{
    Actor, AuditAction, AuditDraft, Fault, Scope, Store,
    store::{AgentProfile, Page},
};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{
    access::{known_id, no_tenant, number_id, within},
    fields::UnixSeconds,
    list::{List, number_after},
    tool_bank::unknown_tools,
};

pub use diff::ProfileDiff;
pub(super) use put_profile::PutProfile;

/// The profile in not-found errors.
const PROFILE: &str = "Profile";

pub(super) const PUT: AuditAction = AuditAction::new("profile.put");
const DELETE: AuditAction = AuditAction::new("profile.delete");

/// The version in not-found errors.
const VERSION: &str = "Version";

/// An assistant's configuration for one purpose.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Profile")]
pub struct ProfileView {
    /// The identifier that callers send; unique within its tenant.
    pub slug: String,
    #[schemars(extend("const" = "profile"))]
    object: &'static str,
    /// The profile's prompt, which follows the tenant's system prompt.
    prompt: String,
    /// The names of the profile's tools.
    pub tools: Vec<String>,
    /// The model to use instead of the tenant's.
    pub model: Option<String>,
    /// The tool that the model must call first in each turn.
    tool_choice: Option<String>,
    /// Whether the profile can be used.
    pub active: bool,
    /// Incremented with every change.
    #[schemars(range(min = 1))]
    pub version: u64,
    /// SHA-256 of the complete prompt, including the tenant's current system prompt; the `prompt.hash` of answers.
    prompt_hash: String,
    /// Tools that no tool bank has; turns ignore them.
    unknown_tools: Vec<String>,
    created_at: UnixSeconds,
    /// When it was changed last.
    pub updated_at: UnixSeconds,
}

/// Access to the profiles of one tenant, for its administrators.
pub struct Profiles<'a> {
    /// Stores the profiles.
    pub store: &'a dyn Store,
    /// The assistant settings of the installation.
    pub settings: &'a AgentSettings,
    /// An administrator of the tenant.
    pub tenant: &'a Scope,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// The actor of changes, for the audit.
    pub actor: Actor,
}

impl<'a> Profiles<'a> {
    /// Access for this actor to the profiles of a tenant.
    pub fn new(app: &'a Application, actor: Actor, tenant: &'a Scope) -> Self {
        let (settings, now_ms) = (&app.assistant.settings, app.clock.now_ms());
        Self { store: &*app.store, settings, tenant, now_ms, actor }
    }
}

impl Profiles<'_> {
    /// Profiles ordered by slug, including inactive ones.
    pub async fn list(&self, page: &Page) -> Result<List<ProfileView, String>, Fault> {
        let after = page.after.as_deref();
        let profiles = self.store.profiles_within(within(self.tenant)?, after, page.limit + 1).await?;
        Ok(List::new(self.views(profiles).await?, page.limit, |profile| profile.slug.clone()))
    }

    /// One profile.
    pub async fn profile(&self, slug: &str) -> Result<ProfileView, Fault> {
        self.view(self.current(slug).await?).await
    }

    /// Creates or replaces the profile that `body` describes. Returns it, and whether it is new. The store keeps the
    /// previous version.
    pub async fn put(&self, slug: &str, body: &Bytes) -> Result<(ProfileView, bool), Fault> {
        let profile = put_profile::read(body, known_id(PROFILE, slug)?, self.now_ms)?;
        let before = self.store.profile(self.tenant, slug).await?;
        let audit = self.change(PUT, slug).before(before.as_ref().map(shown)).after(Some(shown(&profile)));
        let stored = self.store.put_profile(within(self.tenant)?, profile, audit).await?;
        let stored = stored.ok_or_else(|| no_tenant(self.tenant.tenant_id()))?;
        Ok((self.view(stored).await?, before.is_none()))
    }

    /// Deletes a profile and its versions.
    pub async fn delete(&self, slug: &str) -> Result<(), Fault> {
        let slug = known_id(PROFILE, slug)?;
        let before = self.store.profile(self.tenant, slug).await?;
        let audit = self.change(DELETE, slug).before(before.as_ref().map(shown));
        match self.store.delete_profile(within(self.tenant)?, slug, audit).await? {
            true => Ok(()),
            false => Err(not_found(PROFILE, slug)),
        }
    }

    /// The versions of a profile, newest first.
    pub async fn versions(&self, slug: &str, page: &Page) -> Result<List<ProfileView, u64>, Fault> {
        let before = number_after(page, "it is the number of a version")?;
        self.current(slug).await?;
        let versions = self.store.profile_versions(within(self.tenant)?, slug, before, page.limit + 1).await?;
        Ok(List::new(self.views(versions).await?, page.limit, |profile| profile.version))
    }

    /// The differences between a version and the previous one, or another one.
    pub async fn compare(&self, slug: &str, version: &str, against: Option<u64>) -> Result<ProfileDiff, Fault> {
        self.current(slug).await?;
        let number: u64 = number_id(VERSION, version)?;
        let after = self.version(slug, number).await?;
        let before = match against.or_else(|| number.checked_sub(1).filter(|before| *before > 0)) {
            Some(before) => Some(self.version(slug, before).await?),
            // The first version is compared with nothing.
            None => None,
        };
        Ok(ProfileDiff::between(before.as_ref(), &after))
    }

    fn change(&self, action: AuditAction, slug: &str) -> AuditDraft {
        self.actor.change(self.now_ms, self.tenant.tenant_id(), action, slug)
    }

    async fn current(&self, slug: &str) -> Result<AgentProfile, Fault> {
        let found = self.store.profile(self.tenant, known_id(PROFILE, slug)?).await?;
        found.ok_or_else(|| not_found(PROFILE, slug))
    }

    async fn version(&self, slug: &str, version: u64) -> Result<AgentProfile, Fault> {
        let before = version.checked_add(1);
        let found = self.store.profile_versions(within(self.tenant)?, slug, before, 1).await?;
        let found = found.into_iter().find(|profile| profile.version == version);
        found.ok_or_else(|| not_found(VERSION, &version.to_string()))
    }

    async fn view(&self, profile: AgentProfile) -> Result<ProfileView, Fault> {
        let views = self.views(vec![profile]).await?;
        views.into_iter().next().ok_or_else(|| Fault::internal("a profile was lost on its way"))
    }

    async fn views(&self, profiles: Vec<AgentProfile>) -> Result<Vec<ProfileView>, Fault> {
        let configs = TenantConfigs { store: self.store, settings: self.settings, now_ms: self.now_ms };
        let stored = configs.load(within(self.tenant)?).await?;
        let system_prompt = configs.resolve(&stored, None).system_prompt.value;
        let names = profiles.iter().flat_map(|profile| &profile.tools).map(String::as_str);
        let unknown = unknown_tools(self.store, self.tenant, names).await?;
        Ok(profiles.into_iter().map(|profile| ProfileView::of(profile, &system_prompt, &unknown)).collect())
    }
}

/// A profile as the audit stores it. The store assigns its version.
pub(super) fn shown(profile: &AgentProfile) -> String {
    let AgentProfile { slug, prompt, tools, model, tool_choice, active, .. } = profile;
    let shown = json!({"slug": slug, "prompt": prompt, "tools": tools, "model": model, "tool_choice": tool_choice, "active": active});
    shown.to_string()
}

impl ProfileView {
    /// `system_prompt` is the tenant's; `unknown` are tools that no tool bank has.
    fn of(profile: AgentProfile, system_prompt: &str, unknown: &HashSet<String>) -> Self {
        Self {
            // The same hash as in answers, which includes the tenant's system prompt.
            prompt_hash: prompt::compose(system_prompt, Some(&profile.prompt), None).hash,
            unknown_tools: profile.tools.iter().filter(|tool| unknown.contains(*tool)).cloned().collect(),
            slug: profile.slug,
            object: "profile",
            prompt: profile.prompt,
            tools: profile.tools,
            model: profile.model,
            tool_choice: profile.tool_choice,
            active: profile.active,
            version: profile.version,
            created_at: UnixSeconds::from_ms(profile.created_at_ms),
            updated_at: UnixSeconds::from_ms(profile.updated_at_ms),
        }
    }
}
