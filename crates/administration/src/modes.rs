//! The modes of a tenant's agents, including the built-in ones.

mod put_mode;

use amalgam_app::not_found;
use amalgam_core::{
    AuditAction, Fault, FaultKind, Scope,
    store::{Mode, Page},
};
use amalgam_execute::modes;
use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    Administration,
    access::{known_id, no_tenant, within},
    audit::snapshot,
    fields::{UnixSeconds, Verbatim},
    list::List,
    tool_bank,
};

pub(super) use put_mode::{PutMode, ScopeCondition};

/// The mode in not-found errors.
const MODE: &str = "Mode";

const PUT: AuditAction = AuditAction::new("mode.put");
const DELETE: AuditAction = AuditAction::new("mode.delete");

/// A temporary role of an agent, with its own prompt and tools.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Mode")]
pub struct ModeView {
    /// Unique within its tenant, ignoring case.
    pub name: String,
    #[schemars(extend("const" = "mode"))]
    object: &'static str,
    /// For humans.
    pub display_name: String,
    /// The system prompt of the mode.
    system_prompt: String,
    /// Names of tools in addition to those of the profile.
    pub tools: Vec<String>,
    /// The tool that the model must call first in each turn.
    tool_choice: Option<String>,
    /// Retrieval conditions for turns that send none. All of them must match.
    #[schemars(with = "Vec<ScopeCondition>")]
    rag_scope: Verbatim,
    /// Whether this is the built-in mode, unchanged by the tenant.
    pub seeded: bool,
    /// Tools that no tool bank has; turns ignore them.
    pub unknown_tools: Vec<String>,
    /// Unix time in seconds; null for a built-in mode.
    created_at: Option<UnixSeconds>,
    /// Unix time in seconds; null for a built-in mode.
    pub updated_at: Option<UnixSeconds>,
}

impl Administration<'_> {
    /// Modes ordered by name, ignoring case, including built-in ones.
    pub async fn modes(&self, scope: &Scope, page: &Page) -> Result<List<ModeView, String>, Fault> {
        let own = self.own_modes(scope).await?;
        let after = page.after.as_deref().map(str::to_ascii_lowercase);
        let is_after = |mode: &Mode| after.as_ref().is_none_or(|after| mode.name.to_ascii_lowercase() > *after);
        let modes = modes::all(&own).into_iter().filter(is_after).take(page.limit + 1).collect();
        Ok(List::new(self.mode_views(scope, modes, &own).await?, page.limit, |mode| mode.name.clone()))
    }

    /// One mode.
    pub async fn mode(&self, scope: &Scope, name: &str) -> Result<ModeView, Fault> {
        let own = self.own_modes(scope).await?;
        let mode = modes::find(known_id(MODE, name)?, &own).ok_or_else(|| not_found(MODE, name))?;
        self.mode_view(scope, mode, &own).await
    }

    /// Creates or replaces the mode that `body` describes; true if the tenant had none of this name. Without `name`, the body
    /// must have one.
    pub async fn put_mode(&self, scope: &Scope, name: Option<&str>, body: &Bytes) -> Result<(ModeView, bool), Fault> {
        let mut mode = put_mode::read(body, name, self.now_ms)?;
        let before = self.own_modes(scope).await?.into_iter().find(|own| own.name.eq_ignore_ascii_case(&mode.name));
        if let Some(before) = &before {
            mode.created_at_ms = before.created_at_ms;
        }
        let before_view = match before.clone() {
            Some(own) => snapshot(&self.mode_view(scope, own.clone(), &[own]).await?),
            None => None,
        };
        let after = snapshot(&self.mode_view(scope, mode.clone(), &[mode.clone()]).await?);
        let audit = self.change(scope.tenant_id(), PUT, mode.name.as_str()).before(before_view).after(after);
        if !self.store.put_mode(within(scope)?, mode.clone(), audit).await? {
            return Err(no_tenant(scope.tenant_id()));
        }
        let own = [mode.clone()];
        Ok((self.mode_view(scope, mode, &own).await?, before.is_none()))
    }

    /// Deletes a mode of the tenant. True if a built-in mode of this name is used again.
    pub async fn delete_mode(&self, scope: &Scope, name: &str) -> Result<bool, Fault> {
        let seeded = modes::seeded(known_id(MODE, name)?).is_some();
        let own = self.own_modes(scope).await?.into_iter().find(|own| own.name.eq_ignore_ascii_case(name));
        let before = match own {
            Some(own) => snapshot(&self.mode_view(scope, own.clone(), &[own]).await?),
            None => None,
        };
        let audit = self.change(scope.tenant_id(), DELETE, name).before(before);
        match (self.store.delete_mode(within(scope)?, name, audit).await?, seeded) {
            (true, seeded) => Ok(seeded),
            (false, false) => Err(not_found(MODE, name)),
            (false, true) => {
                let message = "This mode is part of every tenant and cannot be deleted. Keep one of your own under its \
                               name to change what it is.";
                Err(Fault::new(FaultKind::Conflict, message).param("name").code("mode_is_seeded"))
            }
        }
    }

    async fn own_modes(&self, scope: &Scope) -> Result<Vec<Mode>, Fault> {
        Ok(self.store.modes_within(within(scope)?).await?)
    }

    async fn mode_view(&self, scope: &Scope, mode: Mode, own: &[Mode]) -> Result<ModeView, Fault> {
        let views = self.mode_views(scope, vec![mode], own).await?;
        views.into_iter().next().ok_or_else(|| Fault::internal("a mode was lost on its way"))
    }

    async fn mode_views(&self, scope: &Scope, modes: Vec<Mode>, own: &[Mode]) -> Result<Vec<ModeView>, Fault> {
        let names = modes.iter().flat_map(|mode| &mode.tools).map(String::as_str);
        let unknown = tool_bank::unknown_tools(self.store, scope, names).await?;
        let view = |mode: Mode| {
            let seeded = !own.iter().any(|own| own.name.eq_ignore_ascii_case(&mode.name));
            // A built-in mode has no meaningful times.
            let time = |at_ms: u64| (!seeded).then(|| UnixSeconds::from_ms(at_ms));
            ModeView {
                unknown_tools: mode.tools.iter().filter(|tool| unknown.contains(*tool)).cloned().collect(),
                name: mode.name,
                object: "mode",
                display_name: mode.display_name,
                system_prompt: mode.system_prompt,
                tools: mode.tools,
                tool_choice: mode.tool_choice,
                rag_scope: mode.rag_scope.into(),
                seeded,
                created_at: time(mode.created_at_ms),
                updated_at: time(mode.updated_at_ms),
            }
        };
        Ok(modes.into_iter().map(view).collect())
    }
}
