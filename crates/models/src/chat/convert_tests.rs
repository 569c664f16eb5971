use amalgam_protocol::ResponseParameters;
use std::collections::HashMap;

use amalgam_core::normalise;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{chat::Replay, settings::SystemRole, testing::PlainSeal};

const WIRE: Wire = Wire {
    tool_calls: ToolCalls::Native,
    system_role: SystemRole::System,
    stream_usage: true,
    newer_limit: false,
    replay: Replay::RunningTurn,
};

fn prepared(wire: Wire, delivery: Delivery, request: &Value) -> Result<PreparedRequest, Fault> {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let said = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let images = HashMap::from([("https://example.com/a.png".to_owned(), "data:image/png;base64,QUJD".to_owned())]);
    let none = HashMap::new();
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &said,
        delivery,
        chain: Default::default(),
        seal_context: "",
        images: if request.get("fetched").is_some() { &images } else { &none },
    };
    prepare(wire, &request, "here", &PlainSeal)
}

/// The body of a whole request without what every body has, and the losses.
fn converted(wire: Wire, request: Value) -> (Value, Vec<String>) {
    let prepared = prepared(wire, Delivery::Whole, &request).unwrap();
    let mut body: Value = serde_json::from_slice(&prepared.body).unwrap();
    let fields = body.as_object_mut().unwrap();
    assert_eq!(fields.remove("model"), Some(json!("m")));
    assert_eq!(fields.remove("stream"), Some(json!(false)));
    fields.remove("fetched");
    (body, prepared.losses.iter().map(ToString::to_string).collect())
}

fn messages(wire: Wire, request: Value) -> (Value, Vec<String>) {
    let (mut body, losses) = converted(wire, request);
    let messages = body.as_object_mut().unwrap().remove("messages").unwrap();
    assert_eq!(body, json!({}));
    (messages, losses)
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

fn output(id: &str, output: Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

fn chat_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

#[test]
fn a_bare_text_is_one_user_message_with_its_escapes_kept() {
    // RAM-11
    let streamed = |wire, input: &str| prepared(wire, Delivery::Stream, &json!({"input": input})).unwrap();
    let prepared = streamed(WIRE, "h\u{e9}\n\"😀\"");
    assert_eq!(
        std::str::from_utf8(&prepared.body).unwrap(),
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"h\u{e9}\\n\\\"😀\\\"\"}],\
         \"stream\":true,\"stream_options\":{\"include_usage\":true}}"
    );
    assert_eq!(prepared.losses, []);
    let body: Value = serde_json::from_slice(&streamed(Wire { stream_usage: false, ..WIRE }, "a").body).unwrap();
    assert_eq!(body, json!({"model": "m", "messages": [{"role": "user", "content": "a"}], "stream": true}));
}

#[test]
fn instructions_come_first_in_the_configured_role_joined_with_the_first_system_messages() {
    // RAM-12, C-19
    let request = json!({
        "instructions": "Be brief.",
        "input": [
            {"role": "developer", "content": "No jokes."},
            {"role": "system", "content": [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]},
            {"role": "user", "content": "Hi"},
            {"role": "developer", "content": "Now jokes."},
            {"role": "user", "content": "Go."}
        ]
    });
    for (system_role, name) in
        [(SystemRole::System, "system"), (SystemRole::Developer, "developer"), (SystemRole::User, "user")]
    {
        let (messages, losses) = messages(Wire { system_role, ..WIRE }, request.clone());
        assert_eq!(
            messages,
            json!([
                {"role": name, "content": "Be brief.\n\nNo jokes.\n\nA\nB"},
                {"role": "user", "content": "Hi"},
                {"role": name, "content": "Now jokes."},
                {"role": "user", "content": "Go."}
            ])
        );
        assert_eq!(losses, [""; 0]);
    }
}

#[test]
fn text_and_calls_of_the_model_are_one_message_and_outputs_follow_in_the_order_of_the_calls() {
    // RAM-15, RAM-16, RAM-18, O-47
    let (messages, losses) = messages(
        WIRE,
        json!({"input": [
            {"role": "user", "content": "Weather?"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}]},
            call("c1", "weather", "{\"city\":\"Paris\"}"),
            call("c2", "time", ""),
            output("c2", json!({"hour": 3})),
            output("c1", json!([{"type": "input_text", "text": "sunny"}, {"type": "input_text", "text": "21 °C"}])),
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not go out."}]},
            {"role": "user", "content": ""},
            call("c3", "weather", "not json"),
            output("c3", json!(""))
        ]}),
    );
    assert_eq!(
        messages,
        json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [
                chat_call("c1", "weather", "{\"city\":\"Paris\"}"),
                chat_call("c2", "time", "{}")
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny\n21 °C"},
            {"role": "tool", "tool_call_id": "c2", "content": "{\"hour\":3}"},
            {"role": "assistant", "content": "I will not go out."},
            {"role": "user", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [chat_call("c3", "weather", "{\"arguments\":\"not json\"}")]},
            {"role": "tool", "tool_call_id": "c3", "content": ""}
        ])
    );
    assert_eq!(losses, ["input.arguments: arguments that are no JSON object are sent as text inside one"]);
}

#[test]
fn images_inside_tool_outputs_follow_all_tool_messages_of_the_turn() {
    // RAM-22, O-47
    let image = "data:image/png;base64,QUJD";
    let (messages, losses) = messages(
        WIRE,
        json!({"input": [
            call("c1", "shot", "{}"),
            call("c2", "shot", "{}"),
            output("c1", json!([{"type": "input_text", "text": "done"}, {"type": "input_image", "image_url": image}])),
            output("c2", json!([{"type": "input_image", "image_url": image, "detail": "low"}])),
            {"role": "user", "content": "What is it?"}
        ]}),
    );
    assert_eq!(
        messages,
        json!([
            {"role": "assistant", "content": null, "tool_calls": [chat_call("c1", "shot", "{}"), chat_call("c2", "shot", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
            {"role": "tool", "tool_call_id": "c2", "content": "The output follows below."},
            {"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": image}},
                {"type": "image_url", "image_url": {"url": image, "detail": "low"}}
            ]},
            {"role": "user", "content": "What is it?"}
        ])
    );
    assert_eq!(losses, [""; 0]);
}

#[test]
fn parts_become_chat_parts_and_what_has_none_is_told_as_json_with_a_loss() {
    // RAM-19, RAM-20, RAM-21
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    let (messages, losses) = messages(
        WIRE,
        json!({"input": [{"role": "user", "content": [
            {"type": "input_text", "text": "See"},
            {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "original"},
            {"type": "input_image", "file_id": "file_1"},
            {"type": "input_file", "filename": "a.md", "file_data": "data:text/markdown;base64,IyBIw6k="},
            {"type": "input_file", "filename": "a.pdf", "file_data": "JVBERi0x"},
            {"type": "input_file", "filename": "b.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"},
            {"type": "input_file", "file_url": "https://example.com/c.pdf"},
            audio.clone(),
            {"type": "encrypted_content", "encrypted_content": "SECRET"},
            {"type": "hologram", "z": 1}
        ]}]}),
    );
    assert_eq!(
        messages,
        json!([{"role": "user", "content": [
            {"type": "text", "text": "See"},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
            {"type": "text", "text": "{\"file_id\":\"file_1\",\"type\":\"input_image\"}"},
            {"type": "text", "text": "File: a.md\n\n# H\u{e9}"},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
            {"type": "file", "file": {"filename": "b.pdf", "file_data": "data:application/pdf;base64,JVBERi0x"}},
            {"type": "text", "text": "{\"file_url\":\"https://example.com/c.pdf\",\"type\":\"input_file\"}"},
            audio,
            {"type": "text", "text": "{\"type\":\"hologram\",\"z\":1}"}
        ]}])
    );
    let fields: Vec<&str> = losses.iter().map(|loss| loss.split(':').next().unwrap()).collect();
    assert_eq!(
        fields,
        [
            "input.input_image.detail",
            "input.input_image",
            "input.input_file",
            "input.encrypted_content",
            "input.hologram"
        ]
    );
}

#[test]
fn a_fetched_image_stands_in_for_its_address() {
    let (body, _) = converted(
        WIRE,
        json!({"fetched": true, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "https://example.com/a.png"},
            {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}}
        ]}]}),
    );
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            {"type": "image_url", "image_url": {"url": "https://example.com/b.png"}}
        ])
    );
}

#[test]
fn every_setting_that_the_wire_has_is_sent() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let (body, losses) = converted(
        Wire { newer_limit: true, ..WIRE },
        json!({
            "input": "hi", "max_output_tokens": 9, "temperature": 0.5, "top_p": 1, "presence_penalty": -1.5,
            "frequency_penalty": 2, "top_logprobs": 3, "include": ["message.output_text.logprobs"],
            "reasoning": {"effort": "low", "summary": "auto"}, "prompt_cache_key": "k", "prompt_cache_retention": "24h",
            "service_tier": "flex", "safety_identifier": "s", "user": "u", "store": true, "metadata": {"a": "b"},
            "truncation": "disabled", "max_tool_calls": 3, "parallel_tool_calls": false, "tool_choice": "auto",
            "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "description": "d", "schema": schema, "strict": true}},
            "seed": 7, "chat_template_kwargs": {"thinking": false}, "client_metadata": {"x": 1}, "stop": null
        }),
    );
    assert_eq!(
        body,
        json!({
            "messages": [{"role": "user", "content": "hi"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": schema, "strict": true}},
            "max_completion_tokens": 9, "temperature": 0.5, "top_p": 1, "presence_penalty": -1.5, "frequency_penalty": 2,
            "logprobs": true, "top_logprobs": 3, "reasoning_effort": "low", "verbosity": "low", "prompt_cache_key": "k",
            "prompt_cache_retention": "24h", "service_tier": "flex", "safety_identifier": "s", "user": "u",
            "seed": 7, "chat_template_kwargs": {"thinking": false}
        })
    );
    assert_eq!(losses, [""; 0]);
    let (body, _) =
        converted(WIRE, json!({"input": "hi", "max_output_tokens": 9, "text": {"format": {"type": "json_object"}}}));
    assert_eq!((&body["max_tokens"], &body["response_format"]), (&json!(9), &json!({"type": "json_object"})));
}

#[test]
fn what_the_wire_cannot_carry_is_a_loss_only_when_the_caller_set_it() {
    let (body, losses) = converted(
        WIRE,
        json!({
            "input": [{"role": "user", "content": "hi"}, {"type": "web_search_call", "id": "ws_1", "status": "completed"},
                      {"type": "compaction", "encrypted_content": "SECRET"}],
            "truncation": "auto", "prompt": {"id": "p"}, "context_management": [{}], "reasoning": {"context": "x", "effort": null},
            "text": {"format": {"type": "grammar"}}, "n": 2, "messages": [], "max_output_tokens": 5, "max_tokens": 6,
            "tools": [{"type": "web_search"}]
        }),
    );
    assert_eq!(body, json!({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}));
    let mut fields: Vec<&str> = losses.iter().map(|loss| loss.split(':').next().unwrap()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "context_management",
            "input.compaction",
            "input.web_search_call",
            "max_tokens",
            "messages",
            "n",
            "prompt",
            "reasoning.context",
            "text.format",
            "tools[0]"
        ]
    );
}

#[test]
fn tools_of_every_kind_are_offered_as_functions() {
    // RAM-23, RAM-24
    let request = json!({
        "input": "hi",
        "parallel_tool_calls": false,
        "tools": [
            {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true},
            {"type": "custom", "name": "patch", "description": "Patches."},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "g", "description": "G \"q\""}]},
            {"type": "local_shell"}
        ]
    });
    let (body, losses) = converted(WIRE, request.clone());
    let function = |index: usize| &body["tools"][index]["function"];
    assert_eq!(function(0), &json!({"name": "f", "description": "", "parameters": {"type": "object"}, "strict": true}));
    assert_eq!(function(1)["parameters"]["required"], json!(["input"]));
    assert_eq!(
        function(2),
        &json!({"name": "ns__g", "description": "G \"q\"", "parameters": {"type": "object", "properties": {}}})
    );
    assert_eq!(function(3)["name"], "local_shell");
    assert_eq!((body.get("tool_choice"), &body["parallel_tool_calls"]), (None, &json!(false)));
    assert_eq!(losses, [""; 0]);

    // RAM-25
    let choice = |choice: Value| {
        let mut request = request.clone();
        request["tool_choice"] = choice;
        let (body, _) = converted(WIRE, request);
        (body.get("tool_choice").cloned(), body.get("tools").map(|tools| tools.as_array().unwrap().len()))
    };
    assert_eq!(choice(json!("auto")), (Some(json!("auto")), Some(4)));
    assert_eq!(choice(json!("required")), (Some(json!("required")), Some(4)));
    assert_eq!(choice(json!({"type": "function", "name": "f"})), (Some(json!("required")), Some(1)));
    assert_eq!(choice(json!("none")), (None, None));
    assert_eq!(
        choice(json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]})),
        (Some(json!("auto")), Some(1))
    );
}

#[test]
fn custom_namespaced_and_client_calls_of_the_history_are_function_calls() {
    let (messages, losses) = messages(
        WIRE,
        json!({"input": [
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** \"x\"\n"},
            {"type": "function_call", "call_id": "c2", "name": "g", "namespace": "ns", "arguments": "{}"},
            {"type": "apply_patch_call", "call_id": "c3", "operation": {"type": "delete_file", "path": "a"}, "status": "completed"},
            {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
            {"type": "function_call_output", "call_id": "c2", "output": "ok"},
            {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "no such file"}
        ]}),
    );
    assert_eq!(
        messages,
        json!([
            {"role": "assistant", "content": null, "tool_calls": [
                chat_call("c1", "patch", "{\"input\":\"*** \\\"x\\\"\\n\"}"),
                chat_call("c2", "ns__g", "{}"),
                chat_call("c3", "apply_patch", "{\"path\":\"a\",\"type\":\"delete_file\"}")
            ]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            {"role": "tool", "tool_call_id": "c2", "content": "ok"},
            {"role": "tool", "tool_call_id": "c3", "content": "status: failed\nno such file"}
        ])
    );
    assert_eq!(losses, [""; 0]);
}

#[test]
fn reasoning_go_back_only_inside_the_tool_turn_that_is_under_way() {
    let thought = |text: &str| json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]});
    let request = json!({"input": [
        {"role": "user", "content": "a"}, thought("old"), {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, thought("new"), call("c1", "f", "{}"), output("c1", json!("x"))
    ]});
    let head = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}
    ]);
    let tail = json!({"role": "tool", "tool_call_id": "c1", "content": "x"});
    let turn = |message: Value| {
        let mut all = head.as_array().unwrap().clone();
        all.extend([message, tail.clone()]);
        Value::Array(all)
    };
    let asked = json!({"role": "assistant", "content": null, "tool_calls": [chat_call("c1", "f", "{}")]});
    let mut thoughtful = asked.clone();
    thoughtful["reasoning_content"] = json!("new");
    let over = "input.reasoning: reasoning of finished turns was left out".to_owned();
    assert_eq!(messages(WIRE, request.clone()), (turn(thoughtful), vec![over.clone()]));
    let (without, losses) = messages(Wire { replay: Replay::Never, ..WIRE }, request);
    assert_eq!(without, turn(asked));
    let now = "input.reasoning: this upstream does not accept earlier reasoning; it was left out".to_owned();
    assert_eq!(losses, [over, now]);
}

#[test]
fn reasoning_that_this_upstream_sealed_go_back_whole_in_their_own_field() {
    let sealed = |upstream: &str, field: &str| {
        let plain = json!({"upstream": upstream, "model": "m", "field": field, "text": "all of it"});
        PlainSeal.seal("", plain.to_string().as_bytes())
    };
    let request = |sealed: String| {
        let thought = json!({"type": "reasoning", "encrypted_content": sealed,
            "summary": [{"type": "summary_text", "text": "some"}]});
        json!({"input": [
            {"role": "user", "content": "a"}, thought, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}, thought, call("c1", "f", "{}"), output("c1", json!("x"))
        ]})
    };
    for field in ["reasoning_content", "reasoning", "thinking"] {
        let (running, losses) = messages(WIRE, request(sealed("here", field)));
        assert_eq!((running[1].get(field), &running[3][field]), (None, &json!("all of it")));
        assert_eq!(losses, ["input.reasoning: reasoning of finished turns was left out"]);
        let (always, losses) = messages(Wire { replay: Replay::Always, ..WIRE }, request(sealed("here", field)));
        assert_eq!((&always[1][field], &always[3][field]), (&json!("all of it"), &json!("all of it")));
        assert_eq!(losses, Vec::<String>::new());
        let (never, losses) = messages(Wire { replay: Replay::Never, ..WIRE }, request(sealed("here", field)));
        assert!(!never.to_string().contains("all of it"), "{never:#}");
        assert_eq!(losses.len(), 2);
    }
    let (foreign, losses) = messages(WIRE, request(sealed("elsewhere", "reasoning")));
    assert!(!foreign.to_string().contains("all of it"), "{foreign:#}");
    assert_eq!(losses, [format!("input.reasoning: {}", crate::reasoning_seal::FOREIGN_REASONING)]);
}

#[test]
fn reasoning_that_another_upstream_sealed_are_told_by_their_summary() {
    let thought = |text: &str| {
        let summary = if text.is_empty() { json!([]) } else { json!([{"type": "summary_text", "text": text}]) };
        json!({"type": "reasoning", "summary": summary, "encrypted_content": "SECRET"})
    };
    let request = json!({"input": [
        {"role": "user", "content": "a"}, thought("old"), {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}, thought(""), {"role": "assistant", "content": "d"},
        {"role": "user", "content": "e"}, thought("new"), call("c1", "f", "{}"), output("c1", json!("x"))
    ]});
    let loss = format!("input.reasoning: {}", crate::reasoning_seal::FOREIGN_REASONING);
    let said = |content: Value| json!({"role": "assistant", "content": content});
    let expected = |turn: Value| {
        json!([
            {"role": "user", "content": "a"}, said(json!("[Summary of earlier reasoning]\nold\n\nb")),
            {"role": "user", "content": "c"}, said(json!("d")),
            {"role": "user", "content": "e"}, turn, {"role": "tool", "tool_call_id": "c1", "content": "x"}
        ])
    };
    let mut turn = said(Value::Null);
    turn["tool_calls"] = json!([chat_call("c1", "f", "{}")]);
    let mut told = turn.clone();
    told["content"] = json!("[Summary of earlier reasoning]\nnew");
    turn["reasoning_content"] = json!("new");
    assert_eq!(messages(WIRE, request.clone()), (expected(turn), vec![loss.clone()]));
    let strict = Wire { replay: Replay::Never, ..WIRE };
    assert_eq!(messages(strict, request), (expected(told), vec![loss]));
}

#[test]
fn a_summary_of_what_came_before_is_a_message_of_the_user() {
    let text =
        json!({"input": [{"role": "developer", "content": "rules"}, {"role": "user", "content": "go on"}]}).to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let mut history = normalise(None, settings.input.as_ref());
    history.entries.insert(1, Entry::Summary("so far".to_owned()));
    let images = HashMap::new();
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: "",
        images: &images,
    };
    let body: Value = serde_json::from_slice(&prepare(WIRE, &request, "here", &PlainSeal).unwrap().body).unwrap();
    let expected = [("system", "rules"), ("user", "so far"), ("user", "go on")];
    assert_eq!(body["messages"], json!(expected.map(|(role, content)| json!({"role": role, "content": content}))));
}

#[test]
fn outputs_follow_the_order_of_the_calls_even_where_the_history_does_not() {
    let text = json!({"input": [call("c1", "f", "{}"), call("c2", "f", "{}"), output("c1", json!("1")), output("c2", json!("2"))]}).to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let mut history = normalise(None, settings.input.as_ref());
    history.entries.swap(2, 3);
    let images = HashMap::new();
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: "",
        images: &images,
    };
    let body: Value = serde_json::from_slice(&prepare(WIRE, &request, "here", &PlainSeal).unwrap().body).unwrap();
    assert_eq!(body["messages"][1], json!({"role": "tool", "tool_call_id": "c1", "content": "1"}));
    assert_eq!(body["messages"][2], json!({"role": "tool", "tool_call_id": "c2", "content": "2"}));
}

#[test]
fn a_choice_that_no_tool_answers_to_is_the_callers_mistake() {
    let request = json!({"input": "a", "tool_choice": {"type": "function", "name": "nope"}});
    let fault = prepared(WIRE, Delivery::Whole, &request).unwrap_err();
    assert_eq!(fault.param.as_deref(), Some("tool_choice"));
}

#[test]
fn calls_around_a_message_are_one_message_with_their_outputs_behind_it() {
    // right A1
    let (messages, losses) = messages(
        WIRE,
        json!({"input": [
            {"role": "user", "content": "Go."},
            call("c1", "f", "{}"),
            {"role": "assistant", "content": "And then."},
            call("c2", "f", "{}"),
            {"role": "user", "content": "Hurry."},
            output("c1", json!("1")),
            output("c2", json!("2")),
        ]}),
    );
    let expected = json!([
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "And then.", "tool_calls": [chat_call("c1", "f", "{}"), chat_call("c2", "f", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "user", "content": "Hurry."},
    ]);
    assert_eq!((messages, losses), (expected, Vec::new()));
}

/// The rule of strict servers: calls are followed by exactly their outputs.
fn strictly_paired(messages: &Value) -> Result<(), String> {
    let mut open: Vec<&Value> = Vec::new();
    for message in messages.as_array().unwrap() {
        if message["role"] == "tool" {
            let at = open.iter().position(|id| **id == message["tool_call_id"]);
            open.remove(at.ok_or_else(|| format!("no call for {message}"))?);
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{message} stands before the outputs of {open:?}"));
        }
        open.extend(message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]));
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no outputs")) }
}

proptest! {
    #[test]
    fn calls_with_outputs_anywhere_behind_them_are_sent_without_a_loss(items in crate::testing::answered_items()) {
        // right A1
        for tool_calls in [ToolCalls::Native, ToolCalls::Constrained] {
            let prepared = prepared(Wire { tool_calls, ..WIRE }, Delivery::Whole, &json!({"input": items})).unwrap();
            prop_assert_eq!(&prepared.losses, &[]);
            let body: Value = serde_json::from_slice(&prepared.body).unwrap();
            prop_assert_eq!(strictly_paired(&body["messages"]), Ok(()));
            let sent = body["messages"].to_string();
            prop_assert!(!sent.contains("[Tool history]"), "{}", sent);
            for item in items.iter().filter_map(|item| item["content"].as_str()) {
                prop_assert!(sent.contains(item), "{} in {}", item, sent);
            }
        }
    }
}
