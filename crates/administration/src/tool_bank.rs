//! The tool bank.
//!
//! This module authorizes: an administrator reads the tenant's own tools and the common ones, and changes the tenant's own;
//! only operators change common tools. Tools of other tenants are reported as not found.

mod put_tool;
mod trial;
mod view;

use std::collections::HashSet;

use amalgam_app::{Application, not_found};
use amalgam_core::{
    Actor, AuditAction, AuditDraft, BankFault, Fault, INSTALLATION, Operator, Scope, Store, ToolProvider,
    store::{BankOf, BankTool, Page},
    tool_usage_block,
};
use amalgam_protocol::{Json, Raw};
use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::{
    access::{admin, known_id, operator},
    audit::snapshot,
    fields::Object,
    list::List,
    request::{self, missing, wrong},
};

pub(super) use put_tool::PutTool;
pub use put_tool::{RequiresApproval, ToolTimeout};
pub use trial::{Trial, TrialError};
pub use view::{ToolStatisticsView, ToolView};

/// The tool in not-found errors.
const TOOL: &str = "Tool";

pub(super) const PUT: AuditAction = AuditAction::new("tool.put");
const DELETE: AuditAction = AuditAction::new("tool.delete");
const TRY: AuditAction = AuditAction::new("tool.try");

/// The maximum size of a tool.
pub const TOOL_BODY: usize = 256 * 1024;

/// Which part of the tool bank a request addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankScope {
    /// The tenant's own tools. Reads include the common tools that no own tool hides.
    Own,
    /// The common tools, which all tenants share.
    Common,
}

/// Access to the tool bank.
#[derive(Clone)]
pub struct ToolBank<'a> {
    /// Stores the tools.
    pub store: &'a dyn Store,
    /// Validates and runs the tools.
    pub toolbox: &'a dyn ToolProvider,
    /// Milliseconds since 1970.
    pub now_ms: u64,
    /// The actor of changes, for the audit.
    pub actor: Actor,
}

impl<'a> ToolBank<'a> {
    /// Access for this actor to the tool bank.
    pub fn new(app: &'a Application, actor: Actor) -> Self {
        Self { store: &*app.store, toolbox: &*app.toolbox, now_ms: app.clock.now_ms(), actor }
    }
}

/// A trial call.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TryTool {
    /// The arguments; an empty object by default.
    arguments: Option<Object>,
}

/// Guidance on tools for a prompt.
#[derive(Serialize, JsonSchema)]
pub struct ToolUsage {
    #[schemars(extend("const" = "tool.usage"))]
    object: &'static str,
    /// The combined guidance; null if none of the tools has any.
    block: Option<String>,
}

impl ToolBank<'_> {
    /// Tools ordered by name, ignoring case, including inactive ones.
    pub async fn list(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        page: &Page,
    ) -> Result<List<ToolView, String>, Fault> {
        let (after, limit) = (page.after.as_deref(), page.limit + 1);
        let common = self.store.tools(BankOf::Common(reader()), after, limit);
        let tools = match bank_scope {
            BankScope::Common => common.await?,
            BankScope::Own => {
                let own = self.store.tools(BankOf::Tenant(admin(scope)?), after, limit).await?;
                merged(own, common.await?, limit)
            }
        };
        Ok(List::new(tools.into_iter().map(|tool| self.show(tool)).collect(), page.limit, |tool| tool.name.clone()))
    }

    /// One tool.
    pub async fn tool(&self, scope: &Scope, bank_scope: BankScope, name: &str) -> Result<ToolView, Fault> {
        Ok(self.show(self.find(scope, bank_scope, name).await?))
    }

    /// Creates or replaces the tool that `body` describes; true if it is new. Without `name`, the body must have one.
    pub async fn put(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        name: Option<&str>,
        body: &Bytes,
    ) -> Result<(ToolView, bool), Fault> {
        let name = name.map(|name| known_id(TOOL, name)).transpose()?;
        let of = writer(scope, bank_scope)?;
        let mut tool = put_tool::read(body, name, bank_scope, self.toolbox)?;
        let before = self.store.tool(of, &tool.name).await?;
        (tool.created_at_ms, tool.updated_at_ms) = match &before {
            None => (self.now_ms, self.now_ms),
            // The cache key contains this time, so that no two versions may share one.
            Some(before) => (before.created_at_ms, self.now_ms.max(before.updated_at_ms + 1)),
        };
        tool.settings = self.toolbox.seal_settings(scope, &tool, before.as_ref()).map_err(refusal)?;
        self.toolbox.check(scope, &tool).await.map_err(refusal)?;
        let view = |tool: BankTool| snapshot(&self.show(tool));
        let audit = self.change(of, PUT, &tool.name).before(before.and_then(view)).after(view(tool.clone()));
        let new = self.store.put_tool(of, tool.clone(), audit).await?;
        Ok((self.show(tool), new))
    }

    /// Deletes a tool.
    pub async fn delete(&self, scope: &Scope, bank_scope: BankScope, name: &str) -> Result<(), Fault> {
        let (of, name) = (writer(scope, bank_scope)?, known_id(TOOL, name)?);
        let before = self.store.tool(of, name).await?;
        let audit = self.change(of, DELETE, name).before(before.and_then(|tool| snapshot(&self.show(tool))));
        match self.store.delete_tool(of, name, audit).await? {
            true => Ok(()),
            false => Err(not_found(TOOL, name)),
        }
    }

    /// Runs a tool once, outside of any turn, with the arguments that `body` has.
    pub async fn try_from(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        name: &str,
        body: &Bytes,
    ) -> Result<Trial, Fault> {
        let TryTool { arguments } = request::parse(body)?;
        let arguments = arguments.map_or_else(|| Json::from(Raw::EMPTY_OBJECT), Object::into_json);
        self.try_out(scope, bank_scope, name, arguments.bytes()).await
    }

    /// Runs a tool once, outside of any turn. The arguments are a JSON object.
    pub async fn try_out(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        name: &str,
        arguments: &Bytes,
    ) -> Result<Trial, Fault> {
        let tool = self.find(scope, bank_scope, name).await?;
        let arguments = Json::parse(arguments)
            .map_err(|error| Fault::invalid("arguments", format!("Invalid value for 'arguments': {error}.")))?;
        let audit = self.actor.change(self.now_ms, scope.tenant_id(), TRY, tool.name.as_str());
        self.store.append_audit(Operator::of_this_process(), audit).await?;
        trial::run(self.toolbox, scope, &tool, &arguments).await
    }

    /// Statistics of a tool's calls in the caller's tenant since a Unix time in seconds.
    pub async fn statistics(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        name: &str,
        since: u64,
    ) -> Result<ToolStatisticsView, Fault> {
        let tool = self.find(scope, bank_scope, name).await?;
        let (label, since_ms) = (amalgam_core::BANK_LABEL, since.saturating_mul(1000));
        let found = self.store.tool_statistics(admin(scope)?, label, &tool.name, since_ms).await?;
        Ok(ToolStatisticsView::of(tool.name, &found))
    }

    /// The guidance on at most `most` tools as one block for a prompt, in the order of `names`, which commas separate.
    pub async fn usage(&self, scope: &Scope, names: Option<&str>, most: usize) -> Result<ToolUsage, Fault> {
        admin(scope)?;
        let names = names.ok_or_else(|| missing("names"))?;
        let names: Vec<String> =
            names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.len() > most {
            return Err(wrong("names", &format!("at most {most} names")));
        }
        let tools = self.store.tools_for(scope, Some(&names)).await?;
        let guided = names.iter().filter_map(|name| {
            let tool = tools.iter().find(|tool| tool.name.eq_ignore_ascii_case(name));
            let guidance = tool.and_then(|tool| Some((tool.name.as_str(), tool.guidance.as_deref()?)));
            if guidance.is_none() {
                debug!(tool = %name, "a tool without guidance is left out of the block on usage");
            }
            guidance
        });
        Ok(ToolUsage { object: "tool.usage", block: tool_usage_block(guided) })
    }

    fn change(&self, of: BankOf<'_>, action: AuditAction, name: &str) -> AuditDraft {
        let tenant_id = match of {
            BankOf::Tenant(admin) => admin.tenant_id(),
            BankOf::Common(_) => INSTALLATION,
        };
        self.actor.change(self.now_ms, tenant_id, action, name)
    }

    async fn find(&self, scope: &Scope, bank_scope: BankScope, name: &str) -> Result<BankTool, Fault> {
        let name = known_id(TOOL, name)?;
        let own = match bank_scope {
            BankScope::Common => None,
            BankScope::Own => self.store.tool(BankOf::Tenant(admin(scope)?), name).await?,
        };
        let found = match own {
            Some(own) => Some(own),
            None => self.store.tool(BankOf::Common(reader()), name).await?,
        };
        found.ok_or_else(|| not_found(TOOL, name))
    }

    /// A tool as administrators see it, without its secrets.
    pub fn show(&self, tool: BankTool) -> ToolView {
        let settings = self.toolbox.show_settings(&tool);
        ToolView::of(tool, settings)
    }
}

/// The given names that neither the tenant nor the common bank has, active or not.
pub(super) async fn unknown_tools(
    store: &dyn Store,
    tenant: &Scope,
    names: impl Iterator<Item = &str>,
) -> Result<HashSet<String>, Fault> {
    let names: HashSet<&str> = names.collect();
    let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    let mut unknown = HashSet::new();
    if names.is_empty() {
        return Ok(unknown);
    }
    let active = store.tools_for(tenant, Some(&names)).await?;
    for name in names {
        let known = active.iter().any(|tool| tool.name.eq_ignore_ascii_case(&name))
            || store.tool(BankOf::Tenant(admin(tenant)?), &name).await?.is_some()
            || store.tool(BankOf::Common(reader()), &name).await?.is_some();
        if !known {
            unknown.insert(name);
        }
    }
    Ok(unknown)
}

/// The store is called as the process: every caller of these routes may read common tools.
fn reader() -> Operator {
    Operator::of_this_process()
}

fn writer(scope: &Scope, bank_scope: BankScope) -> Result<BankOf<'_>, Fault> {
    Ok(match bank_scope {
        BankScope::Own => BankOf::Tenant(admin(scope)?),
        BankScope::Common => BankOf::Common(operator(scope)?),
    })
}

/// Merges both lists. An own tool hides the common one of the same name.
fn merged(own: Vec<BankTool>, common: Vec<BankTool>, limit: usize) -> Vec<BankTool> {
    let key = |tool: &BankTool| tool.name.to_ascii_lowercase();
    let mut all: Vec<BankTool> = own.into_iter().chain(common).collect();
    all.sort_by_cached_key(|tool| (key(tool), tool.common));
    all.dedup_by_key(|tool| key(tool));
    all.truncate(limit);
    all
}

/// An invalid tool as a fault.
fn refusal(fault: BankFault) -> Fault {
    let message = format!("Invalid value for '{}': {}.", fault.field, fault.reason);
    Fault::invalid(fault.field, message).code("invalid_value")
}

#[cfg(test)]
#[path = "tool_bank_tests.rs"]
mod tests;
