//! `/admin/modes`: the modes of a tenant's agents, including the built-in ones.

mod put_mode;

use std::sync::Arc;

use amalgam_core::{
    Fault, FaultKind, Scope, Store,
    execute::modes,
    store::{Mode, Within},
};
use amalgam_protocol::Json;
use axum::{
    Extension,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use bytes::Bytes;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    fields::{ModeKind, UnixSeconds, Verbatim},
    json, list_page, request, tenant_admin_scope, tenant_in_query, tool_bank,
};
use crate::{
    app::App,
    wires::{
        WireError, answer,
        query::{Query, id_of, missing},
    },
};

pub(super) use put_mode::{PutMode, ScopeCondition};

/// The mode in not-found errors.
const MODE: &str = "Mode";

/// Access to the modes of a tenant, for its administrators.
#[derive(Clone, Copy)]
pub struct Modes<'a> {
    /// Stores the tenant's own modes.
    pub store: &'a dyn Store,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

/// A mode with the facts that a listing shows.
pub struct ModeListing {
    /// The mode itself.
    pub mode: Mode,
    /// Whether it is the built-in mode, unchanged by the tenant.
    pub seeded: bool,
    /// Tools of the mode that no tool bank has.
    pub unknown_tools: Vec<String>,
}

impl Modes<'_> {
    /// Modes ordered by name, ignoring case, after `after`.
    pub async fn list(&self, scope: &Scope, after: Option<&str>, limit: usize) -> Result<Vec<ModeListing>, Fault> {
        let own = self.own(scope).await?;
        let after = after.map(str::to_ascii_lowercase);
        let is_behind = |mode: &Mode| after.as_ref().is_none_or(|after| mode.name.to_ascii_lowercase() > *after);
        let listed = modes::all(&own).into_iter().filter(is_behind).take(limit).collect();
        self.listed(scope, listed, &own).await
    }

    /// One mode.
    pub async fn mode(&self, scope: &Scope, name: &str) -> Result<ModeListing, Fault> {
        let own = self.own(scope).await?;
        let mode = modes::find(name, &own).ok_or_else(|| missing(MODE, name))?;
        self.one(scope, mode, &own).await
    }

    /// Creates or replaces the mode that `body` describes; true if the tenant had none of this name. Without `name`, the body
    /// must have one.
    pub async fn put(&self, scope: &Scope, name: Option<&str>, body: &Bytes) -> Result<(ModeListing, bool), Fault> {
        let mut mode = put_mode::read(body, name, self.now_ms)?;
        let before = self.own(scope).await?.into_iter().find(|own| own.name.eq_ignore_ascii_case(&mode.name));
        if let Some(before) = &before {
            mode.created_at_ms = before.created_at_ms;
        }
        if !self.store.put_mode(within(scope)?, mode.clone()).await? {
            return Err(missing("Tenant", &scope.tenant_id().to_string()));
        }
        let own = [mode.clone()];
        Ok((self.one(scope, mode, &own).await?, before.is_none()))
    }

    /// Deletes a mode of the tenant. True if a built-in mode of this name is used again.
    pub async fn delete(&self, scope: &Scope, name: &str) -> Result<bool, Fault> {
        let seeded = modes::seeded(name).is_some();
        match (self.store.delete_mode(within(scope)?, name).await?, seeded) {
            (true, seeded) => Ok(seeded),
            (false, false) => Err(missing(MODE, name)),
            (false, true) => {
                let message = "This mode is part of every tenant and cannot be deleted. Keep one of your own under its \
                               name to change what it is.";
                Err(Fault::new(FaultKind::Conflict, message).param("name").code("mode_is_seeded"))
            }
        }
    }

    async fn own(&self, scope: &Scope) -> Result<Vec<Mode>, Fault> {
        Ok(self.store.modes_within(within(scope)?).await?)
    }

    async fn one(&self, scope: &Scope, mode: Mode, own: &[Mode]) -> Result<ModeListing, Fault> {
        let listed = self.listed(scope, vec![mode], own).await?;
        listed.into_iter().next().ok_or_else(|| Fault::internal("a mode was lost on its way"))
    }

    async fn listed(&self, scope: &Scope, found: Vec<Mode>, own: &[Mode]) -> Result<Vec<ModeListing>, Fault> {
        let names = found.iter().flat_map(|mode| &mode.tools).map(String::as_str);
        let unknown = tool_bank::unknown_tools(self.store, scope, names).await?;
        let listed = found.into_iter().map(|mode| ModeListing {
            seeded: !own.iter().any(|own| own.name.eq_ignore_ascii_case(&mode.name)),
            unknown_tools: mode.tools.iter().filter(|tool| unknown.contains(*tool)).cloned().collect(),
            mode,
        });
        Ok(listed.collect())
    }
}

/// A temporary role of an agent, with its own prompt and tools.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Mode")]
pub(super) struct ModeView<'a> {
    /// Unique within its tenant, ignoring case.
    name: &'a str,
    object: ModeKind,
    /// For humans.
    display_name: &'a str,
    /// The system prompt of the mode.
    system_prompt: &'a str,
    /// Names of tools in addition to those of the profile.
    tools: &'a [String],
    /// The tool that the model must call first in each turn.
    tool_choice: Option<&'a str>,
    /// Retrieval conditions for turns that send none. All of them must match.
    #[schemars(with = "Vec<ScopeCondition>")]
    rag_scope: Verbatim,
    /// Whether this is the built-in mode, unchanged by the tenant.
    seeded: bool,
    /// Tools that no tool bank has; turns ignore them.
    unknown_tools: &'a [String],
    /// Unix time in seconds; null for a built-in mode.
    created_at: Option<UnixSeconds>,
    /// Unix time in seconds; null for a built-in mode.
    updated_at: Option<UnixSeconds>,
}

impl ModeListing {
    /// As administrators see it: a JSON object.
    pub fn show(&self) -> Json {
        json(&ModeView::from(self))
    }
}

impl<'a> From<&'a ModeListing> for ModeView<'a> {
    fn from(ModeListing { mode, seeded, unknown_tools }: &'a ModeListing) -> Self {
        // A built-in mode has no meaningful times.
        let time = |at_ms: u64| (!seeded).then(|| UnixSeconds::from_ms(at_ms));
        Self {
            name: &mode.name,
            object: ModeKind,
            display_name: &mode.display_name,
            system_prompt: &mode.system_prompt,
            tools: &mode.tools,
            tool_choice: mode.tool_choice.as_deref(),
            rag_scope: (&mode.rag_scope).into(),
            seeded: *seeded,
            unknown_tools,
            created_at: time(mode.created_at_ms),
            updated_at: time(mode.updated_at_ms),
        }
    }
}

fn within(scope: &Scope) -> Result<Within<'_>, Fault> {
    Ok(Within::Own(tool_bank::admin(scope)?))
}

fn of(app: &App) -> Modes<'_> {
    Modes { store: &*app.store, now_ms: app.clock.now_ms() }
}

/// Modes ordered by name, including built-in ones.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
) -> Result<Response, WireError> {
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let asked = query.page()?;
    let found = of(&app).list(&tenant, asked.after.as_deref(), asked.limit + 1).await?;
    Ok(list_page(&found, asked.limit, |listed| listed.mode.name.as_str(), ModeView::from))
}

pub(super) async fn retrieve(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    Ok(respond(&of(&app).mode(&tenant, &id_of(MODE, name)?).await?))
}

/// Creates or replaces a mode.
pub(super) async fn put(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, WireError> {
    let name = id_of(MODE, name)?;
    let body = request::body(&app, request, put_mode::LARGEST).await?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    let (kept, new) = of(&app).put(&tenant, Some(&name), &body).await?;
    let mut response = respond(&kept);
    if new {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// Deletes a mode of the tenant.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    query: Query,
    name: Result<Path<String>, PathRejection>,
) -> Result<Response, WireError> {
    let name = id_of(MODE, name)?;
    let tenant = tenant_admin_scope(&app, &scope, tenant_in_query(&query)?).await?;
    of(&app).delete(&tenant, &name).await?;
    Ok(answer::deleted(&name, "mode.deleted"))
}

fn respond(listed: &ModeListing) -> Response {
    super::answer(&ModeView::from(listed))
}
