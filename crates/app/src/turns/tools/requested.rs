//! Reads the tools of a request that the server has to run. Loads nothing.

use amalgam_core::{
    AllowedNames, ApprovalRule, Fault, McpServerRequest, SecretText, ServerTool, TenantState, ToolRequest,
    file_search::FILE_SEARCH_RESULTS, is_house_label, store::Approval,
};
use amalgam_knowledge::file_search_request;
use amalgam_protocol::{CreateResponse, HostedTool, Json, McpTool, Raw, Shape, ShapeError, ToolKind, Writer};

/// Tools that the server may have to run, each with its index in the request.
#[derive(Default)]
pub(crate) struct RequestedTools {
    pub(super) tools: Vec<(usize, ToolRequest)>,
    /// The indexes of tools that are not offered to the model.
    pub(super) left_out: Vec<usize>,
    /// The wire's own tools, which the request does not name.
    pub(crate) own: Vec<ServerTool>,
    /// Calls that were approved after they were requested.
    pub(crate) approved: Vec<Approval>,
    /// Whether the caller's credentials are among them.
    pub(crate) has_secrets: bool,
}

/// Reads the tools of a request. A stateless tenant's MCP tool that names no server is left out. RAM-23
pub(crate) fn requested(request: &CreateResponse<'_>, state: TenantState) -> Result<RequestedTools, Fault> {
    let mut requested = RequestedTools::default();
    for (index, tool) in request.tools.iter().enumerate() {
        match &tool.kind {
            // Only a name: the tool bank has the definition.
            ToolKind::Function(function)
                if function.description.is_none() && function.parameters.is_none_or(Raw::is_null) =>
            {
                requested.tools.push((index, ToolRequest::Named(function.name.clone().into_owned())));
            }
            ToolKind::Hosted(HostedTool::Mcp, _) if state == TenantState::Stateless && names_no_server(tool.raw) => {
                requested.left_out.push(index);
            }
            ToolKind::Hosted(HostedTool::Mcp, _) => {
                let named = |fault: ShapeError| fault.at(index).under("tools");
                let mcp = McpTool::of(tool.raw).map_err(named)?;
                // The upstream runs connectors.
                if mcp.connector_id.is_some() {
                    continue;
                }
                let server = server(&mcp).map_err(named)?;
                requested.has_secrets |= server.authorization.is_some() || !server.headers.is_empty();
                requested.tools.push((index, ToolRequest::Mcp(server)));
            }
            ToolKind::Hosted(HostedTool::FileSearch, _) => {
                let named = |fault: ShapeError| fault.at(index).under("tools");
                let results = request.include.iter().any(|name| name == FILE_SEARCH_RESULTS);
                let path = format!("tools[{index}]");
                if let Some(search) = file_search_request(tool.raw, path, results).map_err(named)? {
                    requested.tools.push((index, ToolRequest::FileSearch(search)));
                }
            }
            _ => {}
        }
    }
    Ok(requested)
}

/// The array of tools without `require_approval` for the operator's MCP servers, so that every call has to be approved;
/// none if no tool sets it.
pub(crate) fn with_operator_approvals(tools: &Json) -> Option<Json> {
    const APPROVAL: &str = "require_approval";
    let switches = |tool: Raw<'_>| {
        let mcp = (tool.get_str("type").as_deref() == Some("mcp")).then(|| McpTool::of(tool).ok()).flatten();
        mcp.is_some_and(|mcp| mcp.server_url.is_none_or(|url| url.is_empty()) && mcp.require_approval.is_some())
    };
    if !tools.raw().elements().any(switches) {
        return None;
    }
    let mut writer = Writer::with_capacity(tools.bytes().len());
    writer.array(|writer| {
        for tool in tools.raw().elements() {
            if !switches(tool) {
                writer.raw(tool);
                continue;
            }
            writer.object(|writer| {
                for (key, value) in tool.fields().filter(|(key, _)| !key.is(APPROVAL)) {
                    writer.json_str(key);
                    writer.outside(b":");
                    writer.raw(value);
                }
            });
        }
    });
    Some(Json::from_writer(writer))
}

fn names_no_server(tool: Raw<'_>) -> bool {
    let named = |field: &str| tool.get_str(field).is_some_and(|text| !text.is_empty());
    !named("server_label") && !named("connector_id")
}

fn server(mcp: &McpTool<'_>) -> Result<McpServerRequest, ShapeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if mcp.server_label.is_empty() || mcp.server_label.len() > 64 || !mcp.server_label.chars().all(plain) {
        return Err(ShapeError::value("server_label", "must be 1 to 64 letters, digits, `_`, `-` or `.`"));
    }
    // The label identifies tools in calls, histories and approvals: a caller's server must not use a reserved one.
    if is_house_label(&mcp.server_label) {
        return Err(ShapeError::value("server_label", "must not be `bank` or `amalgam`, which are taken"));
    }
    let text =
        |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(McpServerRequest {
        label: mcp.server_label.clone().into_owned(),
        url: text(&mcp.server_url),
        description: text(&mcp.server_description),
        authorization: text(&mcp.authorization).map(SecretText),
        headers: headers(mcp.headers)?,
        allowed: match mcp.allowed_tools.filter(|allowed| !allowed.is_null()) {
            Some(allowed) => Some(names(allowed).map_err(|error| error.under("allowed_tools"))?),
            None => None,
        },
        approval: match mcp.require_approval.filter(|approval| !approval.is_null()) {
            Some(approval) => approval_of(approval).map_err(|error| error.under("require_approval"))?,
            None => ApprovalRule::Always,
        },
    })
}

fn headers(headers: Option<Raw<'_>>) -> Result<Vec<(String, SecretText)>, ShapeError> {
    let Some(headers) = headers.filter(|headers| !headers.is_null()) else { return Ok(Vec::new()) };
    if headers.shape() != Shape::Object {
        return Err(ShapeError::expected("headers", "an object of strings", headers));
    }
    headers
        .fields()
        .map(|(name, value)| {
            let name = name.decode().into_owned();
            match value.as_str() {
                Some(text) => Ok((name, SecretText(text.decode().into_owned()))),
                None => Err(ShapeError::expected(&name, "a string", value).under("headers")),
            }
        })
        .collect()
}

/// A list of names, or `{"tool_names", "read_only"}`.
fn names(raw: Raw<'_>) -> Result<AllowedNames, ShapeError> {
    let list = |raw: Raw<'_>, path: &str| {
        if raw.shape() != Shape::Array {
            return Err(ShapeError::expected(path, "an array of strings", raw));
        }
        raw.elements()
            .map(|name| match name.as_str() {
                Some(name) => Ok(name.decode().into_owned()),
                None => Err(ShapeError::expected(path, "an array of strings", name)),
            })
            .collect::<Result<Vec<_>, _>>()
    };
    match raw.shape() {
        Shape::Array => match list(raw, "")? {
            // An empty list allows nothing.
            names if names.is_empty() => Err(ShapeError::value("", "must name at least one tool")),
            names => Ok(AllowedNames { names, read_only: false }),
        },
        Shape::Object => Ok(AllowedNames {
            names: match raw.get("tool_names").filter(|names| !names.is_null()) {
                Some(names) => list(names, "tool_names")?,
                None => Vec::new(),
            },
            read_only: raw.get("read_only").and_then(Raw::as_bool).unwrap_or(false),
        }),
        _ => Err(ShapeError::expected("", "an array of strings or an object", raw)),
    }
}

fn approval_of(raw: Raw<'_>) -> Result<ApprovalRule, ShapeError> {
    match raw.as_str().map(|word| word.decode()).as_deref() {
        Some("always") => return Ok(ApprovalRule::Always),
        Some("never") => return Ok(ApprovalRule::Never),
        Some(_) => return Err(ShapeError::value("", "must be `always`, `never` or an object")),
        None => {}
    }
    if raw.shape() != Shape::Object {
        return Err(ShapeError::expected("", "a string or an object", raw));
    }
    let filter = |name: &str| match raw.get(name).filter(|filter| !filter.is_null()) {
        Some(filter) => names(filter).map(Some).map_err(|error| error.under(name)),
        None => Ok(None),
    };
    Ok(ApprovalRule::Some { always: filter("always")?, never: filter("never")? })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    // right E1
    #[test]
    fn a_request_that_waits_for_a_caller_without_a_key_keeps_the_approvals_of_the_operators_servers() {
        let tools = |text: &'static str| Json::parse(&Bytes::from_static(text.as_bytes())).unwrap();
        let sent = tools(
            r#"[{"type":"mcp","require_approval":"never","server_label":"desk"},{"type":"mcp","server_label":"x","server_url":"https://x","require_approval":"never"},{"type":"mcp","server_label":"y","server_url":"","require_approval":{"never":{"tool_names":["a"]}}}]"#,
        );
        let stored = tools(
            r#"[{"type":"mcp","server_label":"desk"},{"type":"mcp","server_label":"x","server_url":"https://x","require_approval":"never"},{"type":"mcp","server_label":"y","server_url":""}]"#,
        );
        assert_eq!(with_operator_approvals(&sent), Some(stored.clone()));
        assert_eq!(with_operator_approvals(&stored), None);
    }
}
