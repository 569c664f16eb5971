use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn read(body: &Value) -> Result<ChatRequest, Fault> {
    ChatRequest::parse(&Bytes::from(body.to_string()), 64, None).map_err(Fault::from)
}

fn parameters(body: Value) -> Value {
    let request = read(&body).unwrap();
    request.parameters.view().unwrap();
    serde_json::from_slice(request.parameters.to_json().bytes()).unwrap()
}

fn with(field: &str, value: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    body[field] = value;
    body
}

#[test]
fn messages_of_every_role_become_items() {
    let body = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be \"brief\"."},
            {"role": "developer", "content": [{"type": "text", "text": "In English."}]},
            {"role": "user", "content": [
                {"type": "text", "text": "Look:"},
                {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "low"}},
                {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
                {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            ]},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}},
                {"id": "call_2", "type": "custom", "custom": {"name": "run", "input": "ls"}},
            ]},
            {"role": "tool", "tool_call_id": "call_2", "content": "done"},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "seen"}]},
            {"role": "assistant", "content": null, "refusal": "No."},
            {"role": "user", "content": "Why?"},
        ],
    });
    let text = |role: &str, content: Value| json!({"type": "message", "role": role, "content": content});
    assert_eq!(
        parameters(body)["input"],
        json!([
            text("system", json!("Be \"brief\".")),
            text("developer", json!([{"type": "input_text", "text": "In English."}])),
            text(
                "user",
                json!([
                    {"type": "input_text", "text": "Look:"},
                    {"type": "input_image", "image_url": "https://a.example/b.png", "detail": "low"},
                    {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
                    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
                ])
            ),
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            text("assistant", json!("I look.")),
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"a\":1}"},
            {"type": "custom_tool_call", "call_id": "call_2", "name": "run", "input": "ls"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "seen"}]},
            text("assistant", json!([{"type": "refusal", "refusal": "No."}])),
            text("user", json!("Why?")),
        ])
    );
}

#[test]
fn older_function_calls_get_ids_in_the_order_of_their_messages() {
    let body = json!({
        "model": "m",
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "function_call": {"name": "look", "arguments": "{}"}},
            {"role": "function", "name": "look", "content": "seen"},
        ],
        "functions": [{"name": "look", "parameters": {"type": "object"}}],
        "function_call": {"name": "look"},
    });
    let parameters = parameters(body.clone());
    assert_eq!(
        parameters["input"].as_array().unwrap()[1..],
        [
            json!({"type": "function_call", "call_id": "call_of_message_1", "name": "look", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "call_of_message_1", "output": "seen"}),
        ]
    );
    assert_eq!(parameters["tools"], json!([{"type": "function", "name": "look", "parameters": {"type": "object"}}]));
    assert_eq!(parameters["tool_choice"], json!({"type": "function", "name": "look"}));
    assert_eq!(parameters["parallel_tool_calls"], json!(false));
    assert_eq!(read(&body).unwrap().options.calls, CallStyle::Function);
}

#[test]
fn tools_and_their_choice_lose_one_level() {
    let grammar = json!({"definition": "start: /a+/", "syntax": "lark"});
    let body = json!({
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [
            {"type": "function", "function": {"name": "look", "description": "d", "strict": true, "parameters": {}}},
            {"type": "function", "function": {"name": "of_the_bank"}},
            {"type": "custom", "custom": {"name": "run", "format": {"type": "grammar", "grammar": grammar}}},
            {"type": "mcp", "server_label": "desk"},
        ],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [
            {"type": "function", "function": {"name": "look"}}, {"type": "custom", "custom": {"name": "run"}},
        ]}},
    });
    let parameters = parameters(body);
    let format = json!({"type": "grammar", "definition": "start: /a+/", "syntax": "lark"});
    assert_eq!(
        parameters["tools"],
        json!([
            {"type": "function", "name": "look", "description": "d", "strict": true, "parameters": {}},
            {"type": "function", "name": "of_the_bank"},
            {"type": "custom", "name": "run", "format": format},
            {"type": "mcp", "server_label": "desk"},
        ])
    );
    let tools = json!([{"type": "function", "name": "look"}, {"type": "custom", "name": "run"}]);
    assert_eq!(parameters["tool_choice"], json!({"type": "allowed_tools", "mode": "required", "tools": tools}));
}

#[test]
fn parameters_have_the_names_of_the_responses_api() {
    let schema =
        json!({"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}});
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 5, "max_completion_tokens": 7, "temperature": 0.5, "top_p": 0.5, "presence_penalty": 1,
        "frequency_penalty": -1, "logprobs": true, "top_logprobs": 2, "n": 1, "stop": ["a", "b"], "seed": -3,
        "logit_bias": {"50256": -100}, "top_k": 40, "response_format": schema, "verbosity": "low",
        "reasoning_effort": "high", "reasoning": {"summary": "auto", "effort": "low"}, "store": true,
        "metadata": {"a": "b"}, "service_tier": "flex", "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
        "parallel_tool_calls": false, "stream": true, "stream_options": {"include_usage": true}, "audio": null,
        "modalities": ["text"],
    });
    let expected = json!({
        "model": "m", "input": [{"type": "message", "role": "user", "content": "Hi"}],
        "max_output_tokens": 7, "temperature": 0.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": -1,
        "include": ["message.output_text.logprobs"], "top_logprobs": 2, "stop": ["a", "b"], "seed": -3,
        "logit_bias": {"50256": -100}, "top_k": 40, "text": {"format": schema, "verbosity": "low"},
        "reasoning": {"summary": "auto", "effort": "high"}, "store": true, "metadata": {"a": "b"},
        "service_tier": "flex", "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
        "parallel_tool_calls": false, "stream": true,
    });
    assert_eq!(parameters(body.clone()), expected);
    let request = read(&body).unwrap();
    assert_eq!((request.losses, request.options.include_usage), (Vec::new(), true));
    let chat: Vec<String> = request.parameters.chat_fields.iter().map(|(name, _)| name.decode()).collect();
    assert_eq!(chat.len(), 4, "{chat:?}");
}

#[test]
fn what_has_no_parameter_is_a_loss() {
    let cases = [
        (with("web_search_options", json!({})), "web_search_options"),
        (with("modalities", json!(["text", "audio"])), "modalities"),
        (with("audio", json!({"voice": "ash"})), "audio"),
        (with("messages", json!([{"role": "user", "name": "ada", "content": "Hi"}])), "messages.name"),
    ];
    for (body, field) in cases {
        let fields: Vec<String> = read(&body).unwrap().losses.iter().map(|loss| loss.field.to_string()).collect();
        assert_eq!(fields, [field]);
    }
}

#[test]
fn an_invalid_field_is_named_as_it_was_sent() {
    let message = |message: Value| with("messages", json!([{"role": "user", "content": "a"}, message]));
    let call = |call: Value| message(json!({"role": "assistant", "tool_calls": [call]}));
    let cases = [
        (json!({"model": "m"}), "messages"),
        (with("messages", json!([])), "messages"),
        (with("messages", json!("Hi")), "messages"),
        (message(json!("Hi")), "messages[1]"),
        (message(json!({"content": "x"})), "messages[1].role"),
        (message(json!({"role": "critic", "content": "x"})), "messages[1].role"),
        (message(json!({"role": "user"})), "messages[1].content"),
        (message(json!({"role": "user", "content": 1})), "messages[1].content"),
        (message(json!({"role": "user", "content": [{"text": "x"}]})), "messages[1].content[0].type"),
        (message(json!({"role": "user", "content": [{"type": "text"}]})), "messages[1].content[0].text"),
        (
            message(json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})),
            "messages[1].content[0].image_url.url",
        ),
        (message(json!({"role": "user", "content": [{"type": "file", "file": {}}]})), "messages[1].content[0].file"),
        (message(json!({"role": "assistant", "content": [{"type": "image_url"}]})), "messages[1].content[0].type"),
        (message(json!({"role": "tool", "content": "x"})), "messages[1].tool_call_id"),
        (message(json!({"role": "function", "name": "f", "content": "x"})), "messages[1].name"),
        (call(json!({"function": {"name": "f"}})), "messages[1].tool_calls[0].id"),
        (call(json!({"id": "c", "type": "shell"})), "messages[1].tool_calls[0].type"),
        (call(json!({"id": "c", "type": "function", "function": {}})), "messages[1].tool_calls[0].function.name"),
        (with("n", json!(2)), "n"),
        (with("stop", json!([1])), "stop[0]"),
        (with("seed", json!(0.5)), "seed"),
        (with("logit_bias", json!({"5": 101})), "logit_bias.5"),
        (with("max_tokens", json!(0)), "max_tokens"),
        (with("max_completion_tokens", json!("many")), "max_completion_tokens"),
        (with("temperature", json!(3)), "temperature"),
        (with("top_logprobs", json!(2)), "top_logprobs"),
        (with("reasoning_effort", json!(1)), "reasoning_effort"),
        (with("stream_options", json!({"include_usage": 1})), "stream_options.include_usage"),
        (with("tools", json!([{"type": "function", "function": {}}])), "tools[0].function.name"),
        (with("tools", json!([{"type": "shell"}])), "tools[0].type"),
        (with("tool_choice", json!({"type": "function", "function": {}})), "tool_choice.function.name"),
        (with("functions", json!([{}])), "functions[0].name"),
    ];
    for (body, path) in cases {
        assert_eq!(read(&body).unwrap_err().param.as_deref(), Some(path), "{body}");
    }
}

#[test]
fn faults_of_the_turn_are_restated_in_terms_of_the_request() {
    let messages = json!([
        {"role": "system", "content": "a"},
        {"role": "assistant", "content": "b", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": ""}}]},
        {"role": "user", "content": "d"},
    ]);
    let request = read(&with("messages", messages.clone())).unwrap();
    let restated = |param: &'static str| {
        let fault = request.names.restate(Fault::invalid(param, format!("Invalid value for '{param}'.")));
        let param = fault.param.as_deref().unwrap();
        assert_eq!(fault.message, format!("Invalid value for '{param}'."));
        param.to_owned()
    };
    assert_eq!(restated("input[2].arguments"), "messages[1].arguments");
    assert_eq!(restated("input[3]"), "messages[2]");
    assert_eq!(restated("text.format.json_schema.schema"), "response_format.json_schema.schema");
    assert_eq!(restated("max_output_tokens"), "max_completion_tokens");
    assert_eq!(restated("input"), "messages");
    assert_eq!(restated("model"), "model");
    let body = Bytes::from(with("messages", messages).to_string());
    let continued = ChatRequest::parse(&body, 64, Some("conv_1")).unwrap();
    assert_eq!(continued.names.name_of("instructions[0].content").as_deref(), Some("messages[0].content"));
    assert_eq!(continued.names.name_of("input[0]").as_deref(), Some("messages[1]"));
    assert_eq!(continued.parameters.store, Some(true));
    assert_eq!(continued.parameters.instructions.as_ref().unwrap().raw().elements().count(), 1);
}

fn any_json() -> impl Strategy<Value = Value> {
    let words = ["user", "assistant", "tool", "text", "image_url", "function", "x", ""];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        prop::sample::select(words.to_vec()).prop_map(Value::from),
    ];
    let names =
        ["role", "content", "type", "text", "tool_calls", "function", "name", "id", "image_url", "url", "tool_call_id"];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::hash_map(prop::sample::select(names.to_vec()), inner, 0..6)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_of_any_field_is_read_or_refused(
        name in prop::sample::select(vec!["messages", "tools", "tool_choice", "functions", "function_call", "stop",
            "logit_bias", "response_format", "reasoning", "modalities", "stream_options", "metadata"]),
        value in any_json(),
    ) {
        match read(&with(name, value)) {
            Ok(request) => { let _ = request.parameters.view(); }
            Err(fault) => prop_assert!(fault.param.is_some()),
        }
    }
}
