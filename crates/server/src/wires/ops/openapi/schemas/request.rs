//! The body of `POST /v1/responses`.

use serde_json::{Value, json};

use super::{Schemas, any_of, list_of, object, reference, text, text_or_null};

pub(super) fn schemas() -> Schemas {
    vec![
        ("CreateResponse", create_response()),
        ("Input", input()),
        ("Metadata", metadata()),
        ("ReasoningSettings", reasoning()),
        ("TextSettings", text_settings()),
        ("TextFormat", json!({"anyOf": any_of(&["PlainFormat", "JsonObjectFormat", "JsonSchemaFormat"])})),
        ("PlainFormat", format_of("Plain text.", "text")),
        ("JsonObjectFormat", format_of("Any JSON object.", "json_object")),
        ("JsonSchemaFormat", json_schema_format()),
    ]
}

fn create_response() -> Value {
    let mut properties = json!({});
    for group in [said(), tools(), sampling(), delivery(), told_along()] {
        if let (Value::Object(properties), Value::Object(group)) = (&mut properties, group) {
            properties.extend(group);
        }
    }
    object(
        "What is asked. Null counts as not said. A field that is not listed here is handed to an upstream that may \
         know it, or else listed as a loss. `model` is needed, and one of `input` and `instructions`.",
        &["model"],
        properties,
    )
}

fn said() -> Value {
    json!({
        "model": text("A configured name, `UPSTREAM/model`, or a name that an upstream lists."),
        "input": nullable(reference("Input"), "What is said."),
        "instructions": nullable(reference("Input"), "What comes before everything else."),
        "previous_response_id": text_or_null(
            "The response that this one goes on from: what it was given and what it said come first, its instructions do \
             not. Not together with `conversation`.",
        ),
        "conversation": {
            "type": ["string", "object", "null"],
            "description": "The conversation that this one goes on in, by its id or as an object with one: its items come \
                first, and input and output are added to it.",
        },
        "prompt": {"type": ["object", "null"], "description": "A prompt template. Not supported: 400."},
        "truncation": nullable(json!({"enum": ["auto", "disabled"]}), "Whether a history that is too long may be cut."),
        "context_management": {"description": "When to compact. Listed as a loss: nothing is compacted."},
    })
}

fn tools() -> Value {
    json!({
        "tools": nullable(list_of("Tool"), "What may be called; 128 at most unless the operator says otherwise."),
        "tool_choice": nullable(reference("ToolChoice"), "What must or must not be called. Default: `auto`."),
        "parallel_tool_calls": {"type": ["boolean", "null"], "description": "Whether one answer may hold several calls."},
        "max_tool_calls": at_least_one("The most calls of tools that the server runs."),
    })
}

fn sampling() -> Value {
    json!({
        "text": nullable(reference("TextSettings"), "The shape of the answer's text."),
        "reasoning": nullable(reference("ReasoningSettings"), "How much to think, and what to show of it."),
        "max_output_tokens": at_least_one("The most tokens of the answer, thoughts included."),
        "temperature": between(0, 2),
        "top_p": between(0, 1),
        "presence_penalty": between(-2, 2),
        "frequency_penalty": between(-2, 2),
        "top_logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": 20},
    })
}

fn delivery() -> Value {
    json!({
        "stream": {"type": ["boolean", "null"], "description": "Whether events are sent as they come. Default: false."},
        "stream_options": {"type": ["object", "null"], "description": "Accepted; nothing in it changes the stream."},
        "store": {
            "type": ["boolean", "null"],
            "description": "Whether the response is kept. Default: true, unless the tenant keeps nothing.",
        },
        "background": {
            "type": ["boolean", "null"],
            "description": "Whether the turn goes on without the caller: the answer comes at once, and what becomes of it \
                is asked for by its id.",
        },
        "include": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "What to send that is left out otherwise, such as `reasoning.encrypted_content` and \
                `message.output_text.logprobs`.",
        },
    })
}

fn told_along() -> Value {
    json!({
        "metadata": nullable(reference("Metadata"), "Comes back in the response."),
        "service_tier": text_or_null("`auto`, `default`, `flex`, `priority`; passed along where the upstream has tiers."),
        "safety_identifier": text_or_null("The end user, hashed; passed along where the upstream takes one."),
        "user": text_or_null("The end user, by its older name."),
        "prompt_cache_key": text_or_null("Helps an upstream to find its cache."),
        "prompt_cache_retention": text_or_null("How long an upstream keeps its cache: `in_memory`, `24h`."),
    })
}

fn input() -> Value {
    json!({
        "description": "A text, or items in their order. Null entries are skipped and listed as losses.",
        "anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"anyOf": [reference("InputItem"), {"type": "null"}]}},
        ],
    })
}

fn metadata() -> Value {
    json!({
        "type": "object",
        "description": "Pairs of texts.",
        "maxProperties": 16,
        "propertyNames": {"maxLength": 64},
        "additionalProperties": {"type": "string", "maxLength": 512},
    })
}

fn reasoning() -> Value {
    object(
        "How much to think, and what to show of it.",
        &[],
        json!({
            "effort": text_or_null("`none`, `minimal`, `low`, `medium`, `high`, `xhigh`."),
            "summary": text_or_null("`auto`, `concise`, `detailed`."),
            "generate_summary": text_or_null("The older name of `summary`, read where that is not said."),
        }),
    )
}

fn text_settings() -> Value {
    object(
        "The shape of the answer's text.",
        &[],
        json!({
            "format": nullable(reference("TextFormat"), "Plain text, JSON, or JSON by a schema. Default: plain text."),
            "verbosity": text_or_null("`low`, `medium`, `high`."),
        }),
    )
}

fn format_of(description: &str, kind: &str) -> Value {
    object(description, &["type"], json!({"type": {"const": kind}}))
}

fn json_schema_format() -> Value {
    object(
        "JSON that follows a schema.",
        &["type", "name", "schema"],
        json!({
            "type": {"const": "json_schema"},
            "name": text("What the schema is called."),
            "description": text_or_null("What the model is told about it."),
            "schema": {
                "type": ["object", "boolean"],
                "description": "A JSON Schema; 2,000 values at most unless the operator says otherwise.",
            },
            "strict": {"type": ["boolean", "null"], "description": "Whether the answer must follow it exactly."},
        }),
    )
}

fn nullable(schema: Value, description: &str) -> Value {
    json!({"description": description, "anyOf": [schema, {"type": "null"}]})
}

fn at_least_one(description: &str) -> Value {
    json!({"type": ["integer", "null"], "minimum": 1, "description": description})
}

fn between(low: i64, high: i64) -> Value {
    json!({"type": ["number", "null"], "minimum": low, "maximum": high})
}
