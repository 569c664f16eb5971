//! Requests, answers and a stream to copy. The tests read every one of them with the server's own reader.

use serde_json::{Value, json};

/// Bodies of `POST /v1/responses`.
pub(super) fn requests() -> Value {
    json!({
        "text": {
            "summary": "A question",
            "value": {"model": "demo", "input": "What is an amalgam?"},
        },
        "conversation": {
            "summary": "A conversation, streamed",
            "value": {
                "model": "demo",
                "instructions": "Answer in one sentence.",
                "input": [
                    {"role": "user", "content": "Who wrote Faust?"},
                    {"role": "assistant", "content": [{"type": "output_text", "text": "Goethe did."}]},
                    {"role": "user", "content": [{"type": "input_text", "text": "And when?"}]},
                ],
                "stream": true,
            },
        },
        "image": {
            "summary": "A picture",
            "value": {
                "model": "demo",
                "input": [{"role": "user", "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": "https://example.com/cat.png", "detail": "low"},
                ]}],
            },
        },
        "tool": {
            "summary": "A tool on offer",
            "value": {"model": "demo", "input": "Call the tool: how warm is it in Rome?", "tools": [weather()]},
        },
        "tool_result": {
            "summary": "The tool's result, sent back with the call",
            "value": {
                "model": "demo",
                "input": [
                    {"role": "user", "content": "Call the tool: how warm is it in Rome?"},
                    {
                        "type": "function_call",
                        "call_id": "call_1",
                        "name": "get_weather",
                        "arguments": "{\"city\":\"Rome\"}",
                    },
                    {"type": "function_call_output", "call_id": "call_1", "output": "31 °C"},
                ],
                "tools": [weather()],
                "tool_choice": {
                    "type": "allowed_tools",
                    "mode": "auto",
                    "tools": [{"type": "function", "name": "get_weather"}],
                },
            },
        },
        "structured_output": {
            "summary": "An answer that follows a schema",
            "value": {
                "model": "demo",
                "input": "Name a city.",
                "text": {"format": {
                    "type": "json_schema",
                    "name": "city",
                    "strict": true,
                    "schema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                        "additionalProperties": false,
                    },
                }},
            },
        },
    })
}

fn weather() -> Value {
    json!({
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": false,
        },
        "strict": true,
    })
}

/// Whole answers.
pub(super) fn responses() -> Value {
    json!({"text": {"summary": "A short answer", "value": response()}})
}

fn response() -> Value {
    let mut response = json!({
        "id": "resp_AM-1760000000000-k3v9x2m7q1w8e5r4t6y0u2i4",
        "object": "response",
        "created_at": 1_760_000_000,
        "completed_at": 1_760_000_001,
        "status": "completed",
        "error": null,
        "incomplete_details": null,
        "output": [{
            "type": "message",
            "id": "msg_AM-a1b2c3d4e5f6g7h8i9j0k1l2",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A mixture.", "annotations": [], "logprobs": []}],
        }],
        "usage": {
            "input_tokens": 6,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 3,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 9,
        },
        "amalgam": {"model": "demo/demo", "losses": []},
    });
    let settings = json!({
        "background": false,
        "instructions": null,
        "max_output_tokens": null,
        "max_tool_calls": null,
        "model": "demo",
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "prompt_cache_key": null,
        "reasoning": {"effort": null, "summary": null},
        "safety_identifier": null,
        "service_tier": "default",
        "store": false,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "metadata": {},
    });
    if let (Value::Object(response), Value::Object(settings)) = (&mut response, settings) {
        response.extend(settings);
    }
    response
}

/// One event of a stream.
pub(super) fn stream() -> Value {
    json!({"delta": {
        "summary": "One event; on the wire after the line `event: response.output_text.delta`",
        "value": {
            "type": "response.output_text.delta",
            "sequence_number": 4,
            "item_id": "msg_AM-a1b2c3d4e5f6g7h8i9j0k1l2",
            "output_index": 0,
            "content_index": 0,
            "delta": "A mix",
            "logprobs": [],
        },
    }})
}
