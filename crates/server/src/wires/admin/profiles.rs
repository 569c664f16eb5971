//! `/admin/profiles`: who the assistants of a tenant are, with every version that was.

mod diff;
mod order;

use std::{collections::HashSet, sync::Arc};

use amalgam_app::Configs;
use amalgam_core::{
    Fault, Scope,
    assistant::prompt,
    store::{AgentProfile, Within},
};
use amalgam_protocol::Writer;
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::StatusCode;

use super::{
    bank::{admin, unknown_tools},
    fields, named_tenant, page, place, write_text,
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
    },
};

/// What a missing profile is called.
const PROFILE: &str = "Profile";

/// What a missing version is called.
const VERSION: &str = "Version";

/// Profiles by slug, those that are not active too.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let desk = Desk::open(&app, &scope, &query).await?;
    let asked = query.page()?;
    let found = app.store.profiles_within(desk.within()?, asked.after.as_deref(), asked.limit + 1);
    let profiles = found.await.map_err(Fault::from)?;
    let view = desk.view(profiles.iter().take(asked.limit)).await?;
    let slug = |writer: &mut Writer, profile: &AgentProfile| writer.string(&profile.slug);
    Ok(page(&profiles, asked.limit, slug, |writer, profile| view.write(writer, profile)))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let desk = Desk::open(&app, &scope, &query).await?;
    let profile = desk.profile(&id_of(PROFILE, slug)?).await?;
    Ok(desk.told(&profile).await?)
}

/// Keeps a profile in the place of the one of its slug. The version before is kept too.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let body = fields::body(&app, request, order::LARGEST).await?;
    let profile = order::read(&body, &slug, app.clock.now_ms())?;
    let desk = Desk::open(&app, &scope, &query).await?;
    let before = app.store.profile(&desk.tenant, &slug).await.map_err(Fault::from)?;
    let kept = app.store.put_profile(desk.within()?, profile).await.map_err(Fault::from)?;
    let kept = kept.ok_or_else(|| missing("Tenant", &desk.tenant.tenant_id().to_string()))?;
    let mut response = desk.told(&kept).await?;
    if before.is_none() {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// Forgets a profile and its versions.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let desk = Desk::open(&app, &scope, &query).await?;
    match app.store.delete_profile(desk.within()?, &slug).await.map_err(Fault::from)? {
        true => Ok(answer::deleted(&slug, "profile.deleted")),
        false => Err(missing(PROFILE, &slug).into()),
    }
}

/// Every version of a profile, the newest first.
pub(super) async fn versions(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    slug: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let slug = id_of(PROFILE, slug)?;
    let desk = Desk::open(&app, &scope, &query).await?;
    let asked = query.page()?;
    let before = match asked.after.as_deref().map(str::parse) {
        None => None,
        Some(Ok(version)) => Some(version),
        Some(Err(_)) => return Err(fields::wrong("after", "it is the number of a version").into()),
    };
    desk.profile(&slug).await?;
    let found = app.store.profile_versions(desk.within()?, &slug, before, asked.limit + 1);
    let versions = found.await.map_err(Fault::from)?;
    let view = desk.view(versions.iter().take(asked.limit)).await?;
    let number = |writer: &mut Writer, profile: &AgentProfile| writer.number(profile.version);
    Ok(page(&versions, asked.limit, number, |writer, profile| view.write(writer, profile)))
}

/// What a version changed, against the one before or another one.
pub(super) async fn compare(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, WireError> {
    let Path((slug, version)) = path.map_err(|_| missing(PROFILE, ""))?;
    let slug = id_of(PROFILE, Ok(Path(slug)))?;
    let desk = Desk::open(&app, &scope, &query).await?;
    desk.profile(&slug).await?;
    let number: u64 = version.parse().map_err(|_| missing(VERSION, &version))?;
    let after = desk.version(&slug, number).await?;
    let against = query.number("against")?;
    let before = match against.or_else(|| number.checked_sub(1).filter(|before| *before > 0)) {
        Some(before) => Some(desk.version(&slug, before).await?),
        // Before the first version there was nothing.
        None => None,
    };
    let mut writer = Writer::with_capacity(after.prompt.len() * 2 + 1024);
    diff::write(&mut writer, before.as_ref(), &after);
    Ok(answer::json(writer.into_bytes()))
}

/// Where the profiles of one tenant are dealt with.
struct Desk<'a> {
    app: &'a App,
    tenant: Scope,
}

impl<'a> Desk<'a> {
    async fn open(app: &'a App, scope: &Scope, query: &Query) -> Result<Self, Fault> {
        Ok(Self { app, tenant: place(app, scope, named_tenant(query)?).await? })
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

    /// What has to be known to show these.
    async fn view(&self, profiles: impl Iterator<Item = &AgentProfile>) -> Result<View, Fault> {
        let configs = Configs {
            store: &*self.app.store,
            settings: &self.app.assistant.settings,
            now_ms: self.app.clock.now_ms(),
        };
        let kept = configs.kept(self.within()?).await?;
        let names = profiles.flat_map(|profile| &profile.tools).map(String::as_str);
        let unknown = unknown_tools(&*self.app.store, &self.tenant, names).await?;
        Ok(View { config_prompt: configs.resolve(&kept, None).system_prompt.value, unknown })
    }

    async fn told(&self, profile: &AgentProfile) -> Result<Response, Fault> {
        let view = self.view(std::iter::once(profile)).await?;
        let mut writer = Writer::with_capacity(profile.prompt.len() + 512);
        view.write(&mut writer, profile);
        Ok(answer::json(writer.into_bytes()))
    }
}

/// What is told about profiles besides themselves.
struct View {
    /// The tenant's part of every prompt.
    config_prompt: String,
    /// Tools that no bank has.
    unknown: HashSet<String>,
}

impl View {
    fn write(&self, writer: &mut Writer, profile: &AgentProfile) {
        writer.object(|writer| {
            writer.key("slug").string(&profile.slug);
            writer.key("object").string("profile");
            writer.key("prompt").string(&profile.prompt);
            writer.key("tools").array(|writer| profile.tools.iter().for_each(|tool| writer.string(tool)));
            write_text(writer, "model", profile.model.as_deref());
            write_text(writer, "tool_choice", profile.tool_choice.as_deref());
            writer.key("active").bool(profile.active);
            writer.key("version").number(profile.version);
            // The same as in the answers: with the tenant's own words before it.
            let composed = prompt::compose(&self.config_prompt, Some(&profile.prompt), None);
            writer.key("prompt_hash").string(&composed.hash);
            let unknown = profile.tools.iter().filter(|tool| self.unknown.contains(*tool));
            writer.key("unknown_tools").array(|writer| unknown.for_each(|tool| writer.string(tool)));
            writer.key("created_at").number(profile.created_at_ms / 1000);
            writer.key("updated_at").number(profile.updated_at_ms / 1000);
        });
    }
}
