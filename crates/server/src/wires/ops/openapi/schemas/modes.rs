//! Modes, as administrators see them.

use amalgam_core::execute::request::Operator;
use serde_json::{Value, json};

use super::{Schemas, admin::list, kept::deleted, list_of, object, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("Mode", mode()),
        ("ModeList", list("Mode", "string", "Modes by name.")),
        ("PutMode", put_mode()),
        ("DeletedMode", deleted("mode.deleted")),
        ("ScopeCondition", condition()),
    ]
}

fn mode() -> Value {
    let names = |what: &str| json!({"type": "array", "items": {"type": "string"}, "description": what});
    let time = || json!({"type": ["integer", "null"], "description": "Seconds since 1970; null for a seeded mode."});
    object(
        "What an agent is for a while.",
        &[
            "name",
            "object",
            "display_name",
            "system_prompt",
            "tool_choice",
            "tools",
            "rag_scope",
            "seeded",
            "unknown_tools",
            "created_at",
            "updated_at",
        ],
        json!({
            "name": text("Unique in its tenant, whatever its case."),
            "object": {"const": "mode"},
            "display_name": text("For people."),
            "system_prompt": text("What the model is told."),
            "tool_choice": text_or_null("The tool that the model has to call first in each turn."),
            "tools": names("The names of its tools besides those of the profile."),
            "rag_scope": scope("What is looked up in turns that bring no scope. All conditions hold at once.", false),
            "seeded": {"type": "boolean", "description": "Whether it is as every tenant has it."},
            "unknown_tools": names("Tools that no bank has; they are left out of turns."),
            "created_at": time(),
            "updated_at": time(),
        }),
    )
}

fn put_mode() -> Value {
    let ignored = || json!({"description": "Changes nothing."});
    let mut schema = object(
        "A mode to be kept. Null counts as not said.",
        &[],
        json!({
            "name": text_or_null("The name in the path, if it is said again."),
            "display_name": {"type": ["string", "null"], "maxLength": 200, "description": "For people; the name, where none is said."},
            "tool_choice": {"type": ["string", "null"], "maxLength": 64, "description": "The tool that the model has to call first in each turn that offers it, instead of the profile's."},
            "system_prompt": {"type": ["string", "null"], "maxLength": 100_000, "description": "What the model is told."},
            "tools": {"type": ["array", "null"], "maxItems": 128, "items": {"type": "string"}, "description": "The names of its tools, in order."},
            "rag_scope": scope("Conditions on what is looked up in turns that bring none.", true),
            "object": ignored(),
            "seeded": ignored(),
            "unknown_tools": ignored(),
            "created_at": ignored(),
            "updated_at": ignored(),
        }),
    );
    schema["additionalProperties"] = json!(false);
    schema
}

fn scope(description: &str, or_null: bool) -> Value {
    let mut schema = list_of("ScopeCondition");
    schema["description"] = json!(description);
    if or_null {
        schema["type"] = json!(["array", "null"]);
    }
    schema
}

fn condition() -> Value {
    object(
        "A condition on what is looked up.",
        &["key", "operator", "values"],
        json!({
            "key": text("What is compared: `path`, `language`, `repo`, or a key of the tenant's own."),
            "operator": {"enum": Operator::ALL.map(Operator::name)},
            "values": {"type": "array", "minItems": 1, "items": {"type": "string"}, "description": "One of them is enough for `==` and `contains`; none may match for the other two."},
        }),
    )
}
