//! Builds runnable tools from rows of the bank, by kind.

use std::sync::Arc;

use amalgam_core::{
    ArgumentCheck, BANK_LABEL, BankFault, BoxFuture, CallDisplay, Handler, Scope, ServerTool, ToolCall, ToolError,
    ToolOutput,
    store::{BankKind, BankTool},
    wire_name,
};
use tracing::{debug, warn};

use super::servers::{Address, Servers};
use super::settings::{self, McpForm, ServerLocation, Settings};
use super::{ToolRegistry, sealing, wrong};
use crate::http::HttpTool;

/// The parts of a row that are needed to build a tool.
#[derive(Clone)]
pub(super) struct RunnableTool {
    pub(super) check: Arc<dyn ArgumentCheck>,
    pub(super) handler: Arc<dyn Handler>,
}

/// The tenants that a handler is built for.
#[derive(Clone, Copy)]
enum Audience {
    Tenant(i64),
    /// All tenants: a tool of the common bank, checked before it is stored.
    AllTenants,
}

impl ToolRegistry {
    /// The tool for a turn; `None` if nothing can run it, which is logged.
    pub(super) async fn server_tool(&self, scope: &Scope, tool: &BankTool) -> Option<ServerTool> {
        let ready = match self.handlers.get(scope.tenant_id(), tool) {
            Some(ready) => ready,
            None => {
                let ready = self.make_runnable(scope, tool).await?;
                self.handlers.insert(scope.tenant_id(), tool, ready.clone());
                ready
            }
        };
        Some(ServerTool {
            name: wire_name(None, &tool.name),
            label: BANK_LABEL.to_owned(),
            own_name: tool.name.clone(),
            description: Some(tool.description.clone()),
            parameters: tool.parameters.clone(),
            guidance: tool.guidance.clone(),
            policy: tool.policy.clone(),
            shown: CallDisplay::McpCall,
            check: ready.check,
            handler: ready.handler,
        })
    }

    /// Checks the settings of a tool before it is stored.
    pub(super) fn check_settings(&self, scope: &Scope, tool: &BankTool) -> Result<(), BankFault> {
        let audience = match tool.common {
            true => Audience::AllTenants,
            false => Audience::Tenant(scope.tenant_id()),
        };
        self.handler(scope, audience, tool).map(|_| ())
    }

    async fn make_runnable(&self, scope: &Scope, tool: &BankTool) -> Option<RunnableTool> {
        let (tenant_id, name) = (scope.tenant_id(), &tool.name);
        let check = match self.schemas.get(&tool.parameters).await {
            Ok(check) => check,
            Err(reason) => {
                warn!(tenant.id = tenant_id, "tool {name} of the bank is left out: parameters: {reason}");
                return None;
            }
        };
        let handler = match self.handler(scope, Audience::Tenant(tenant_id), tool) {
            Ok(Some(handler)) => handler,
            Ok(None) => return None,
            // RNCC-30: a tool that this program does not have is not offered.
            Err(fault) if tool.kind == BankKind::Builtin => {
                debug!(tenant.id = tenant_id, "tool {name} of the bank is left out: {}", fault.reason);
                return None;
            }
            // The caller learns that the tool does not work; the log has the reason.
            Err(BankFault { field, reason }) => {
                warn!(tenant.id = tenant_id, "tool {name} of the bank cannot be run: {field}: {reason}");
                Arc::new(BrokenTool { detail: format!("{field}: {reason}") })
            }
        };
        Some(RunnableTool { check, handler })
    }

    /// The handler of a tool; `None` for a client-run tool.
    fn handler(
        &self,
        scope: &Scope,
        audience: Audience,
        tool: &BankTool,
    ) -> Result<Option<Arc<dyn Handler>>, BankFault> {
        let context = sealing::context(scope, tool);
        let open = |sealed: &str| self.seal.open(&context, sealed);
        Ok(match settings::read(tool.kind, tool.settings.raw(), &open)? {
            Settings::Client => None,
            Settings::Builtin { function } => Some(self.built_in(tool, function)?),
            Settings::Http(settings) => {
                let handler = HttpTool::new(&settings, Arc::clone(&self.egress), tool.policy.timeout);
                Some(Arc::new(handler.map_err(in_settings)?))
            }
            Settings::Mcp(form) => Some(self.mcp(scope, audience, tool, form)?),
        })
    }

    fn built_in(&self, tool: &BankTool, function: Option<String>) -> Result<Arc<dyn Handler>, BankFault> {
        let name = function.as_deref().unwrap_or(&tool.name);
        match self.builtins.get(name) {
            Some(builtin) => Ok(Arc::clone(&builtin.run)),
            None => {
                let mut known: Vec<&str> = self.builtins.keys().copied().collect();
                known.sort_unstable();
                let reason = format!("no built-in tool has this name; there are {}", known.join(", "));
                Err(wrong("settings.function", reason))
            }
        }
    }

    fn mcp(
        &self,
        scope: &Scope,
        audience: Audience,
        tool: &BankTool,
        form: McpForm,
    ) -> Result<Arc<dyn Handler>, BankFault> {
        let name = form.tool.unwrap_or_else(|| tool.name.clone());
        match form.server {
            ServerLocation::Operators(server) => {
                let known = self.operators.get(&server).filter(|operator| match audience {
                    Audience::Tenant(tenant_id) => operator.serves(tenant_id),
                    Audience::AllTenants => true,
                });
                let known =
                    known.ok_or_else(|| wrong("settings.server", "no MCP server of the operator's has this name"))?;
                match &known.server {
                    Ok(server) => Ok(server.handler(&name)),
                    Err(reason) => Err(wrong("settings.server", reason.clone())),
                }
            }
            ServerLocation::Url { url, authorization, headers } => {
                let tenant_id = scope.tenant_id();
                let address = Address { label: tool.name.clone(), url, authorization, headers, tenant_id };
                self.servers.check(&address).map_err(|fault| match fault.field.as_str() {
                    "url" => wrong("settings.server", fault.reason),
                    _ => in_settings(fault),
                })?;
                Ok(Arc::new(Remote { servers: Arc::clone(&self.servers), address, name }))
            }
        }
    }
}

fn in_settings(fault: BankFault) -> BankFault {
    wrong(format!("settings.{}", fault.field), fault.reason)
}

/// A tool of a tenant's MCP server. The server is looked up for every call, because a cached handler must not keep it
/// from being evicted.
struct Remote {
    servers: Arc<Servers>,
    address: Address,
    name: String,
}

impl Handler for Remote {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let server = self.servers.get(&self.address);
            let server = server.map_err(|fault| ToolError::Broken { detail: fault.reason })?;
            server.handler(&self.name).run(call).await
        })
    }
}

/// A tool with invalid settings.
struct BrokenTool {
    detail: String,
}

impl Handler for BrokenTool {
    fn run<'a>(&'a self, _call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async { Err(ToolError::Broken { detail: self.detail.clone() }) })
    }
}
