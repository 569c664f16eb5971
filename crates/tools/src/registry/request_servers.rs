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

/// The timeout of listing, and of calls unless configured otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const PARAM: &str = "tools";

impl ToolRegistry {
    /// Lists the tools of a server that a request names.
    pub(super) async fn list(&self, scope: &Scope, request: &McpServerRequest) -> Result<ResolvedTool, Fault> {
        let (server, call_timeout) = self.server(scope, request)?;
        let listed = timeout(DEFAULT_TIMEOUT, server.tools(scope)).await.unwrap_or(Err(ToolError::TimedOut));
        let listed = listed.map_err(|error| unlisted(&request.label, error))?;
        // A caller without a key must not switch off approvals of configured servers.
        let always_ask = request.url.is_none() && !scope.has_credential();
        let (mut shown, mut tools, mut names) = (Vec::new(), Vec::new(), HashSet::new());
        for tool in listed {
            if !request.allowed.as_ref().is_none_or(|allowed| allowed.allow(&tool.name, tool.is_read_only())) {
                continue;
            }
            let name = wire_name(Some(&request.label), &tool.name);
            match self.schemas.get(&tool.parameters).await {
                Err(reason) => {
                    warn!("tool {} of MCP server {} is left out: {reason}", tool.name, printable_label(&request.label))
                }
                // Names that differ only in characters that upstreams do not accept may collide.
                Ok(_) if !names.insert(name.clone()) => {
                    warn!(
                        "tool {} of MCP server {} is left out: its name is taken",
                        tool.name,
                        printable_label(&request.label)
                    );
                }
                Ok(check) => {
                    let approval = always_ask || request.approval.is_due(&tool.name, tool.is_read_only());
                    tools.push(ServerTool {
                        name,
                        label: request.label.clone(),
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

    /// The requested server, and the timeout of its calls.
    fn server(&self, scope: &Scope, request: &McpServerRequest) -> Result<(McpServer, Duration), Fault> {
        let label = printable_label(&request.label);
        let Some(url) = &request.url else {
            let known = self.operators.get(&request.label).filter(|operator| operator.serves(scope.tenant_id()));
            let known = known.ok_or_else(|| {
                let message =
                    format!("The MCP server '{label}' has no 'server_url', and none is configured under its label.");
                Fault::invalid(PARAM, message)
            })?;
            // S14: a configured server has its own credentials.
            if request.authorization.is_some() || !request.headers.is_empty() {
                let message =
                    format!("The MCP server '{label}' is the operator's: it takes no credentials of a request.");
                return Err(Fault::invalid(PARAM, message));
            }
            let server = known.server.as_ref().map_err(|reason| unavailable(&request.label, reason.clone()))?;
            return Ok((server.clone(), server.timeout()));
        };
        let secret = |text: &str| text.to_owned().into();
        let address = Address {
            label: label.clone(),
            url: url.clone(),
            authorization: request.authorization.as_ref().map(|text| secret(&text.0)),
            headers: request
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
        Ok((server, DEFAULT_TIMEOUT))
    }
}

/// The caller learns which server failed, but no details of the connection.
fn unavailable(label: &str, detail: String) -> Fault {
    let message = format!("The MCP server '{}' could not be asked for its tools.", printable_label(label));
    Fault::new(FaultKind::ToolServer, message).param(PARAM).detail(detail)
}

fn unlisted(label: &str, error: ToolError) -> Fault {
    match error {
        ToolError::Broken { detail } => unavailable(label, detail),
        ToolError::Unsupported(reason) => {
            let message = format!("The MCP server '{}' cannot be used: {reason}.", printable_label(label));
            Fault::new(FaultKind::ToolServer, message).param(PARAM)
        }
        other => unavailable(label, other.to_string()),
    }
}

fn printable_label(label: &str) -> String {
    text::printable(label, 64)
}

/// The tools as an `mcp_list_tools` item shows them.
fn list_of(tools: &[ListedTool]) -> Json {
    let mut writer = Writer::default();
    writer.array(|writer| {
        for tool in tools {
            writer.object(|writer| {
                writer.key("name").string(&tool.name);
                // Absent fields are omitted: some clients refuse a null.
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
