//! Administration of the tool bank, for the HTTP API and the command line.
//!
//! This module authorizes: an administrator reads the tenant's own tools and the common ones, and changes the tenant's own;
//! only operators change common tools. Tools of other tenants are reported as not found.

mod put_tool;
mod trial;
mod view;

use std::collections::HashSet;

use amalgam_core::{
    Admin, BankFault, Fault, FaultKind, Operator, Scope, Store, ToolProvider,
    store::{BankOf, BankTool},
};
use amalgam_protocol::Json;
use bytes::Bytes;

use super::{json, operator};
use crate::wires::query::missing;

pub use self::trial::{Trial, TrialError};
pub(super) use self::{
    put_tool::PutTool,
    trial::TrialView,
    view::{ToolStatisticsView, ToolView},
};

/// The tool in not-found errors.
const TOOL: &str = "Tool";

/// The maximum size of a tool.
pub(super) const LARGEST: usize = 256 * 1024;

/// Which part of the tool bank a request addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BankScope {
    /// The tenant's own tools. Reads include the common tools that no own tool hides.
    Own,
    /// The common tools, which all tenants share.
    Common,
}

/// Access to the tool bank.
#[derive(Clone, Copy)]
pub struct ToolBank<'a> {
    /// Stores the tools.
    pub store: &'a dyn Store,
    /// Validates and runs the tools.
    pub toolbox: &'a dyn ToolProvider,
    /// Milliseconds since 1970.
    pub now_ms: u64,
}

impl ToolBank<'_> {
    /// Tools ordered by name, ignoring case, after `after`, including inactive ones.
    pub async fn list(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<BankTool>, Fault> {
        let common = self.store.tools(BankOf::Common(reader()), after, limit);
        Ok(match bank_scope {
            BankScope::Common => common.await?,
            BankScope::Own => {
                let own = self.store.tools(BankOf::Tenant(admin(scope)?), after, limit).await?;
                merged(own, common.await?, limit)
            }
        })
    }

    /// One tool.
    pub async fn tool(&self, scope: &Scope, bank_scope: BankScope, name: &str) -> Result<BankTool, Fault> {
        let own = match bank_scope {
            BankScope::Common => None,
            BankScope::Own => self.store.tool(BankOf::Tenant(admin(scope)?), name).await?,
        };
        let found = match own {
            Some(own) => Some(own),
            None => self.store.tool(BankOf::Common(reader()), name).await?,
        };
        found.ok_or_else(|| missing(TOOL, name))
    }

    /// Creates or replaces the tool that `body` describes; true if it is new. Without `name`, the body must have one.
    pub async fn put(
        &self,
        scope: &Scope,
        bank_scope: BankScope,
        name: Option<&str>,
        body: &Bytes,
    ) -> Result<(BankTool, bool), Fault> {
        let of = writer(scope, bank_scope)?;
        let mut tool = put_tool::read(body, name, bank_scope, self.toolbox)?;
        let before = self.store.tool(of, &tool.name).await?;
        (tool.created_at_ms, tool.updated_at_ms) = match &before {
            None => (self.now_ms, self.now_ms),
            // Caches are keyed by this time, so that no two versions may share one.
            Some(before) => (before.created_at_ms, self.now_ms.max(before.updated_at_ms + 1)),
        };
        tool.settings = self.toolbox.seal_settings(scope, &tool, before.as_ref()).map_err(refusal)?;
        self.toolbox.check(scope, &tool).await.map_err(refusal)?;
        let new = self.store.put_tool(of, tool.clone()).await?;
        Ok((tool, new))
    }

    /// Deletes a tool.
    pub async fn delete(&self, scope: &Scope, bank_scope: BankScope, name: &str) -> Result<(), Fault> {
        match self.store.delete_tool(writer(scope, bank_scope)?, name).await? {
            true => Ok(()),
            false => Err(missing(TOOL, name)),
        }
    }

    /// Runs a tool once, outside of any turn. The arguments are a JSON object.
    pub async fn try_out(&self, scope: &Scope, tool: &BankTool, arguments: &Bytes) -> Result<Trial, Fault> {
        let arguments = Json::parse(arguments)
            .map_err(|error| Fault::invalid("arguments", format!("Invalid value for 'arguments': {error}.")))?;
        trial::run(self.toolbox, scope, tool, &arguments).await
    }

    /// Statistics of a tool's calls in the caller's tenant since a Unix time in milliseconds: a JSON object.
    pub async fn statistics(&self, scope: &Scope, tool: &BankTool, since_ms: u64) -> Result<Json, Fault> {
        let label = amalgam_core::BANK_LABEL;
        let found = self.store.tool_statistics(admin(scope)?, label, &tool.name, since_ms).await?;
        Ok(json(&ToolStatisticsView::of(tool, &found)))
    }

    /// A tool as administrators see it: a JSON object without secrets.
    pub fn show(&self, tool: &BankTool) -> Json {
        json(&self.view(tool))
    }

    pub(super) fn view<'t>(&self, tool: &'t BankTool) -> ToolView<'t> {
        ToolView::of(tool, &self.toolbox.show_settings(tool))
    }
}

/// The caller as an administrator of its tenant, or a 403 fault.
pub(super) fn admin(scope: &Scope) -> Result<Admin<'_>, Fault> {
    scope.admin().ok_or_else(|| Fault::new(FaultKind::Forbidden, "Only an administrator of the tenant may do this."))
}

/// Those of these names that neither the tenant nor the common bank has, active or not.
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
