//! MCP servers of a request: lists the tools that the request allows.

use std::{collections::HashSet, time::Duration};

use amalgam_core::{
    BankFault, CallDisplay, Decider, Fault, FaultKind, McpServerRequest, Policy, ResolvedTool, Scope, ServerTool,
    ToolError, wire_name,
};
use amalgam_protocol::{Json, Writer};
use tokio::time::timeout;
use tracing::warn;

use super::ToolRegistry;
use super::servers::Address;
use crate::{
    headers::HeaderText,
    mcp::{ListedTool, McpServer},
    text,
};

/// How long a server has to say what it offers; how long a call may take unless the operator says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);
const PARAM: &str = "tools";

impl ToolRegistry {
    /// The tools of a server that a request names.
    pub(super) async fn list(&self, scope: &Scope, asked: &McpServerRequest) -> Result<ResolvedTool, Fault> {
        let (server, call_timeout) = self.server(scope, asked)?;
        let listed = timeout(PATIENCE, server.tools(scope)).await.unwrap_or(Err(ToolError::TimedOut));
        let listed = listed.map_err(|error| unlisted(&asked.label, error))?;
        // A caller without a key cannot switch off approvals of what the operator set up for itself.
        let always_ask = asked.url.is_none() && !scope.has_credential();
        let (mut shown, mut tools, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        for tool in listed {
            if !asked.allowed.as_ref().is_none_or(|allowed| allowed.allow(&tool.name, tool.is_read_only())) {
                continue;
            }
            let name = wire_name(Some(&asked.label), &tool.name);
            match self.schemas.get(&tool.parameters).await {
                Err(reason) => warn!("tool {} of MCP server {} is left out: {reason}", tool.name, told(&asked.label)),
                // Names that differ in characters that no upstream takes may meet.
                Ok(_) if !names.insert(name.clone()) => {
                    warn!("tool {} of MCP server {} is left out: its name is taken", tool.name, told(&asked.label));
                }
                Ok(check) => {
                    let approval = always_ask || asked.approval.is_due(&tool.name, tool.is_read_only());
                    tools.push(ServerTool {
                        name,
                        label: asked.label.clone(),
                        own_name: tool.name.clone(),
                        description: tool.description.clone(),
                        parameters: tool.parameters.clone(),
                        guidance: None,
                        policy: Policy {
                            timeout: call_timeout,
                            idempotent: tool.is_idempotent(),
                            requires_approval: approval.then_some(Decider::Caller),
                            ..Policy::default()
                        },
                        shown: CallDisplay::McpCall,
                        check,
                        handler: server.handler(&tool.name),
                    });
                    shown.push(tool);
                }
            }
        }
        Ok(ResolvedTool::Listed { shown: list_of(&shown), tools })
    }

    /// The server that is meant, and how long one of its calls may take.
    fn server(&self, scope: &Scope, asked: &McpServerRequest) -> Result<(McpServer, Duration), Fault> {
        let label = told(&asked.label);
        let Some(url) = &asked.url else {
            let known = self.operators.get(&asked.label).filter(|operator| operator.serves(scope.tenant_id()));
            let known = known.ok_or_else(|| {
                let message =
                    format!("The MCP server '{label}' has no 'server_url', and none is configured under its label.");
                Fault::invalid(PARAM, message)
            })?;
            // S14: a credential goes with an address, and the operator has both.
            if asked.authorization.is_some() || !asked.headers.is_empty() {
                let message =
                    format!("The MCP server '{label}' is the operator's: it takes no credentials of a request.");
                return Err(Fault::invalid(PARAM, message));
            }
            let server = known.server.as_ref().map_err(|reason| unavailable(&asked.label, reason.clone()))?;
            return Ok((server.clone(), server.timeout()));
        };
        let secret = |text: &str| text.to_owned().into();
        let address = Address {
            label: label.clone(),
            url: url.clone(),
            authorization: asked.authorization.as_ref().map(|text| secret(&text.0)),
            headers: asked
                .headers
                .iter()
                .map(|(name, text)| (name.clone(), HeaderText::Secret(secret(&text.0))))
                .collect(),
            tenant_id: scope.tenant_id(),
        };
        let server = self.servers.get(&address).map_err(|BankFault { field, reason }| {
            let field = if field == "url" { "server_url" } else { &field };
            Fault::invalid(PARAM, format!("The MCP server '{label}' cannot be used: {field}: {reason}."))
        })?;
        Ok((server, PATIENCE))
    }
}

/// The caller learns which server it is, and nothing about the way to it.
fn unavailable(label: &str, detail: String) -> Fault {
    let message = format!("The MCP server '{}' could not be asked for its tools.", told(label));
    Fault::new(FaultKind::ToolServer, message).param(PARAM).detail(detail)
}

fn unlisted(label: &str, error: ToolError) -> Fault {
    match error {
        ToolError::Broken { detail } => unavailable(label, detail),
        ToolError::Unsupported(reason) => {
            let message = format!("The MCP server '{}' cannot be used: {reason}.", told(label));
            Fault::new(FaultKind::ToolServer, message).param(PARAM)
        }
        other => unavailable(label, other.to_string()),
    }
}

fn told(label: &str) -> String {
    text::printable(label, 64)
}

/// As an `mcp_list_tools` item shows them.
fn list_of(tools: &[ListedTool]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for tool in tools {
            writer.object(|writer| {
                writer.key("name").string(&tool.name);
                // What is not there is left out: some clients refuse a null.
                if let Some(description) = &tool.description {
                    writer.key("description").string(description);
                }
                writer.key("input_schema").raw(tool.parameters.raw());
                if let Some(annotations) = &tool.annotations {
                    writer.key("annotations").raw(annotations.raw());
                }
            });
        }
    });
    Json::from_writer(writer)
}
