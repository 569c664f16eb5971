use serde_json::{Value, json};

use super::*;
use crate::testing::NoSeal;

fn parse(body: &Value, headers: MessagesHeaders) -> Result<(Value, MessagesRendering), Fault> {
    let body = Bytes::from(body.to_string());
    let call = MessagesCall::parse(&body, 64, MessagesPurpose::Message, headers, &NoSeal)?;
    Ok((serde_json::from_slice(call.parameters.to_json().bytes()).unwrap(), call.rendering))
}

fn with(fields: Value) -> Value {
    let mut body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn parameters(fields: Value) -> Value {
    parse(&with(fields), MessagesHeaders::default()).unwrap().0
}

fn refused(fields: Value) -> String {
    parse(&with(fields), MessagesHeaders::default()).unwrap_err().message.clone().into_owned()
}

#[test]
fn a_request_becomes_the_parameters_of_a_response_that_is_not_stored() {
    assert_eq!(
        parameters(json!({"system": "Be kind", "temperature": 0.5, "top_p": 1, "stream": true})),
        json!({
            "model": "m", "instructions": "Be kind", "stream": true, "store": false, "max_output_tokens": 9,
            "temperature": 0.5, "top_p": 1, "anthropic": {},
            "input": [{"type": "message", "role": "user", "content": "Hi"}],
        })
    );
}

#[test]
fn a_request_with_a_conversation_is_stored() {
    let headers = MessagesHeaders { conversation: Some("conv_1".to_owned()), ..MessagesHeaders::default() };
    let (parameters, _) = parse(&with(json!({})), headers).unwrap();
    assert_eq!((&parameters["conversation"], &parameters["store"]), (&json!("conv_1"), &json!(true)));
}

#[test]
fn what_only_the_messages_api_has_is_kept_apart() {
    let mut headers = MessagesHeaders::default();
    headers.add_betas("a-1, b-2").unwrap();
    headers.add_betas("a-1").unwrap();
    let only = json!({
        "top_k": 5, "stop_sequences": ["END"], "metadata": {"user_id": "u"}, "service_tier": "standard_only",
        "thinking": {"type": "enabled", "budget_tokens": 5000}, "context_management": {"edits": []},
    });
    let (parameters, _) = parse(&with(only.clone()), headers).unwrap();
    let mut expected = only;
    expected["betas"] = json!(["a-1", "b-2"]);
    assert_eq!(parameters["anthropic"], expected);
    assert_eq!(parameters["reasoning"], json!({"effort": "medium", "summary": "auto"}));
    assert_eq!(parameters["include"], json!(["reasoning.encrypted_content"]));
    assert_eq!((&parameters["safety_identifier"], &parameters["service_tier"]), (&json!("u"), &json!("default")));
}

#[test]
fn a_long_user_id_is_hashed_for_upstreams_that_take_short_ones() {
    let identifier = &parameters(json!({"metadata": {"user_id": "u".repeat(65)}}))["safety_identifier"];
    assert_eq!(identifier.as_str().map(str::len), Some(64));
}

#[test]
fn thinking_becomes_an_effort_and_says_how_reasoning_is_shown() {
    let read = |fields: Value| {
        let (parameters, rendering) = parse(&with(fields), MessagesHeaders::default()).unwrap();
        (parameters["reasoning"].clone(), rendering.thinking)
    };
    let shown = ThinkingDisplay::Shown;
    assert_eq!(read(json!({})), (Value::Null, shown));
    assert_eq!(read(json!({"thinking": {"type": "disabled"}})), (Value::Null, ThinkingDisplay::Hidden));
    assert_eq!(read(json!({"thinking": {"type": "adaptive"}})), (json!({"summary": "auto"}), shown));
    assert_eq!(
        read(json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "max"}})),
        (json!({"effort": "xhigh"}), ThinkingDisplay::Omitted)
    );
    assert_eq!(
        read(json!({"thinking": {"type": "enabled", "budget_tokens": 31_999, "display": "updates"}})),
        (json!({"effort": "high", "summary": "auto"}), shown)
    );
}

#[test]
fn tools_become_functions_and_tools_with_a_type_keep_it() {
    let read = parameters(json!({
        "tools": [
            {"name": "f", "description": "F", "input_schema": {"type": "object"}, "strict": true, "defer_loading": true},
            {"name": "of_the_bank"},
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
            {"type": "memory_20250818", "name": "memory"},
        ],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
    }));
    let tools = read["tools"].as_array().unwrap();
    assert_eq!(
        tools[0],
        json!({"type": "function", "name": "f", "description": "F", "parameters": {"type": "object"}, "strict": true,
               "anthropic": {"defer_loading": true}})
    );
    assert_eq!(tools[1], json!({"type": "function", "name": "of_the_bank"}));
    assert_eq!(
        tools[2],
        json!({"type": "web_search",
               "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}})
    );
    assert_eq!((&tools[3]["type"], &tools[3]["name"]), (&json!("function"), &json!("memory")));
    assert_eq!(tools[3]["parameters"]["required"], json!(["command"]));
    assert_eq!(read["tool_choice"], json!({"type": "function", "name": "f"}));
    assert_eq!(read["parallel_tool_calls"], json!(false));
    for (choice, expected) in [("auto", "auto"), ("any", "required"), ("none", "none")] {
        assert_eq!(parameters(json!({"tool_choice": {"type": choice}}))["tool_choice"], expected);
    }
}

#[test]
fn a_format_of_the_answer_is_a_schema() {
    let format = json!({"type": "json_schema", "schema": {"type": "object"}});
    let expected = json!({"format": {
        "type": "json_schema", "name": "output", "schema": {"type": "object"}, "strict": true
    }});
    assert_eq!(parameters(json!({"output_config": {"format": format}}))["text"], expected);
    assert_eq!(parameters(json!({"output_format": format}))["text"], expected);
}

#[test]
fn a_wrong_field_is_named_in_the_words_of_the_api() {
    let missing = |name: &str| {
        let mut body = with(json!({}));
        body.as_object_mut().unwrap().remove(name);
        parse(&body, MessagesHeaders::default()).unwrap_err().message.clone().into_owned()
    };
    for name in ["model", "max_tokens", "messages"] {
        assert_eq!(missing(name), format!("{name}: Field required"));
    }
    for (fields, message) in [
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
            "messages.0.content.0.text: Field required",
        ),
        (json!({"max_tokens": 0}), "max_tokens: must be a positive integer"),
        (json!({"temperature": 1.5}), "temperature: must be a number from 0 to 1"),
        (json!({"stop_sequences": "END"}), "stop_sequences: must be an array of strings"),
        (json!({"top_k": -1}), "top_k: must be a non-negative integer"),
        (json!({"stream": 1}), "stream: expected a boolean, but got a number instead"),
        (json!({"system": 1}), "system: expected a string or an array of text blocks, but got a number instead"),
        (json!({"tools": [{}]}), "tools.0.name: Field required"),
        (
            json!({"tools": [{"name": "f", "input_schema": 1}]}),
            "tools.0.input_schema: expected an object, but got a number instead",
        ),
        (
            json!({"tool_choice": {"type": "some"}}),
            "tool_choice.type: must be `auto`, `any`, `tool` or `none`, but is `some`",
        ),
        (json!({"thinking": {"type": "enabled"}}), "thinking.budget_tokens: Field required"),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 5}}), "thinking.budget_tokens: must be at least 1024"),
        (json!({"metadata": "u"}), "metadata: expected an object, but got a string instead"),
    ] {
        assert_eq!(refused(fields), message);
    }
    let mut headers = MessagesHeaders::default();
    assert!(headers.add_betas("not a flag!").is_err());
    assert!(headers.add_betas(&"x,".repeat(3)).is_ok());
    assert!(headers.add_betas(&(0..99).map(|n| format!("f{n},")).collect::<String>()).is_err());
}
