//! The response object: every key is always there, but for the conversation of one that belongs to none.

use serde_json::{Map, Value, json};

use super::{Schemas, list_of, object, reference, text};

pub(super) fn schemas() -> Schemas {
    vec![("Response", response()), ("Usage", usage()), ("Provenance", provenance())]
}

fn provenance() -> Value {
    object(
        "Which model answered, and what of the request it did not see. Not a part of the Responses API.",
        &["model", "losses"],
        json!({
            "model": {"type": ["string", "null"], "description": "`upstream/model`; null until a model has accepted."},
            "losses": {
                "type": "array",
                "description": "`field: reason`, one text per loss.",
                "items": {"type": "string"},
            },
        }),
    )
}

fn response() -> Value {
    let mut properties = Map::new();
    for group in [outcome(), repeated()] {
        if let Value::Object(group) = group {
            properties.extend(group);
        }
    }
    let required: Vec<String> = properties.keys().cloned().collect();
    let conversation = object("The conversation that it belongs to.", &["id"], json!({"id": {"type": "string"}}));
    properties.insert("conversation".to_owned(), conversation);
    json!({
        "type": "object",
        "description": "A response. Every required key is always there, null where nothing is to be said.",
        "required": required,
        "properties": properties,
    })
}

fn outcome() -> Value {
    json!({
        "id": {"type": "string", "pattern": "^resp_AM-[0-9]{13}-[a-z0-9]{24}$"},
        "object": {"const": "response"},
        "created_at": {"type": "integer", "description": "Seconds since 1970."},
        "completed_at": {"type": ["integer", "null"], "description": "Seconds since 1970, once it has completed."},
        "status": {"enum": ["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]},
        "error": {"description": "Why it failed.", "anyOf": [reference("Error"), {"type": "null"}]},
        "incomplete_details": {
            "description": "Why it ended early: `max_output_tokens`, `content_filter`, or the upstream's own reason.",
            "anyOf": [object("The reason.", &["reason"], json!({"reason": {"type": "string"}})), {"type": "null"}],
        },
        "output": list_of("OutputItem"),
        "usage": {"description": "Null until the end.", "anyOf": [reference("Usage"), {"type": "null"}]},
        "amalgam": reference("Provenance"),
    })
}

/// What the response repeats of its request, with every default filled in.
fn repeated() -> Value {
    let setting = |kind: &str| json!({"type": kind});
    let or_null = |kind: &str| json!({"type": [kind, "null"]});
    json!({
        "model": text("The name that was asked for."),
        "instructions": {"anyOf": [reference("Input"), {"type": "null"}]},
        "previous_response_id": or_null("string"),
        "tools": list_of("Tool"),
        "tool_choice": reference("ToolChoice"),
        "parallel_tool_calls": setting("boolean"),
        "max_tool_calls": or_null("integer"),
        "text": reference("TextSettings"),
        "reasoning": {"allOf": [reference("ReasoningSettings"), {"required": ["effort", "summary"]}]},
        "max_output_tokens": or_null("integer"),
        "temperature": setting("number"),
        "top_p": setting("number"),
        "presence_penalty": setting("number"),
        "frequency_penalty": setting("number"),
        "top_logprobs": setting("integer"),
        "truncation": {"enum": ["auto", "disabled"]},
        "store": {"type": "boolean", "description": "Whether the response is really kept."},
        "background": {"type": "boolean", "description": "Whether the turn really goes on without the caller."},
        "service_tier": setting("string"),
        "metadata": reference("Metadata"),
        "safety_identifier": or_null("string"),
        "prompt_cache_key": or_null("string"),
    })
}

fn usage() -> Value {
    let count = json!({"type": "integer", "minimum": 0});
    object(
        "What the turn cost, in tokens.",
        &["input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"],
        json!({
            "input_tokens": count,
            "input_tokens_details": object(
                "Of those.",
                &["cached_tokens", "cache_write_tokens"],
                json!({"cached_tokens": count, "cache_write_tokens": count}),
            ),
            "output_tokens": count,
            "output_tokens_details": object("Of those.", &["reasoning_tokens"], json!({"reasoning_tokens": count})),
            "total_tokens": count,
            "estimated": {"const": true, "description": "Counted here, at least in part, because the upstream did not say."},
            "reported": object(
                "Where only some of the turn's calls are counted here: what the upstream has reported of the others.",
                &["input_tokens", "output_tokens", "total_tokens"],
                json!({"input_tokens": count, "output_tokens": count, "total_tokens": count}),
            ),
        }),
    )
}
