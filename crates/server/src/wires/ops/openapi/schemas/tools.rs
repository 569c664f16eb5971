//! What may be called, and what is said about choosing.

use serde_json::{Value, json};

use super::{Schemas, any_of, list_of, object, reference, text, text_or_null};

const CLIENT_TOOLS: [&str; 6] =
    ["shell", "local_shell", "apply_patch", "tool_search", "computer", "computer_use_preview"];

const TOOLS: [&str; 6] = ["FunctionTool", "CustomTool", "NamespaceTool", "ClientTool", "FileSearchTool", "OtherTool"];

pub(super) fn schemas() -> Schemas {
    vec![
        ("Tool", json!({"anyOf": any_of(&TOOLS)})),
        ("FunctionTool", function()),
        ("CustomTool", custom()),
        ("NamespaceTool", namespace()),
        ("ClientTool", client()),
        ("FileSearchTool", file_search()),
        ("OtherTool", other()),
        ("ToolChoice", choice()),
        ("NamedToolChoice", named_choice()),
        ("AllowedTools", allowed()),
    ]
}

fn function() -> Value {
    object(
        "A function with a JSON Schema for its arguments.",
        &["type", "name"],
        json!({
            "type": {"const": "function"},
            "name": text("What the model calls it by."),
            "description": text_or_null("What the model is told about it."),
            "parameters": {"type": ["object", "null"], "description": "A JSON Schema."},
            "strict": {"type": ["boolean", "null"], "description": "Whether arguments must follow it exactly."},
            "defer_loading": {"type": ["boolean", "null"], "description": "Left out until a search finds it."},
        }),
    )
}

fn custom() -> Value {
    object(
        "A tool that takes free text. An upstream that has none is offered a function with one text, and its calls \
         come back as calls of this tool.",
        &["type", "name"],
        json!({
            "type": {"const": "custom"},
            "name": text("What the model calls it by."),
            "description": text_or_null("What the model is told about it."),
            "format": {
                "type": ["object", "null"],
                "description": "`{\"type\": \"text\"}`, or a grammar with `syntax` and `definition`.",
            },
        }),
    )
}

fn namespace() -> Value {
    object(
        "A group of tools under one name.",
        &["type", "name"],
        json!({
            "type": {"const": "namespace"},
            "name": text("The group's name."),
            "description": text_or_null("What the model is told about the group."),
            "tools": {"description": "Functions and custom tools.", "anyOf": [list_of("Tool"), {"type": "null"}]},
        }),
    )
}

fn client() -> Value {
    object(
        "A tool that the client runs and that has items of its own.",
        &["type"],
        json!({
            "type": {"enum": CLIENT_TOOLS},
            "execution": text_or_null("Who runs a tool search: `client` or `server`."),
            "description": text_or_null("What the model is told about it."),
            "parameters": {"description": "The JSON Schema of a tool search."},
        }),
    )
}

fn file_search() -> Value {
    object(
        "A search over collections of the tenant's, which this server makes on every upstream. Over stores of an upstream \
         (`vs_…`) it is that upstream's, and a loss for those that do not speak Responses.",
        &["type"],
        json!({
            "type": {"const": "file_search"},
            "vector_store_ids": {"type": "array", "items": {"type": "string"}, "description": "Names of collections."},
            "max_num_results": {"type": ["integer", "null"], "minimum": 1, "maximum": 50, "default": 10},
            "filters": {
                "type": ["object", "null"],
                "description": "`{\"type\", \"key\", \"value\"}` with `eq`, `ne`, `in` or `nin`, or `{\"type\", \"filters\"}` with `and`; with `or` for `eq` and `in` of one key.",
            },
            "ranking_options": {
                "type": ["object", "null"],
                "description": "Of these, `score_threshold` is honoured: the least score of a result, from 0 to 1.",
            },
        }),
    )
}

fn other() -> Value {
    let listed = [&["function", "custom", "namespace", "file_search"][..], &CLIENT_TOOLS].concat();
    object(
        "A tool that a server runs (`web_search`, `mcp`, `code_interpreter` …) or a kind that is not \
         listed here. Upstreams that speak Responses are handed it; for others it is a loss.",
        &["type"],
        json!({"type": {"type": "string", "not": {"enum": listed}}}),
    )
}

fn choice() -> Value {
    json!({
        "description": "What must or must not be called.",
        "anyOf": [
            {"enum": ["none", "auto", "required", "any"], "description": "`any` is another word for `required`."},
            reference("NamedToolChoice"),
            reference("AllowedTools"),
        ],
    })
}

fn named_choice() -> Value {
    object(
        "One tool that must be called: by name for `function` (also written `tool`) and `custom`, by `server_label` \
         for `mcp`, by type alone for the others.",
        &["type"],
        json!({
            "type": {"type": "string", "not": {"const": "allowed_tools"}},
            "name": text("The function, custom tool, or tool of the MCP server."),
            "server_label": text("The MCP server."),
        }),
    )
}

fn allowed() -> Value {
    object(
        "A hard limit on what may be called.",
        &["type", "tools"],
        json!({
            "type": {"const": "allowed_tools"},
            "mode": {"enum": ["auto", "required", null], "description": "Whether one of them must be called."},
            "tools": list_of("NamedToolChoice"),
        }),
    )
}
