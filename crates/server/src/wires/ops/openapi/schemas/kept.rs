//! What is kept and asked for again: lists of items, conversations, the word that something is gone.

use serde_json::{Value, json};

use super::{Schemas, list_of, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("ItemList", item_list()),
        ("KeptItem", kept_item()),
        ("CompactResponse", compact_response()),
        ("CompactedResponse", compacted_response()),
        ("CountInputTokens", count_input_tokens()),
        (
            "InputTokens",
            object(
                "A count of tokens.",
                &["object", "input_tokens"],
                json!({"object": {"const": "response.input_tokens"}, "input_tokens": {"type": "integer", "minimum": 0}}),
            ),
        ),
        ("DeletedResponse", deleted("response")),
        ("DeletedConversation", deleted("conversation.deleted")),
        ("Conversation", conversation()),
        (
            "CreateConversation",
            object(
                "What a conversation begins with. Null counts as not said.",
                &[],
                json!({
                    "items": {"anyOf": [items(), {"type": "null"}]},
                    "metadata": {"anyOf": [reference("Metadata"), {"type": "null"}]},
                }),
            ),
        ),
        (
            "UpdateConversation",
            object(
                "What is set anew, in place of what was there; null is none.",
                &["metadata"],
                json!({"metadata": {"anyOf": [reference("Metadata"), {"type": "null"}]}}),
            ),
        ),
        ("AddItems", object("What is added.", &["items"], json!({"items": items()}))),
    ]
}

fn items() -> Value {
    let mut items = list_of("InputItem");
    items["maxItems"] = json!(20);
    items["description"] = json!("Items in their order. A reference stands for the item that it names.");
    items
}

fn item_list() -> Value {
    let id = |description: &str| json!({"type": ["string", "null"], "description": description});
    object(
        "A page of items.",
        &["object", "data", "first_id", "last_id", "has_more"],
        json!({
            "object": {"const": "list"},
            "data": list_of("KeptItem"),
            "first_id": id("The id of the first item; null for an empty page."),
            "last_id": id("The id of the last item: `after` of the next page."),
            "has_more": {"type": "boolean", "description": "Whether the list goes on behind the page."},
        }),
    )
}

/// What was kept always has a type and an id; of messages the content is a list of parts.
fn kept_item() -> Value {
    json!({
        "description": "An item as it is read back: what was sent, with type, id and status spelled out.",
        "allOf": [
            reference("InputItem"),
            {"required": ["type", "id"], "properties": {"type": {"type": "string"}, "id": {"type": "string"}}},
            {
                "if": {"properties": {"type": {"const": "message"}}},
                "then": {"required": ["status"], "properties": {"content": {"type": "array"}}},
            },
        ],
    })
}

fn compact_response() -> Value {
    let nullable =
        |schema: Value, description: &str| json!({"description": description, "anyOf": [schema, {"type": "null"}]});
    object(
        "What is compacted: a response that was kept, a conversation, items, or items behind one of these.",
        &["model"],
        json!({
            "model": text("Who writes the summary; named as in a request for a response."),
            "input": nullable(reference("Input"), "What was said."),
            "instructions": nullable(reference("Input"), "What the model is told before everything else."),
            "previous_response_id": text_or_null("The response whose conversation is compacted."),
            "conversation": {"type": ["string", "object", "null"], "description": "The conversation that is compacted."},
            "prompt_cache_key": text_or_null("Helps an upstream to find its cache."),
            "service_tier": text_or_null("Passed along where the upstream has tiers."),
        }),
    )
}

fn compacted_response() -> Value {
    object(
        "What to go on from.",
        &["id", "object", "created_at", "output", "usage"],
        json!({
            "id": {"type": "string", "pattern": "^resp_AM-[0-9]{13}-[a-z0-9]{24}$"},
            "object": {"const": "response.compaction"},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "output": {
                "type": "array",
                "items": reference("KeptItem"),
                "minItems": 1,
                "description": "Messages as they were sent; the last item is the compaction.",
            },
            "usage": reference("Usage"),
        }),
    )
}

fn count_input_tokens() -> Value {
    json!({
        "description": "A request for a response, of which everything may be left out.",
        "type": "object",
        "properties": {
            "model": text_or_null("Whom it is counted for; the first that the caller may ask where none is named."),
            "input": {"anyOf": [reference("Input"), {"type": "null"}]},
            "instructions": {"anyOf": [reference("Input"), {"type": "null"}]},
            "previous_response_id": text_or_null("The response that it goes on from."),
            "conversation": {"type": ["string", "object", "null"]},
            "tools": {"anyOf": [list_of("Tool"), {"type": "null"}]},
            "tool_choice": {"anyOf": [reference("ToolChoice"), {"type": "null"}]},
            "text": {"anyOf": [reference("TextSettings"), {"type": "null"}]},
            "reasoning": {"anyOf": [reference("ReasoningSettings"), {"type": "null"}]},
        },
    })
}

pub(super) fn deleted(kind: &str) -> Value {
    object(
        "Something that is gone.",
        &["id", "object", "deleted"],
        json!({"id": text("What it was known by."), "object": {"const": kind}, "deleted": {"const": true}}),
    )
}

fn conversation() -> Value {
    object(
        "A conversation.",
        &["id", "object", "created_at", "metadata"],
        json!({
            "id": {"type": "string", "pattern": "^conv_AM-[a-z0-9]{24}$"},
            "object": {"const": "conversation"},
            "created_at": {"type": "integer", "description": "Seconds since 1970."},
            "metadata": reference("Metadata"),
        }),
    )
}
