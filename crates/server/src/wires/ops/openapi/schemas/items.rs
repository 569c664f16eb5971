//! What conversations are made of, in and out.

use amalgam_protocol::{ClientTool, HostedItem};
use serde_json::{Value, json};

use super::{Schemas, any_of, list_of, object, reference, text, text_or_null};

const CLIENT_TOOLS: [ClientTool; 5] =
    [ClientTool::Shell, ClientTool::LocalShell, ClientTool::ApplyPatch, ClientTool::ToolSearch, ClientTool::Computer];

/// The outputs of [`CLIENT_TOOLS`]; one of them has a name of its own.
const CLIENT_OUTPUTS: [&str; 5] = [
    "shell_call_output",
    "local_shell_call_output",
    "apply_patch_call_output",
    "tool_search_output",
    "computer_call_output",
];

/// Kinds that have a shape of their own here.
const SHAPED: [&str; 11] = [
    "message",
    "agent_message",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "reasoning",
    "additional_tools",
    "item_reference",
    "compaction",
    "compaction_summary",
];

pub(super) fn schemas() -> Schemas {
    vec![
        ("InputItem", input_item()),
        ("OutputItem", output_item()),
        ("Message", message()),
        ("OutputMessage", output_message()),
        (
            "FunctionCall",
            call("The model asks for a function.", "function_call", "arguments", "JSON as the model wrote it."),
        ),
        ("FunctionCallOutput", call_output("What the function gave back.", "function_call_output")),
        (
            "CustomToolCall",
            call(
                "The model asks for a tool that takes free text.",
                "custom_tool_call",
                "input",
                "The text for the tool.",
            ),
        ),
        ("CustomToolCallOutput", call_output("What the tool gave back.", "custom_tool_call_output")),
        ("ClientToolCall", client_call()),
        ("ClientToolCallOutput", client_output()),
        ("Reasoning", reasoning()),
        (
            "AdditionalTools",
            object(
                "Tools that arrive inside the history.",
                &["type"],
                json!({"type": {"const": "additional_tools"}, "tools": list_of("Tool")}),
            ),
        ),
        (
            "ItemReference",
            object(
                "An item that is kept on the server, and stands here by its id.",
                &["id"],
                json!({"type": {"enum": ["item_reference", null]}, "id": {"type": "string"}}),
            ),
        ),
        (
            "Compaction",
            object(
                "A summary in place of the history before it.",
                &["type"],
                json!({
                    "type": {"enum": ["compaction", "compaction_summary"]},
                    "encrypted_content": text_or_null("The sealed summary."),
                }),
            ),
        ),
        (
            "HostedItem",
            object(
                "A step of a tool that this server ran (`mcp_call`, `file_search_call` and what belongs to them), which \
                 every upstream is told as a call and its output; or of one that an upstream ran, as the upstream wrote it, \
                 which upstreams that speak Responses are handed and which is a loss for others.",
                &["type"],
                json!({"type": {"enum": HostedItem::ALL.map(|(name, _)| name)}}),
            ),
        ),
        (
            "OtherItem",
            object(
                "A kind that is not listed here: kept, and passed along where the upstream speaks Responses.",
                &["type"],
                json!({"type": {"type": "string", "not": {"enum": known()}}}),
            ),
        ),
    ]
}

/// Every kind that is known by name.
fn known() -> Vec<&'static str> {
    let calls = CLIENT_TOOLS.map(ClientTool::call_type);
    let hosted = HostedItem::ALL.map(|(name, _)| name);
    [&SHAPED[..], &calls, &CLIENT_OUTPUTS, &hosted].concat()
}

fn input_item() -> Value {
    json!({"anyOf": any_of(&[
        "Message",
        "FunctionCall",
        "FunctionCallOutput",
        "CustomToolCall",
        "CustomToolCallOutput",
        "ClientToolCall",
        "ClientToolCallOutput",
        "Reasoning",
        "AdditionalTools",
        "ItemReference",
        "Compaction",
        "HostedItem",
        "OtherItem",
    ])})
}

/// What the model produced always has an id; messages and calls have a status too.
fn output_item() -> Value {
    let whole = |name: &str, required: &[&str]| json!({"allOf": [reference(name), {"required": required}]});
    json!({"anyOf": [
        reference("OutputMessage"),
        whole("FunctionCall", &["id", "status", "arguments"]),
        whole("CustomToolCall", &["id", "status", "input"]),
        whole("ClientToolCall", &["id", "status", "call_id"]),
        whole("Reasoning", &["id", "summary"]),
        reference("Compaction"),
        reference("HostedItem"),
        reference("OtherItem"),
    ]})
}

fn message() -> Value {
    object(
        "Something said. The type may be left out.",
        &["role", "content"],
        json!({
            "type": {"enum": ["message", "agent_message", null]},
            "id": text_or_null("An id of the server's, or one that the client made."),
            "role": text("`user`, `assistant`, `system` or `developer`; any other counts as `user`."),
            "content": reference("Content"),
            "phase": text_or_null("`commentary` or `final_answer`."),
            "status": text_or_null("`in_progress`, `completed`, `incomplete`."),
        }),
    )
}

fn output_message() -> Value {
    object(
        "Something that the model said.",
        &["type", "id", "status", "role", "content"],
        json!({
            "type": {"const": "message"},
            "id": {"type": "string"},
            "status": {"enum": ["in_progress", "completed", "incomplete"]},
            "role": {"const": "assistant"},
            "phase": text("`commentary` or `final_answer`; absent where the upstream makes no difference."),
            "content": {"type": "array", "items": {"anyOf": any_of(&["OutputText", "RefusalPart"])}},
        }),
    )
}

fn call(description: &str, kind: &str, payload: &str, about: &str) -> Value {
    object(
        description,
        &["type", "call_id", "name"],
        json!({
            "type": {"const": kind},
            "id": text_or_null("The id of the item."),
            "call_id": text("What the output will name."),
            "name": text("The tool."),
            "namespace": text_or_null("The namespace that the client has the tool in."),
            payload: text_or_null(about),
            "status": text_or_null("`in_progress`, `completed`, `incomplete`."),
        }),
    )
}

fn call_output(description: &str, kind: &str) -> Value {
    object(
        description,
        &["type", "call_id"],
        json!({
            "type": {"const": kind},
            "id": text_or_null("The id of the item."),
            "call_id": text("The call that this answers."),
            "output": {"description": "A text, a list of parts, or any other JSON value, which is handed on as JSON."},
        }),
    )
}

fn client_call() -> Value {
    object(
        "A call of a tool that the client runs and that has items of its own.",
        &["type"],
        json!({
            "type": {"enum": CLIENT_TOOLS.map(ClientTool::call_type)},
            "id": text_or_null("The id of the item; stands in for `call_id` where that is absent."),
            "call_id": text_or_null("What the output will name."),
            "action": {"type": "object", "description": "What a shell or computer is asked to do."},
            "operation": {"type": "object", "description": "The patch to apply."},
            "arguments": {"description": "What to search tools for."},
            "status": text_or_null("`in_progress`, `completed`, `incomplete`."),
        }),
    )
}

fn client_output() -> Value {
    object(
        "The output of such a call.",
        &["type"],
        json!({
            "type": {"enum": CLIENT_OUTPUTS},
            "call_id": text_or_null("The call that this answers; `id` stands in where it is absent."),
            "output": {"description": "What came out."},
            "tools": {"description": "What a tool search found."},
            "status": text_or_null("`completed`, `failed` and the like."),
        }),
    )
}

fn reasoning() -> Value {
    object(
        "What the model thought.",
        &["type"],
        json!({
            "type": {"const": "reasoning"},
            "id": text_or_null("The id of the item."),
            "summary": {"type": ["array", "null"], "items": reference("SummaryText")},
            "content": {"type": ["array", "null"], "items": reference("TextPart")},
            "encrypted_content": text_or_null("For the model alone: send it back as it came."),
        }),
    )
}
