use amalgam_protocol::ResponseParameters;
use std::collections::HashMap;

use amalgam_core::normalise;
use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[path = "convert_reasoning_tests.rs"]
mod thinking;

/// Seals by saying so, which is enough to see what is bound to what.
pub(in crate::anthropic) struct PlainSeal;

impl Seal for PlainSeal {
    fn seal(&self, context: &str, plain: &[u8]) -> String {
        format!("{context}:{}", BASE64_STANDARD.encode(plain))
    }

    fn open(&self, context: &str, sealed: &str) -> Option<Vec<u8>> {
        let rest = sealed.strip_prefix(context)?.strip_prefix(':')?;
        BASE64_STANDARD.decode(rest).ok()
    }
}

fn sealed(upstream: &str, context: &str, blocks: Value) -> String {
    sealed_by("claude-sonnet-4-5", upstream, context, blocks)
}

fn sealed_by(model: &str, upstream: &str, context: &str, blocks: Value) -> String {
    PlainSeal.seal(context, json!({"upstream": upstream, "model": model, "blocks": blocks}).to_string().as_bytes())
}

fn try_prepare(request: &Value, images: &HashMap<String, String>) -> Result<PreparedRequest, Fault> {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let request = ModelRequest {
        model: settings.model.as_deref().unwrap_or("claude-sonnet-4-5"),
        settings: &settings,
        history: &history,
        delivery: Delivery::Stream,
        chain: Default::default(),
        seal_context: "tenant-1",
        images,
    };
    prepare(
        &request,
        &Upstream {
            name: "claude",
            max_output_tokens: 4096,
            structured_output: StructuredOutput::Auto,
            seal: &PlainSeal,
        },
    )
}

fn prepared(request: Value) -> PreparedRequest {
    try_prepare(&request, &HashMap::new()).unwrap()
}

fn body(prepared: &PreparedRequest) -> Value {
    serde_json::from_slice(&prepared.body).unwrap()
}

fn lost(prepared: &PreparedRequest) -> Vec<String> {
    prepared.losses.iter().map(|loss| loss.field.to_string()).collect()
}

fn converted(request: Value) -> (Value, Vec<String>) {
    let prepared = prepared(request);
    (body(&prepared), lost(&prepared))
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
}

fn output(id: &str, output: Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn reasoning(encrypted: &str) -> Value {
    json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "shown"}], "encrypted_content": encrypted})
}

fn weather() -> Value {
    json!({"type": "function", "name": "weather", "description": "Tells \"it\"",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}})
}

#[test]
fn a_plain_request_is_written_whole() {
    let (body, losses) = converted(json!({
        "model": "claude-sonnet-4-5", "instructions": "Be brief.", "input": "Hi \u{1F600} \"you\"",
        "temperature": 0.5, "max_output_tokens": 100, "safety_identifier": "user-7", "service_tier": "default",
        "store": false, "metadata": {"a": "b"}, "stop": "END"
    }));
    assert_eq!(
        body,
        json!({
            "model": "claude-sonnet-4-5", "max_tokens": 100,
            "system": [text("Be brief.")],
            "messages": [{"role": "user", "content": [text("Hi \u{1F600} \"you\"")]}],
            "temperature": 0.5, "metadata": {"user_id": "user-7"}, "service_tier": "standard_only",
            "stop_sequences": ["END"], "stream": true
        })
    );
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn sides_take_turns_and_results_come_first() {
    // O-47
    let (body, losses) = converted(json!({
        "input": [
            {"role": "developer", "content": "Rules."},
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "input_text", "text": "Two"}, {"type": "input_text", "text": "  \n"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Looking", "annotations": []}]},
            call("a", "weather", r#"{"city":"Oslo"}"#),
            call("b.1", "weather", ""),
            output("a", json!("rain")),
            output("b.1", json!([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,AAA="}])),
            {"role": "developer", "content": "Now in French."},
            {"role": "user", "content": "Go on"}
        ],
        "tools": [weather()]
    }));
    let renamed = body["messages"][1]["content"][2]["id"].as_str().unwrap().to_owned();
    assert!(renamed.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{renamed}");
    assert_eq!(body["system"], json!([text("Rules.")]));
    assert_eq!(
        body["messages"],
        json!([
            {"role": "user", "content": [text("One"), text("Two")]},
            {"role": "assistant", "content": [
                text("Looking"),
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Oslo"}},
                {"type": "tool_use", "id": renamed, "name": "weather", "input": {}}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "rain"},
                {"type": "tool_result", "tool_use_id": renamed, "content": [
                    text("see"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAA="}}
                ]},
                text("<developer>\nNow in French.\n</developer>"),
                text("Go on")
            ]}
        ])
    );
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn the_user_speaks_first_and_last_whatever_the_history_holds() {
    for input in
        [json!([]), json!([{"role": "assistant", "content": "Hello"}]), json!([{"role": "user", "content": ""}])]
    {
        let (body, _) = converted(json!({"instructions": "x", "input": input}));
        let messages = body["messages"].as_array().unwrap();
        assert_eq!(messages.first().unwrap()["role"], "user");
        assert_eq!(messages.last().unwrap()["role"], "user");
        for pair in messages.windows(2) {
            assert_ne!(pair[0]["role"], pair[1]["role"]);
        }
    }
}

#[test]
fn outputs_that_look_empty_are_still_results() {
    // O-46
    let (body, losses) = converted(json!({
        "input": [
            call("a", "f", "[1]"), call("b", "f", "{}"), call("c", "f", "{}"), call("d", "f", "{}"),
            output("a", json!("")), output("b", json!(false)), output("c", json!(0)), output("d", json!({}))
        ],
        "tools": [weather()]
    }));
    let results: Vec<&Value> = body["messages"][2]["content"].as_array().unwrap().iter().collect();
    assert_eq!(
        results,
        vec![
            &json!({"type": "tool_result", "tool_use_id": "a"}),
            &json!({"type": "tool_result", "tool_use_id": "b", "content": "false"}),
            &json!({"type": "tool_result", "tool_use_id": "c", "content": "0"}),
            &json!({"type": "tool_result", "tool_use_id": "d", "content": "{}"}),
        ]
    );
    assert_eq!(body["messages"][1]["content"][0]["input"], json!({"arguments": "[1]"}));
    assert_eq!(losses, vec!["input.arguments"]);
}

#[test]
fn images_and_files_become_blocks() {
    let pdf = BASE64_STANDARD.encode("%PDF-1.7 x");
    let csv = BASE64_STANDARD.encode("a,b\n1,2");
    let (body, losses) = converted(json!({"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": "https://x.example/a.png", "detail": "auto"},
        {"type": "image_url", "image_url": {"url": "data:image/jpg;base64,/9j/"}},
        {"type": "input_file", "filename": "a.pdf", "file_data": format!("data:application/pdf;base64,{pdf}")},
        {"type": "input_file", "file_data": pdf},
        {"type": "input_file", "filename": "t.csv", "file_data": format!("data:text/csv;base64,{csv}")},
        {"type": "input_file", "file_url": "https://x.example/b.pdf"},
        {"type": "input_image", "file_id": "file_1"},
        {"type": "input_file", "filename": "x.bin", "file_data": "data:application/octet-stream;base64,gICA"},
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}},
        {"type": "acme:thing", "value": 1},
        {"type": "encrypted_content", "encrypted_content": "secret"},
    ]}]}));
    let pdf_source = json!({"type": "base64", "media_type": "application/pdf", "data": pdf});
    assert_eq!(
        body["messages"][0]["content"],
        json!([
            {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}},
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/"}},
            {"type": "document", "source": pdf_source, "title": "a.pdf"},
            {"type": "document", "source": pdf_source},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b\n1,2"}, "title": "t.csv"},
            {"type": "document", "source": {"type": "url", "url": "https://x.example/b.pdf"}},
            text("[image not available]"),
            text("[file not available]"),
            text("[audio not available]"),
            text(r#"{"type":"acme:thing","value":1}"#),
        ])
    );
    assert_eq!(losses, vec!["input.image", "input.file", "input.audio", "input.acme:thing", "input.encrypted_content"]);
}

#[test]
fn a_fetched_image_is_sent_as_bytes() {
    let images = HashMap::from([("https://x.example/a".to_owned(), "data:image/webp;base64,UklG".to_owned())]);
    let request =
        json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://x.example/a"}]}]});
    let prepared = try_prepare(&request, &images).unwrap();
    assert_eq!(
        body(&prepared)["messages"][0]["content"][0]["source"],
        json!({"type": "base64", "media_type": "image/webp", "data": "UklG"})
    );
}

#[test]
fn tools_are_offered_with_schemas_that_the_wire_takes() {
    let (body, losses) = converted(json!({"input": "x", "tools": [
        weather(),
        {"type": "function", "name": "bare"},
        {"type": "function", "name": "typeless", "parameters": {"properties": {"a": {}}}},
        {"type": "function", "name": "either", "strict": true, "parameters": {"anyOf": [{"type": "object"}]}},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: A"}},
        {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "go"}]},
        {"type": "web_search"}
    ]}));
    let tools = body["tools"].as_array().unwrap();
    let empty = json!({"type": "object", "properties": {}});
    assert_eq!(
        tools[0],
        json!({"name": "weather", "description": "Tells \"it\"",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}})
    );
    assert_eq!(tools[1], json!({"name": "bare", "input_schema": empty}));
    assert_eq!(tools[2]["input_schema"], json!({"type": "object", "properties": {"a": {}}}));
    assert_eq!(tools[3]["input_schema"], empty);
    assert!(tools[3]["description"].as_str().unwrap().contains(r#"{"anyOf":[{"type":"object"}]}"#));
    assert_eq!(tools[4]["input_schema"]["required"], json!(["input"]));
    assert_eq!(tools[5]["name"], "ns__go");
    assert_eq!(body.get("tool_choice"), None);
    assert_eq!(losses, vec!["tools[6]", "tools.strict", "tools.parameters"]);
}

#[test]
fn every_choice_has_its_word() {
    let choice = |tool_choice: Value, parallel: Value| {
        let (body, losses) = converted(
            json!({"input": "x", "tools": [weather()], "tool_choice": tool_choice, "parallel_tool_calls": parallel}),
        );
        assert_eq!(losses, Vec::<String>::new());
        body["tool_choice"].clone()
    };
    let named = json!({"type": "function", "name": "weather"});
    assert_eq!(choice(json!("auto"), Value::Null), Value::Null);
    assert_eq!(choice(json!("auto"), json!(false)), json!({"type": "auto", "disable_parallel_tool_use": true}));
    assert_eq!(choice(json!("required"), json!(true)), json!({"type": "any"}));
    assert_eq!(choice(json!("required"), json!(false)), json!({"type": "any", "disable_parallel_tool_use": true}));
    assert_eq!(choice(named, Value::Null), json!({"type": "tool", "name": "weather"}));
    assert_eq!(choice(json!("none"), json!(false)), json!({"type": "none"}));
}

#[test]
fn a_history_with_calls_has_tools_beside_it_also_when_none_is_offered() {
    let (body, losses) = converted(json!({"input": [call("a", "gone", "{}"), output("a", json!("ok"))]}));
    assert_eq!(body["tools"][0]["name"], "gone");
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn a_schema_is_answered_through_a_tool_that_is_forced() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let format = json!({"format": {"type": "json_schema", "name": "num", "schema": schema, "strict": true}});
    let alone = prepared(json!({"input": "x", "text": format}));
    assert_eq!(body(&alone)["tools"][0]["input_schema"], schema);
    assert_eq!(body(&alone)["tool_choice"], json!({"type": "tool", "name": "amalgam_json"}));
    assert_eq!(alone.answer_context.own.as_deref(), Some("tool amalgam_json"));
    assert_eq!(lost(&alone), Vec::<String>::new());

    let beside = body(&prepared(json!({"input": "x", "text": format, "tools": [weather()]})));
    assert_eq!(beside["tool_choice"], json!({"type": "any"}));
    assert_eq!(beside["tools"][1]["name"], "amalgam_json");

    let forbidden = json!({"input": "x", "text": format, "tools": [weather()], "tool_choice": "none"});
    assert_eq!(body(&prepared(forbidden))["tool_choice"], json!({"type": "tool", "name": "amalgam_json"}));

    let demanded = prepared(json!({"input": "x", "text": format, "tools": [weather()], "tool_choice": "required"}));
    assert_eq!(body(&demanded)["tools"].as_array().unwrap().len(), 1);
    assert_eq!(lost(&demanded), vec!["text.format"]);
}

#[test]
fn a_schema_beside_thinking_is_asked_for_in_words() {
    let format = json!({"format": {"type": "json_schema", "name": "num", "schema": {"type": "object"}}});
    let request = json!({"input": "x", "text": format, "reasoning": {"effort": "low"}, "tools": [weather()]});
    let (body, losses) = converted(request);
    assert_eq!(body["thinking"], json!({"type": "enabled", "budget_tokens": 1024}));
    assert_eq!(body.get("tool_choice"), None);
    assert!(body["system"][0]["text"].as_str().unwrap().contains("`amalgam_json`"));
    assert_eq!(losses, Vec::<String>::new());
}

#[test]
fn a_schema_without_an_object_at_its_root_is_wrapped() {
    let schema = json!({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}});
    let prepared =
        prepared(json!({"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}}}));
    let wrapped = body(&prepared)["tools"][0]["input_schema"].clone();
    assert_eq!(wrapped["properties"]["answer"], schema);
    assert_eq!(wrapped["$defs"], json!({"n": {"type": "integer"}}));
    assert_eq!(prepared.answer_context.own.as_deref(), Some("wrapped amalgam_json"));
}

#[test]
fn a_json_object_is_asked_for_in_words() {
    let prepared = prepared(json!({"instructions": "Hi", "input": "x", "text": {"format": {"type": "json_object"}}}));
    let body = body(&prepared);
    assert_eq!(body["system"].as_array().unwrap().len(), 2);
    assert_eq!(body.get("tools"), None);
    assert_eq!(prepared.answer_context.own.as_deref(), Some("object"));
}

#[test]
fn a_cache_key_marks_tools_system_and_history() {
    let mark = json!({"type": "ephemeral"});
    let request = json!({"instructions": "s", "input": "x", "tools": [weather()], "prompt_cache_key": "k"});
    let (body, losses) = converted(request);
    assert_eq!(body["system"][0]["cache_control"], mark);
    assert_eq!(body["tools"][0]["cache_control"], mark);
    assert_eq!(body["messages"][0]["content"][0]["cache_control"], mark);
    assert_eq!(losses, Vec::<String>::new());
    let (body, _) = converted(json!({"instructions": "s", "input": "x", "tools": [weather()]}));
    assert!(!body.to_string().contains("cache_control"));
}

#[test]
fn what_the_wire_has_no_place_for_is_said() {
    let (_, losses) = converted(json!({
        "input": [{"role": "user", "content": "x"}, {"type": "web_search_call", "id": "ws_1"}, {"type": "additional_tools", "tools": []}],
        "presence_penalty": 0.5, "frequency_penalty": 0, "top_logprobs": 3, "truncation": "auto",
        "text": {"verbosity": "low"}, "client_metadata": {"a": 1}, "seed": 7, "background": false
    }));
    assert_eq!(losses, vec!["input.web_search_call", "presence_penalty", "top_logprobs", "text.verbosity", "seed"]);
}

#[test]
fn a_choice_of_a_tool_that_is_not_there_is_the_callers_mistake() {
    let request = json!({"input": "x", "tools": [weather()], "tool_choice": {"type": "function", "name": "nope"}});
    assert_eq!(try_prepare(&request, &HashMap::new()).unwrap_err().param.as_deref(), Some("tool_choice"));
}

/// Items that clients send, including invalid ones.
fn items() -> impl Strategy<Value = Vec<Value>> {
    let id = prop::sample::select(vec!["a", "b", "c.d"]);
    let role = prop::sample::select(vec!["user", "assistant", "system", "developer"]);
    let words = prop::sample::select(vec!["", " \n", "hello", "\u{1F600}"]);
    let thoughts = json!([{"type": "thinking", "thinking": "t", "signature": "s"}]);
    let mine = sealed("claude", "tenant-1", thoughts);
    let item = prop_oneof![
        3 => (role, words.clone()).prop_map(|(role, text)| json!({"role": role, "content": text})),
        3 => (id.clone(), prop::sample::select(vec!["{}", "", "oops"])).prop_map(|(id, arguments)| call(id, "f", arguments)),
        3 => (id.clone(), words).prop_map(|(id, text)| output(id, json!(text))),
        1 => id.prop_map(|id| json!({"type": "custom_tool_call", "call_id": id, "name": "g", "input": "x"})),
        1 => prop::sample::select(vec![mine, "foreign".to_owned()]).prop_map(|text| reasoning(&text)),
        1 => Just(json!({"type": "web_search_call", "id": "ws"})),
    ];
    prop::collection::vec(item, 0..14)
}

proptest! {
    #[test]
    fn any_history_becomes_messages_that_the_wire_takes(
        items in items(),
        model in prop::sample::select(vec!["claude-sonnet-4-5", "claude-opus-4-7"]),
        effort in prop::sample::select(vec!["none", "low"]),
    ) {
        // O-41, O-42, O-43, O-44, O-45, O-47
        let (body, _) = converted(json!({"model": model, "input": items, "reasoning": {"effort": effort}}));
        let messages = body["messages"].as_array().unwrap();
        prop_assert_eq!(&messages[0]["role"], "user");
        prop_assert_eq!(&messages[messages.len() - 1]["role"], "user");
        let ids = |message: &Value, kind: &str, field: &str| -> Vec<String> {
            let blocks = message["content"].as_array().unwrap().iter().filter(|block| block["type"] == kind);
            blocks.map(|block| block[field].as_str().unwrap().to_owned()).collect()
        };
        let mut seen = Vec::new();
        for (index, message) in messages.iter().enumerate() {
            let blocks = message["content"].as_array().unwrap();
            prop_assert!(!blocks.is_empty());
            if index > 0 {
                prop_assert_ne!(&messages[index - 1]["role"], &message["role"]);
            }
            let results = ids(message, "tool_result", "tool_use_id");
            prop_assert!(blocks[..results.len()].iter().all(|block| block["type"] == "tool_result"));
            let asked = if index > 0 { ids(&messages[index - 1], "tool_use", "id") } else { Vec::new() };
            prop_assert_eq!(&results, &asked);
            for id in asked {
                prop_assert!(!seen.contains(&id), "{} twice", id);
                seen.push(id);
            }
        }
        if !seen.is_empty() {
            prop_assert!(!body["tools"].as_array().unwrap().is_empty());
        }
    }
}

#[test]
fn calls_around_a_message_are_one_message_with_their_results_behind_it() {
    // right A1
    let call = |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": id});
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let prepared = prepared(json!({"input": [
        said("user", "Go."), call("c1"), said("assistant", "And then."), call("c2"), said("user", "Hurry."),
        output("c1"), output("c2"),
    ]}));
    let text = |text: &str| json!({"type": "text", "text": text});
    let tool_use = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": id});
    let expected = json!([
        {"role": "user", "content": [text("Go.")]},
        {"role": "assistant", "content": [text("And then."), tool_use("c1"), tool_use("c2")]},
        {"role": "user", "content": [result("c1"), result("c2"), text("Hurry.")]},
    ]);
    let mut messages = body(&prepared)["messages"].clone();
    for block in
        messages.as_array_mut().unwrap().iter_mut().flat_map(|message| message["content"].as_array_mut().unwrap())
    {
        block.as_object_mut().unwrap().remove("cache_control");
    }
    assert_eq!((messages, prepared.losses), (expected, Vec::new()));
}

/// The rules of the API: roles alternate, and the message after calls begins with exactly their results.
fn strictly_paired(messages: &Value) -> Result<(), String> {
    let messages = messages.as_array().unwrap();
    let mut open: Vec<Value> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let side = if index % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != side {
            return Err(format!("message {index} is not of the {side}"));
        }
        let blocks = message["content"].as_array().unwrap();
        let results = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let results: Vec<Value> = results.map(|block| block["tool_use_id"].clone()).collect();
        if results != open || results.len() != blocks.iter().filter(|block| block["type"] == "tool_result").count() {
            return Err(format!("message {index} has the results {results:?} for {open:?}"));
        }
        let calls: Vec<&Value> = blocks.iter().skip_while(|block| block["type"] != "tool_use").collect();
        if calls.iter().any(|block| block["type"] != "tool_use") {
            return Err(format!("message {index} has words behind its calls"));
        }
        open = calls.into_iter().map(|block| block["id"].clone()).collect();
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} have no results")) }
}

proptest! {
    #[test]
    fn calls_with_outputs_anywhere_behind_them_are_sent_without_a_loss(items in crate::testing::answered_items()) {
        // right A1
        let prepared = prepared(json!({"input": items}));
        prop_assert_eq!(&prepared.losses, &[]);
        let body = body(&prepared);
        prop_assert_eq!(strictly_paired(&body["messages"]), Ok(()));
        let sent = body.to_string();
        prop_assert!(!sent.contains("[Tool history]"), "{}", sent);
        for item in items.iter().filter_map(|item| item["content"].as_str()) {
            prop_assert!(sent.contains(item), "{} in {}", item, sent);
        }
    }
}
