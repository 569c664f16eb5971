//! A small MCP server over streamable HTTP, with tools that a test can distinguish by their output.

use amalgam_testkit::{Reply, Request, Upstream};
use serde_json::{Value, json};

/// Its tools: `lookup` says that it changes nothing, `book` says nothing about itself, `broken` always fails.
pub(crate) const MCP_TOOLS: [&str; 3] = ["lookup", "book", "broken"];

/// Serves MCP under `/mcp`; streamed or not.
pub(crate) fn serve_mcp(service: &Upstream) {
    service.answer_for("/mcp", |request| answer(request, false));
    service.answer_for("/mcp-stream", |request| answer(request, true));
}

/// The requests of a method that arrived at a service.
pub(crate) fn mcp_requests(service: &Upstream, method: &str) -> Vec<Request> {
    let is = |request: &Request| request.method == "POST" && request.json()["method"] == method;
    service.requests().into_iter().filter(is).collect()
}

/// What the server answers to a request.
pub(crate) fn mcp_answer(request: &Request) -> Reply {
    answer(request, false)
}

fn answer(request: &Request, streamed: bool) -> Reply {
    if request.method != "POST" {
        return Reply::status(204);
    }
    let message = request.json();
    let Some(id) = message.get("id") else { return Reply::status(202) };
    let result = match message["method"].as_str() {
        Some("initialize") => json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "small", "version": "1"},
        }),
        Some("tools/list") => json!({"tools": MCP_TOOLS.map(tool)}),
        Some("tools/call") => call(&message["params"]),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return Reply::json(json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
    };
    let whole = json!({"jsonrpc": "2.0", "id": id, "result": result});
    let reply = match streamed {
        false => Reply::json(whole),
        true => {
            let notice =
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}});
            Reply::stream().frame("message", &notice.to_string()).frame("message", &whole.to_string())
        }
    };
    reply.header("mcp-session-id", "session-1")
}

fn tool(name: &str) -> Value {
    let mut tool = json!({
        "name": name, "description": format!("Does {name}."),
        "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    });
    if name == "lookup" {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
    tool
}

fn call(params: &Value) -> Value {
    let said = format!("{} {}", params["name"].as_str().unwrap_or("?"), params["arguments"]);
    match params["name"] == "broken" {
        true => json!({"content": [{"type": "text", "text": "it is broken"}], "isError": true}),
        false => json!({"content": [{"type": "text", "text": said}]}),
    }
}
