//! `/admin/profiles`: the profiles of a tenant's assistants and their versions.

mod diff;
mod put_profile;

use std::{collections::HashSet, sync::Arc};

use amalgam_app::TenantConfigs;
use amalgam_core::{
    Fault, Scope,
    assistant::prompt,
    store::{AgentProfile, Within},
};
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    fields::{ProfileKind, UnixSeconds},
    list_page, request, tenant_admin_scope, tenant_in_query,
    tool_bank::{admin, unknown_tools},
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
    },
};

pub(super) use self::{diff::ProfileDiff, put_profile::PutProfile};

/// The profile in not-found errors.
const PROFILE: &str = "Profile";

/// The version in not-found errors.
const VERSION: &str = "Version";

/// An assistant's configuration for one purpose.
#[derive(Serialize, JsonSchema)]
pub(super) struct Profile<'a> {
    /// The identifier that callers send; unique within its tenant.
    slug: &'a str,
    object: ProfileKind,
    /// The profile's prompt, which follows the tenant's system prompt.
    prompt: &'a str,
    /// The names of the profile's tools.
    tools: &'a [String],
    /// The model to use instead of the tenant's.
    model: Option<&'a str>,
    /// The tool that the model must call first in each turn.
    tool_choice: Option<&'a str>,
    /// Whether the profile can be used.
    active: bool,
    /// Incremented with every change.
    #[schemars(range(min = 1))]
    version: u64,
    /// SHA-256 of the complete prompt, including the tenant's current system prompt; the `prompt.hash` of answers.
    prompt_hash: String,
    /// Tools that no tool bank has; turns ignore them.
    unknown_tools: Vec<&'a str>,
    created_at: UnixSeconds,
    updated_at: UnixSeconds,
}

/// Profiles ordered by slug, including inactive ones.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    let asked = query.page()?;
    let found = app.store.profiles_within(tenant_profiles.within()?, asked.after.as_deref(), asked.limit + 1);
    let profiles = found.await.map_err(Fault::from)?;
    let context = tenant_profiles.context(profiles.iter().take(asked.limit)).await?;
    Ok(list_page(&profiles, asked.limit, |profile| profile.slug.as_str(), |profile| context.profile(profile)))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    let profile = tenant_profiles.profile(&id_of(PROFILE, slug)?).await?;
    Ok(tenant_profiles.respond(&profile).await?)
}

/// Creates or replaces a profile. The previous version is kept.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let body = request::body(&app, request, put_profile::LARGEST).await?;
    let profile = put_profile::read(&body, &slug, app.clock.now_ms())?;
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    let before = app.store.profile(&tenant_profiles.tenant, &slug).await.map_err(Fault::from)?;
    let kept = app.store.put_profile(tenant_profiles.within()?, profile).await.map_err(Fault::from)?;
    let kept = kept.ok_or_else(|| missing("Tenant", &tenant_profiles.tenant.tenant_id().to_string()))?;
    let mut response = tenant_profiles.respond(&kept).await?;
    if before.is_none() {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// Deletes a profile and its versions.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    match app.store.delete_profile(tenant_profiles.within()?, &slug).await.map_err(Fault::from)? {
        true => Ok(answer::deleted(&slug, "profile.deleted")),
        false => Err(missing(PROFILE, &slug).into()),
    }
}

/// The versions of a profile, newest first.
pub(super) async fn versions(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    let asked = query.page()?;
    let before = match asked.after.as_deref().map(str::parse) {
        None => None,
        Some(Ok(version)) => Some(version),
        Some(Err(_)) => return Err(request::wrong("after", "it is the number of a version").into()),
    };
    tenant_profiles.profile(&slug).await?;
    let found = app.store.profile_versions(tenant_profiles.within()?, &slug, before, asked.limit + 1);
    let versions = found.await.map_err(Fault::from)?;
    let context = tenant_profiles.context(versions.iter().take(asked.limit)).await?;
    Ok(list_page(&versions, asked.limit, |profile| profile.version, |profile| context.profile(profile)))
}

/// The differences between a version and the previous one, or another one.
pub(super) async fn compare(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, WireError> {
    let Path((slug, version)) = path.map_err(|_| missing(PROFILE, ""))?;
    let slug = id_of(PROFILE, Ok(Path(slug)))?;
    let tenant_profiles = TenantProfiles::open(&app, &scope, &query).await?;
    tenant_profiles.profile(&slug).await?;
    let number: u64 = version.parse().map_err(|_| missing(VERSION, &version))?;
    let after = tenant_profiles.version(&slug, number).await?;
    let against = query.number("against")?;
    let before = match against.or_else(|| number.checked_sub(1).filter(|before| *before > 0)) {
        Some(before) => Some(tenant_profiles.version(&slug, before).await?),
        // The first version is compared with nothing.
        None => None,
    };
    Ok(super::answer(&ProfileDiff::between(before.as_ref(), &after)))
}

/// The profiles of one tenant.
struct TenantProfiles<'a> {
    app: &'a App,
    tenant: Scope,
}

impl<'a> TenantProfiles<'a> {
    async fn open(app: &'a App, scope: &Scope, query: &Query) -> Result<Self, Fault> {
        Ok(Self { app, tenant: tenant_admin_scope(app, scope, tenant_in_query(query)?).await? })
    }

    fn within(&self) -> Result<Within<'_>, Fault> {
        Ok(Within::Own(admin(&self.tenant)?))
    }

    async fn profile(&self, slug: &str) -> Result<AgentProfile, Fault> {
        self.app.store.profile(&self.tenant, slug).await?.ok_or_else(|| missing(PROFILE, slug))
    }

    async fn version(&self, slug: &str, version: u64) -> Result<AgentProfile, Fault> {
        let before = version.checked_add(1);
        let found = self.app.store.profile_versions(self.within()?, slug, before, 1).await?;
        let found = found.into_iter().find(|profile| profile.version == version);
        found.ok_or_else(|| missing(VERSION, &version.to_string()))
    }

    /// What has to be known to show these profiles.
    async fn context(&self, profiles: impl Iterator<Item = &AgentProfile>) -> Result<ProfileContext, Fault> {
        let configs = TenantConfigs {
            store: &*self.app.store,
            settings: &self.app.assistant.settings,
            now_ms: self.app.clock.now_ms(),
        };
        let kept = configs.kept(self.within()?).await?;
        let names = profiles.flat_map(|profile| &profile.tools).map(String::as_str);
        let unknown = unknown_tools(&*self.app.store, &self.tenant, names).await?;
        Ok(ProfileContext { config_prompt: configs.resolve(&kept, None).system_prompt.value, unknown })
    }

    async fn respond(&self, profile: &AgentProfile) -> Result<Response, Fault> {
        let context = self.context(std::iter::once(profile)).await?;
        Ok(super::answer(&context.profile(profile)))
    }
}

/// What an answer needs to know about the tenant of a profile.
struct ProfileContext {
    /// The tenant's system prompt, which starts every prompt.
    config_prompt: String,
    /// Tools that no tool bank has.
    unknown: HashSet<String>,
}

impl ProfileContext {
    fn profile<'a>(&self, profile: &'a AgentProfile) -> Profile<'a> {
        // The same hash as in answers, which includes the tenant's system prompt.
        let composed = prompt::compose(&self.config_prompt, Some(&profile.prompt), None);
        let unknown = profile.tools.iter().filter(|tool| self.unknown.contains(*tool));
        Profile {
            slug: &profile.slug,
            object: ProfileKind,
            prompt: &profile.prompt,
            tools: &profile.tools,
            model: profile.model.as_deref(),
            tool_choice: profile.tool_choice.as_deref(),
            active: profile.active,
            version: profile.version,
            prompt_hash: composed.hash,
            unknown_tools: unknown.map(String::as_str).collect(),
            created_at: UnixSeconds::from_ms(profile.created_at_ms),
            updated_at: UnixSeconds::from_ms(profile.updated_at_ms),
        }
    }
}
