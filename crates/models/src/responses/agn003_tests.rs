use std::collections::HashMap;

use amalgam_core::normalise;
use amalgam_protocol::ResponseParameters;
use serde_json::{Value, json};

use super::*;

fn converted(request: &Value, delivery: Delivery) -> (Value, Vec<String>) {
    chained(request, delivery, Chain::Standalone)
}

fn chained(request: &Value, delivery: Delivery, chain: Chain<'_>) -> (Value, Vec<String>) {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let images = HashMap::new();
    let request = ModelRequest {
        model: "real-model",
        settings: &settings,
        history: &history,
        delivery,
        chain,
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
            "input": [{"role": "user", "content": "One"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"}],
            "top_p": 0.5, "max_output_tokens": 9, "tool_choice": "none", "reasoning": {}, "text": {"format": {"type": "json_object"}}, "own": 1,
        }),
        Delivery::Whole,
    );
    assert_eq!(losses, ["input", "tool_choice", "top_p", "max_output_tokens", "reasoning", "text.format", "own"]);
}

// right C1
#[test]
fn a_request_without_a_previous_id_sends_the_whole_history_in_the_documents_shapes() {
    let [system, first] = composed("QA");
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "done"});
    let answer = |text: &str| json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]});
    let [_, last] = composed("CODE_EDIT");
    let input = json!([
        system, first, call("c1"), output("c1"), answer("One."), call("c2"), output("c2"), answer("Two."),
        {"role": "user", "content": "Plain"}, answer("Three."), last,
    ]);
    let (body, losses) =
        converted(&json!({"input": input, "tools": [{"type": "function", "name": "f"}]}), Delivery::Whole);
    let results = |id: &str| {
        text(&format!(
            "[TOOL_RESULTS]\n\n- CallId: {id}\n  Name: f\n  ArgumentsJson:\n    {{}}\n  ResultJson:\n    done"
        ))
    };
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let context = text("[CONTEXT]\n…");
    let user = |mode: &str, instruction: &str| text(&format!("[MODE: {mode}]\n\n[INSTRUCTION]\n{instruction}"));
    let expected = json!({"model": "real-model", "input": [
        {"role": "system", "content": [text("Boot."), text("Rules."), text("Tools.")]},
        {"role": "user", "content": [user("QA", "Go."), image, context, results("c1")]},
        {"role": "assistant", "content": [text("One.")]},
        {"role": "user", "content": [user("QA", ""), results("c2")]},
        {"role": "assistant", "content": [text("Two.")]},
        {"role": "user", "content": [user("QA", "Plain")]},
        {"role": "assistant", "content": [text("Three.")]},
        {"role": "user", "content": [user("CODE_EDIT", "Go."), image, context]},
    ], "tools": [{"type": "function", "name": "f"}]});
    assert_eq!((body, losses), (expected, vec![]));
}

// right C1
#[test]
fn the_parts_of_a_composed_prompt_stay_apart_and_the_callers_own_join_the_second() {
    let part = |text: &str| json!({"type": "input_text", "text": text});
    let prompt =
        json!([{"type": "message", "role": "system", "content": [part("Boot."), part("Rules."), part("Tools.")]}]);
    let request = json!({"instructions": prompt, "input": [{"role": "developer", "content": "Mine."}, {"role": "user", "content": "Go."}]});
    let (body, losses) = converted(&request, Delivery::Whole);
    let system = json!({"role": "system", "content": [text("Boot."), text("Rules.\n\nMine."), text("Tools.")]});
    assert_eq!((&body["input"][0], losses), (&system, vec![]));
}

/// The items that the strict contract sends, as the composition makes them.
fn composed(mode: &str) -> [Value; 2] {
    let part = |text: &str| json!({"type": "input_text", "text": text});
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let user = [part(&format!("[MODE: {mode}]\n\n[INSTRUCTION]\nGo.")), image, part("[CONTEXT]\n…")];
    [
        json!({"type": "message", "role": "system", "content": [part("Boot."), part("Rules."), part("Tools.")]}),
        json!({"type": "message", "role": "user", "content": user}),
    ]
}

#[test]
fn what_was_composed_by_the_same_rules_is_taken_apart_again() {
    // R003-10, R003-14, R003-15, R003-16, R003-25, R003-30
    let (body, losses) = converted(&json!({"input": composed("QA")}), Delivery::Whole);
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AA"});
    let expected = json!({"model": "real-model", "input": [
        {"role": "system", "content": [text("Boot."), text("Rules."), text("Tools.")]},
        {"role": "user", "content": [text("[MODE: QA]\n\n[INSTRUCTION]\nGo."), image, text("[CONTEXT]\n…")]},
    ]});
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn a_continuation_names_the_answer_before_and_tells_its_results_as_text() {
    // R003-09, R003-11, R003-29, R003-39, C-06, C-07
    let [system, user] = composed("QA");
    let call = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"});
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "done"});
    let request = json!({"input": [system, user, call, output], "tools": [{"type": "function", "name": "f"}]});
    let (body, losses) = chained(&request, Delivery::Whole, Chain::Continue { id: "resp_up", known: 3 });
    let results = "[TOOL_RESULTS]\n\n- CallId: c1\n  Name: f\n  ArgumentsJson:\n    {\"a\":1}\n  ResultJson:\n    done";
    let expected = json!({"model": "real-model", "previous_response_id": "resp_up", "input": [
        {"role": "user", "content": [text("[MODE: QA]\n\n[INSTRUCTION]\n"), text(results)]},
    ]});
    assert_eq!((body, losses), (expected, vec![]));
}

#[test]
fn a_turn_that_goes_on_says_what_is_new() {
    // C-05
    let [system, user] = composed("QA");
    let answer = json!({"role": "assistant", "content": "Gone."});
    let [changed, next] = composed("CODE_EDIT");
    let request = json!({"input": [system, user, answer, changed, next]});
    let (body, losses) = chained(&request, Delivery::Stream, Chain::Continue { id: "resp_up", known: 3 });
    assert_eq!([&body["previous_response_id"], &body["stream"]], [&json!("resp_up"), &json!(true)]);
    let said: Vec<&Value> = body["input"].as_array().unwrap().iter().map(|item| &item["content"][0]["text"]).collect();
    assert_eq!(said, [&json!("[MODE: CODE_EDIT]\n\n[INSTRUCTION]\nGo.")]);
    assert_eq!(losses, ["instructions"], "what it is to be was told at the beginning");
}
