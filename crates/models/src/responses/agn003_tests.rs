use std::collections::HashMap;

use amalgam_core::normalise;
use amalgam_protocol::Raw;
use serde_json::{Value, json};

use super::*;

fn converted(request: &Value, delivery: Delivery) -> (Value, Vec<String>) {
    let text = request.to_string();
    let settings = CreateResponse::read(Raw::parse(text.as_bytes()).unwrap()).unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let images = HashMap::new();
    let request = ModelRequest {
        model: "real-model",
        settings: &settings,
        history: &history,
        delivery,
        seal_context: "",
        images: &images,
    };
    let prepared = convert(&request);
    let fields = prepared.losses.iter().map(|loss| loss.field.to_string()).collect();
    (serde_json::from_slice(&prepared.body).unwrap(), fields)
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_request_is_written_in_the_literal_shapes() {
    // C-03, C-04
    let (body, losses) = converted(
        &json!({
            "instructions": "Boot.", "temperature": 0.2, "store": true, "metadata": {"k": "v"},
            "input": [{"role": "developer", "content": "Rules."}, {"role": "user", "content": "Go."}],
            "tools": [{"type": "function", "name": "f", "x": 1}], "tool_choice": {"type": "function", "name": "f"},
        }),
        Delivery::Stream,
    );
    let expected = json!({
        "model": "real-model", "temperature": 0.2, "stream": true,
        "input": [
            {"role": "system", "content": [text("Boot.\n\nRules.")]},
            {"role": "user", "content": [text("[MODE: general]\n\n[INSTRUCTION]\nGo.")]},
        ],
        "tools": [{"type": "function", "name": "f", "x": 1}],
        "tool_choice": {"type": "tool", "name": "f"},
    });
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn outputs_at_the_end_travel_as_the_block_of_results() {
    // C-06
    let (body, losses) = converted(
        &json!({"input": [
            {"role": "user", "content": "Go."},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
        ]}),
        Delivery::Whole,
    );
    let results = "[TOOL_RESULTS]\n\n- CallId: c1\n  Name: f\n  ArgumentsJson:\n    {\"a\":1}\n  ResultJson:\n    done";
    let expected = json!({"model": "real-model", "input": [
        {"role": "system", "content": [text("")]},
        {"role": "user", "content": [text("[MODE: general]\n\n[INSTRUCTION]\nGo."), text(results)]},
    ]});
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn what_the_dialect_cannot_express_is_told() {
    let (_, losses) = converted(
        &json!({
            "input": [{"role": "user", "content": "One"}, {"role": "assistant", "content": "Two"}, {"role": "user", "content": "Three"}],
            "top_p": 0.5, "max_output_tokens": 9, "tool_choice": "none", "reasoning": {}, "text": {"format": {"type": "json_object"}}, "own": 1,
        }),
        Delivery::Whole,
    );
    assert_eq!(losses, ["input", "tool_choice", "top_p", "max_output_tokens", "reasoning", "text.format", "own"]);
}
