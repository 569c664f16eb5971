//! Models, and the answers of the operational routes.

use serde_json::{Value, json};

use super::{Schemas, list_of, object, reference, text};

pub(super) fn schemas() -> Schemas {
    vec![
        (
            "ModelList",
            object(
                "What can be asked.",
                &["object", "data"],
                json!({"object": {"const": "list"}, "data": list_of("Model")}),
            ),
        ),
        ("Model", model()),
        ("Capabilities", capabilities()),
        ("Health", object("Alive.", &["status"], json!({"status": {"const": "ok"}}))),
        (
            "Readiness",
            object(
                "Whether work should be sent here.",
                &["status"],
                json!({
                    "status": {"enum": ["ready", "draining", "store_unavailable"]},
                    "turns_in_flight": {"type": "integer", "minimum": 0, "description": "Turns that run now."},
                    "turns_waiting": {
                        "type": "integer",
                        "minimum": 0,
                        "description": "Messages to assistants that wait for the turn before them in their thread.",
                    },
                }),
            ),
        ),
    ]
}

fn model() -> Value {
    object(
        "A name that can be asked for.",
        &["id", "object", "created", "owned_by", "capabilities"],
        json!({
            "id": text("The name to send as `model`."),
            "object": {"const": "model"},
            "created": {"type": "integer", "description": "Seconds since 1970 at which this server learned of it."},
            "owned_by": text("The operator's name of the upstream."),
            "capabilities": reference("Capabilities"),
        }),
    )
}

fn capabilities() -> Value {
    let tokens = |description: &str| json!({"type": ["integer", "null"], "description": description});
    object(
        "What it can do: as the operator has configured it, else as much as its upstream's wire can carry.",
        &[
            "wire",
            "context_window",
            "max_output_tokens",
            "modalities",
            "streaming",
            "tools",
            "structured_output",
            "fallback",
        ],
        json!({
            "wire": {"enum": ["responses", "chat", "anthropic", "demo"], "description": "What the upstream speaks."},
            "context_window": tokens("Tokens that fit; null where the operator has not said."),
            "max_output_tokens": tokens("The most tokens of an answer; null where the operator has not said."),
            "modalities": {"type": "array", "items": {"enum": ["text", "image", "file", "audio"]}},
            "streaming": {"const": true},
            "tools": {"type": "boolean"},
            "structured_output": {"type": "boolean"},
            "fallback": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names that are asked when this one cannot answer.",
            },
        }),
    )
}
