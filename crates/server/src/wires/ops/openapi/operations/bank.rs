//! `/admin/tools` and `/admin/approvals`

use serde_json::{Value, json};

use super::{
    admin::{LARGE, LATE, UNDECLARED, WRONG, body, path},
    parameter, success, with_failures,
};

const ADMINS: &str = "The key lacks the right `admin`.";
const READERS: &str = "The key lacks the right `admin`, without which only `common=true` can be asked for.";
const WRITERS: &str = "The key lacks the right `admin`, or `operator` where `common=true` was asked for.";
const NO_TOOL: &str = "No such tool, or another tenant's.";
const NO_APPROVAL: &str = "No such approval, or another tenant's.";

/// `GET /admin/tools`
pub(crate) fn list_tools() -> Value {
    json!({
        "operationId": "listTools",
        "tags": ["Tools"],
        "summary": "List the tools of the bank",
        "description": "The tenant's own tools and the common ones. Of two tools of one name the tenant's own is in force, \
            and is the one that is listed.",
        "parameters": [common(), parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, by name.", "ToolList")}),
            &[("400", WRONG), ("403", READERS)],
        ),
    })
}

/// `GET /admin/tools/{name}`
pub(crate) fn get_tool() -> Value {
    json!({
        "operationId": "getTool",
        "tags": ["Tools"],
        "summary": "Get a tool",
        "description": "The tenant's own tool of this name, else the common one.",
        "parameters": [name(), common(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The tool.", "BankTool")}),
            &[("400", WRONG), ("403", READERS), ("404", NO_TOOL)],
        ),
    })
}

/// `PUT /admin/tools/{name}`
pub(crate) fn put_tool() -> Value {
    let example = json!({
        "kind": "http",
        "description": "Looks up an order.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
        "settings": {
            "method": "GET",
            "url": "https://orders.example.com/orders/{order_id}",
            "headers": {"x-api-key": {"secret": "the key of that service"}},
        },
        "timeout": "10s",
        "idempotent": true,
    });
    let tool = success("The tool, in the place of the one before.", "BankTool");
    json!({
        "operationId": "putTool",
        "tags": ["Tools"],
        "summary": "Put a tool into the bank",
        "description": "Replaces the tool of this name as a whole: what is not said is as it usually is. What a tool shows \
            may be sent back; a secret that comes as `{\"secret\": \"***\"}` stays as it is.",
        "parameters": [name(), common(), parameter("RequestId")],
        "requestBody": body("PutTool", example),
        "responses": with_failures(
            json!({"200": tool, "201": success("The tool, which is new.", "BankTool")}),
            &[("400", WRONG), ("403", WRITERS), ("408", LATE), ("413", LARGE), ("415", UNDECLARED)],
        ),
    })
}

/// `DELETE /admin/tools/{name}`
pub(crate) fn delete_tool() -> Value {
    json!({
        "operationId": "deleteTool",
        "tags": ["Tools"],
        "summary": "Take a tool out of the bank",
        "parameters": [name(), common(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("It is gone.", "DeletedTool")}),
            &[("400", WRONG), ("403", WRITERS), ("404", NO_TOOL)],
        ),
    })
}

/// `POST /admin/tools/{name}/try`
pub(crate) fn try_tool() -> Value {
    json!({
        "operationId": "tryTool",
        "tags": ["Tools"],
        "summary": "Run a tool once",
        "description": "Outside of any turn, also while it is not active. The arguments are checked first; nobody is asked \
            to agree, and nothing is written down.",
        "parameters": [name(), common(), parameter("RequestId")],
        "requestBody": body("TryTool", json!({"arguments": {"order_id": "A-17"}})),
        "responses": with_failures(
            json!({"200": success("How it went; a tool that fails is told here too.", "Trial")}),
            &[
                ("400", "The body is wrong, or the client runs this tool."),
                ("403", READERS),
                ("404", NO_TOOL),
                ("408", LATE),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

/// `GET /admin/tools/{name}/statistics`
pub(crate) fn get_tool_statistics() -> Value {
    let since = json!({
        "name": "since",
        "in": "query",
        "description": "Only calls from this moment on, in seconds since 1970.",
        "schema": {"type": "integer", "minimum": 0, "default": 0},
    });
    json!({
        "operationId": "getToolStatistics",
        "tags": ["Tools"],
        "summary": "See how the calls of a tool went",
        "description": "In the caller's tenant, for as long as its turns are kept.",
        "parameters": [name(), common(), since, parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The calls in numbers.", "ToolStatistics")}),
            &[("400", WRONG), ("403", ADMINS), ("404", NO_TOOL)],
        ),
    })
}

/// `GET /admin/tools/usage`
pub(crate) fn get_tool_usage() -> Value {
    let names = json!({
        "name": "names",
        "in": "query",
        "required": true,
        "description": "Names of tools, with commas between them. The block has their order.",
        "schema": {"type": "string"},
        "example": "current_time,lookup_order",
    });
    json!({
        "operationId": "getToolUsage",
        "tags": ["Tools"],
        "summary": "Get the guidance on tools as one block of a prompt",
        "description": "Tools that are unknown, not active or without guidance are left out.",
        "parameters": [names, parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The block.", "ToolUsage")}),
            &[("400", WRONG), ("403", ADMINS)],
        ),
    })
}

/// `GET /admin/approvals`
pub(crate) fn list_approvals() -> Value {
    let pending = json!({
        "name": "pending",
        "in": "query",
        "description": "Only those that can still be decided.",
        "schema": {"type": "boolean", "default": false},
    });
    json!({
        "operationId": "listApprovals",
        "tags": ["Tools"],
        "summary": "List the calls that wait for somebody to agree",
        "parameters": [pending, parameter("Limit"), parameter("After"), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("One page, the newest first.", "ApprovalList")}),
            &[("400", WRONG), ("403", ADMINS)],
        ),
    })
}

/// `GET /admin/approvals/{id}`
pub(crate) fn get_approval() -> Value {
    json!({
        "operationId": "getApproval",
        "tags": ["Tools"],
        "summary": "Get an approval",
        "parameters": [approval_id(), parameter("RequestId")],
        "responses": with_failures(
            json!({"200": success("The approval.", "Approval")}),
            &[("403", ADMINS), ("404", NO_APPROVAL)],
        ),
    })
}

/// `POST /admin/approvals/{id}`
pub(crate) fn decide_approval() -> Value {
    json!({
        "operationId": "decideApproval",
        "tags": ["Tools"],
        "summary": "Agree to a call, or refuse it",
        "description": "The first decision stands. The same again changes nothing.",
        "parameters": [approval_id(), parameter("RequestId")],
        "requestBody": body("Decide", json!({"decision": "approve"})),
        "responses": with_failures(
            json!({"200": success("The approval as it is now.", "Approval")}),
            &[
                ("400", WRONG),
                ("403", ADMINS),
                ("404", NO_APPROVAL),
                ("408", LATE),
                ("409", "It was decided the other way, or its time is over."),
                ("413", LARGE),
                ("415", UNDECLARED),
            ],
        ),
    })
}

fn name() -> Value {
    path("name", "The tool, by its name, whatever its case.", "string")
}

fn approval_id() -> Value {
    path("id", "The approval, by the id of the item that asks.", "string")
}

fn common() -> Value {
    json!({
        "name": "common",
        "in": "query",
        "description": "The installation's common tools; changing those is for operators.",
        "schema": {"type": "boolean", "default": false},
    })
}
