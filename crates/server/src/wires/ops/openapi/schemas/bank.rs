//! The tool bank and what waits for an approval, as administrators see them.

use serde_json::{Value, json};

use super::{Schemas, admin::list, kept::deleted, object, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("BankTool", tool()),
        ("ToolList", list("BankTool", "string", "Tools by name.")),
        ("PutTool", put_tool()),
        ("DeletedTool", deleted("tool.deleted")),
        (
            "TryTool",
            object(
                "A call to be made.",
                &[],
                json!({"arguments": {"type": ["object", "null"], "description": "None at all where nothing is said."}}),
            ),
        ),
        ("Trial", trial()),
        ("ToolStatistics", statistics()),
        (
            "ToolUsage",
            object(
                "Guidance on tools for a prompt.",
                &["object", "block"],
                json!({
                    "object": {"const": "tool.usage"},
                    "block": text_or_null("One text for all of them; null when none has guidance."),
                }),
            ),
        ),
        ("Approval", approval()),
        ("ApprovalList", list("Approval", "string", "Approvals, the newest first.")),
        (
            "Decide",
            object(
                "What is decided.",
                &["decision"],
                json!({
                    "decision": {"enum": ["approve", "deny"]},
                    "reason": text_or_null("Why; the model is told of a refusal's."),
                }),
            ),
        ),
        ("ToolRun", run()),
    ]
}

fn kind() -> Value {
    json!({
        "enum": ["builtin", "http", "mcp", "client"],
        "description": "A function of the server; a request to an HTTP service; a tool of an MCP server; one that the client runs.",
    })
}

fn tool() -> Value {
    object(
        "A tool of the bank.",
        &[
            "name",
            "object",
            "common",
            "active",
            "kind",
            "description",
            "parameters",
            "settings",
            "guidance",
            "timeout",
            "on_error",
            "idempotent",
            "after_call_instruction",
            "requires_approval",
            "created_at",
            "updated_at",
        ],
        json!({
            "name": text("The name that the model calls it by; unique in its bank whatever its case."),
            "object": {"const": "tool"},
            "common": {"type": "boolean", "description": "Whether it is the installation's, for all tenants."},
            "active": {"type": "boolean", "description": "Whether it may be used."},
            "kind": kind(),
            "description": text("What the model is told about it."),
            "parameters": {"type": "object", "description": "The JSON Schema of its arguments."},
            "settings": {"type": "object", "description": "What its kind needs to know; each secret as `{\"secret\": \"***\"}`."},
            "guidance": text_or_null("When and how to use it, for the prompt."),
            "timeout": {"type": "number", "description": "Seconds that one call may take."},
            "on_error": on_error(),
            "idempotent": {"type": "boolean", "description": "Whether running it twice is as good as once."},
            "after_call_instruction": text_or_null("What the model is told after a call that went well."),
            "requires_approval": {"enum": [false, "caller", "admin"], "description": "Who has to agree to a call first."},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "updated_at": {"type": "integer", "description": "Seconds since 1970."},
        }),
    )
}

fn on_error() -> Value {
    json!({
        "enum": ["continue", "fail_turn"],
        "description": "Whether the model is told of a failure and goes on, or the turn fails.",
    })
}

fn put_tool() -> Value {
    let or_null = |mut schema: Value| {
        schema["enum"].as_array_mut().expect("this shape lists its values").push(Value::Null);
        schema
    };
    let ignored = |description: &str| json!({"description": description});
    let mut schema = object(
        "A tool to be kept. Null counts as not said.",
        &["kind"],
        json!({
            "name": text_or_null("The name in the path, if it is said again."),
            "kind": kind(),
            "description": text_or_null("What the model is told about it. Has to be said, unless a built-in tool says it."),
            "parameters": {"type": ["object", "null"], "description": "The JSON Schema of its arguments; without one it takes none, or what the built-in tool takes."},
            "settings": {
                "type": ["object", "null"],
                "description": "`builtin`: `function`. `http`: `method`, `url`, `headers`, `body`, `result_path`. `mcp`: `server`, `tool`, `authorization`, `headers`. A header written as `{\"secret\": …}` is sealed and never shown.",
            },
            "guidance": text_or_null("When and how to use it, for the prompt."),
            "timeout": {"type": ["number", "string", "null"], "default": 30, "description": "Seconds, or a text such as `30s` or `500ms`."},
            "on_error": or_null(on_error()),
            "idempotent": {"type": ["boolean", "null"], "default": false, "description": "Whether running it twice is as good as once."},
            "after_call_instruction": text_or_null("What the model is told after a call that went well."),
            "requires_approval": {"enum": [false, true, "caller", "admin", null], "default": false, "description": "Who has to agree to a call first; `true` is `caller`."},
            "active": {"type": ["boolean", "null"], "default": true, "description": "Whether it may be used."},
            "common": {"type": ["boolean", "null"], "description": "If it is said, the bank that is asked."},
            "object": ignored("Changes nothing."),
            "created_at": ignored("Changes nothing."),
            "updated_at": ignored("Changes nothing."),
        }),
    );
    schema["additionalProperties"] = json!(false);
    schema
}

fn trial() -> Value {
    object(
        "How a call went.",
        &["output", "error", "duration_ms"],
        json!({
            "output": {"description": "What the tool gave: any JSON value."},
            "error": {
                "type": ["object", "null"],
                "description": "Why it gave nothing.",
                "required": ["code", "message", "detail"],
                "properties": {
                    "code": {"enum": ["unknown_tool", "invalid_arguments", "refused", "broken", "timed_out", "too_large"]},
                    "message": text("What a model would be told."),
                    "detail": text_or_null("What happened, for whoever looks after the tool."),
                },
            },
            "duration_ms": {"type": "integer", "minimum": 0},
        }),
    )
}

fn statistics() -> Value {
    let number = |description: &str| json!({"type": "integer", "minimum": 0, "description": description});
    let or_null = |description: &str| json!({"type": ["integer", "null"], "description": description});
    object(
        "How the calls of a tool went.",
        &["name", "object", "calls", "failed", "unknown", "average_ms", "longest_ms", "last_called_at"],
        json!({
            "name": text("The tool."),
            "object": {"const": "tool.statistics"},
            "calls": number("Calls that began."),
            "failed": number("Calls that ended in an error."),
            "unknown": number("Calls whose end is not known."),
            "average_ms": or_null("What a call took whose end is known; null without one."),
            "longest_ms": or_null("What the longest of them took."),
            "last_called_at": or_null("Seconds since 1970; null when never."),
        }),
    )
}

fn approval() -> Value {
    let moment = || json!({"type": "integer", "description": "Seconds since 1970."});
    object(
        "A call of a tool that waits, or waited, for somebody to agree.",
        &[
            "id",
            "object",
            "status",
            "response_id",
            "user",
            "call_id",
            "tool",
            "arguments",
            "decider",
            "asked_at",
            "expires_at",
            "decision",
            "used_by",
        ],
        json!({
            "id": text("The id of the item that asks."),
            "object": {"const": "approval"},
            "status": {"enum": ["pending", "approved", "denied", "expired", "used"]},
            "response_id": text("The response that it was asked in."),
            "user": text("Whose turn it is."),
            "call_id": text("The model's id for the call."),
            "tool": {
                "type": "object",
                "required": ["label", "name"],
                "properties": {"label": text("Whose tool it is."), "name": text("Its own name there.")},
            },
            "arguments": text("The exact text that the model sent."),
            "decider": {"enum": ["caller", "admin"], "description": "Who may decide; an administrator always may."},
            "asked_at": moment(),
            "expires_at": moment(),
            "decision": {
                "type": ["object", "null"],
                "required": ["approve", "reason", "by", "at"],
                "properties": {
                    "approve": {"type": "boolean"},
                    "reason": text_or_null("Why."),
                    "by": text("The user who decided."),
                    "at": moment(),
                },
            },
            "used_by": text_or_null("The response that has acted on it."),
        }),
    )
}

fn run() -> Value {
    object(
        "One call of a tool that the server ran.",
        &[
            "number",
            "item_id",
            "call_id",
            "label",
            "name",
            "arguments",
            "idempotent",
            "started_at",
            "unknown",
            "duration_ms",
            "output",
            "error",
            "detail",
        ],
        json!({
            "number": {"type": "integer", "minimum": 0, "description": "From 0, within the turn."},
            "item_id": text("The item that shows it."),
            "call_id": text("The model's id for the call."),
            "label": text("Whose tool it is: `bank`, or the MCP server."),
            "name": text("Its own name there."),
            "arguments": text("The exact text that the model sent."),
            "idempotent": {"type": "boolean", "description": "Whether running it twice is as good as once."},
            "started_at": {"type": "integer", "description": "Seconds since 1970."},
            "unknown": {"type": "boolean", "description": "Whether it is not known how it ended, or whether it ran."},
            "duration_ms": {"type": ["integer", "null"]},
            "output": {"description": "What the model was told: any JSON value."},
            "error": text_or_null("Why it failed or was not run."),
            "detail": text_or_null("What happened."),
        }),
    )
}
