use std::collections::HashMap;

use amalgam_core::{CallMap, Delivery, ModelRequest, normalise};
use amalgam_protocol::ResponseParameters;
use serde_json::{Value, json};

use super::{super::Wire, *};
use crate::{
    chat::{Replay, convert},
    settings::{SystemRole, ToolCalls},
    testing::PlainSeal,
};

const WIRE: Wire = Wire {
    tool_calls: ToolCalls::Constrained,
    system_role: SystemRole::System,
    stream_usage: true,
    newer_limit: false,
    replay: Replay::Never,
};

fn body(request: Value) -> (Value, Option<String>) {
    let text = request.to_string();
    let parameters = text.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let history = normalise(settings.instructions.as_ref(), settings.input.as_ref());
    let request = ModelRequest {
        model: "m",
        settings: &settings,
        history: &history,
        delivery: Delivery::Whole,
        chain: Default::default(),
        seal_context: "",
        images: &HashMap::new(),
    };
    let prepared = convert::prepare(WIRE, &request, "here", &PlainSeal).unwrap();
    (serde_json::from_slice(&prepared.body).unwrap(), prepared.answer_context.own)
}

fn object_of(name: &str, schema: Value) -> Value {
    json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false})
}

fn call_of(name: &str, arguments: Value) -> Value {
    json!({
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": [name]}, "arguments": arguments},
        "required": ["tool", "arguments"],
        "additionalProperties": false
    })
}

#[test]
fn the_tool_list_becomes_a_schema_and_a_description_in_the_instructions() {
    let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let (body, answer_context) = body(json!({
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "Weather?"},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{\"city\":\"Paris\"}"},
            {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{\"city\":\"Rome\"}"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_image", "image_url": "data:image/png;base64,QQ=="}]}
        ],
        "tools": [{"type": "function", "name": "weather", "description": "Tells \"weather\".", "parameters": parameters},
                  {"type": "function", "name": "now"}]
    }));
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "reply", "schema": {"anyOf": [
            object_of("calls", json!({"type": "array", "minItems": 1, "items": {"anyOf": [
                call_of("weather", parameters.clone()),
                call_of("now", json!({"type": "object"}))
            ]}})),
            object_of("answer", json!({"type": "string"}))
        ]}}})
    );
    let system = body["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("Be brief.\n\nReply with one JSON object"), "{system}");
    assert!(
        system.contains(&format!("\nweather: Tells \"weather\".\nJSON Schema of its arguments: {parameters}\n")),
        "{system}"
    );
    assert_eq!(
        body["messages"].as_array().unwrap()[1..],
        [
            json!({"role": "user", "content": "Weather?"}),
            json!({"role": "assistant", "content": "{\"calls\":[{\"tool\":\"weather\",\"arguments\":{\"city\":\"Paris\"}},\
                {\"tool\":\"weather\",\"arguments\":{\"city\":\"Rome\"}}]}"}),
            json!({"role": "user", "content": [
                {"type": "text", "text": "[output of tool weather (c1)]\nsunny"},
                {"type": "text", "text": "[output of tool weather (c2)]\nThe output follows below."},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
            ]})
        ]
    );
    assert_eq!((body.get("tools"), body.get("tool_choice"), answer_context.as_deref()), (None, None, Some(NOTE)));
}

#[test]
fn choice_and_parallel_bound_the_schema() {
    let tools = json!([{"type": "function", "name": "a"}, {"type": "function", "name": "b"}]);
    let (forced, _) = body(
        json!({"input": "x", "tools": tools, "tool_choice": {"type": "function", "name": "b"}, "parallel_tool_calls": false}),
    );
    assert_eq!(
        forced["response_format"]["json_schema"]["schema"],
        json!({"anyOf": [object_of("calls", json!({
            "type": "array", "minItems": 1, "maxItems": 1, "items": {"anyOf": [call_of("b", json!({"type": "object"}))]}
        }))]})
    );
    let (none, answer_context) = body(json!({"input": "x", "tools": tools, "tool_choice": "none"}));
    assert_eq!((none.get("response_format"), answer_context), (None, None));
    assert_eq!(none["messages"], json!([{"role": "user", "content": "x"}]));
}

#[test]
fn a_schema_of_the_users_own_is_that_of_the_answer_and_references_still_lead_home() {
    let own = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}});
    let (body, _) = body(json!({
        "input": "x",
        "tools": [{"type": "function", "name": "a", "parameters": {"type": "object", "properties": {"self": {"$ref": "#"}}}}],
        "text": {"format": {"type": "json_schema", "name": "tree", "description": "A tree.", "schema": own}}
    }));
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("About that value: A tree.\n"));
    assert_eq!(
        body["response_format"]["json_schema"]["schema"],
        json!({
            "anyOf": [
                object_of("calls", json!({"type": "array", "minItems": 1, "items": {"anyOf": [call_of("a", json!({"$ref": "#/$defs/tool_0"}))]}})),
                object_of("answer", json!({"$ref": "#/$defs/answer"}))
            ],
            "$defs": {
                "tool_0": {"type": "object", "properties": {"self": {"$ref": "#/$defs/tool_0"}}},
                "answer": {
                    "$ref": "#/$defs/answer/$defs/node",
                    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/answer/$defs/node"}}}}
                }
            }
        })
    );
}

/// Texts that were passed on before the end, all text, and the calls.
fn read(text: &str, size: usize) -> (bool, String, Vec<(String, String)>) {
    let mut reader = AnswerReader::of_note(Some(NOTE)).unwrap();
    let mut calls = Calls::new(CallMap::default());
    let mut events = Vec::new();
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(size) {
        reader.push(&piece.iter().collect::<String>(), &mut events);
    }
    let early = !events.is_empty();
    reader.conclude(&mut calls, &mut events);
    calls.conclude(false, &mut events);
    let mut said = String::new();
    let mut called: Vec<(String, String)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::Text { delta, .. } => said.push_str(&delta.decode()),
            ModelEvent::CallStart { call, .. } => called.push((call.name, String::new())),
            ModelEvent::CallDelta { key, delta } => called[key as usize].1.push_str(&delta.decode()),
            ModelEvent::CallEnd { .. } => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    (early, said, called)
}

#[test]
fn an_answer_by_the_schema_is_read_however_it_is_cut() {
    let call = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    for (text, early, said, called) in [
        ("{\"answer\": \"h\\u00e9 \\ud83d\\ude00 \\\"q\\\" \\\\\"}", true, "hé 😀 \"q\" \\", vec![]),
        (" {\n \"answer\" : \"two\nlines \\q\" }\n", true, "two\nlines \\q", vec![]),
        ("{\"answer\": \"caf\\u00e9\n\\ud83d\\ude00 \\u00zz\"}", true, "café\n😀 \\u00zz", vec![]),
        ("{\"answer\": \"cut off \\u00", true, "cut off ", vec![]),
        ("{\"answer\": {\"a\": [1, 2]}}", false, "{\"a\": [1, 2]}", vec![]),
        (
            "{\"calls\":[{\"tool\":\"a\",\"arguments\":{\"x\":\"é\"}},{\"tool\":\"b\",\"arguments\":{}}]}",
            false,
            "",
            vec![call("a", "{\"x\":\"é\"}"), call("b", "{}")],
        ),
        ("```json\n{\"tool\":\"a\"}\n```", false, "", vec![call("a", "{}")]),
        ("I would rather say: no.", true, "I would rather say: no.", vec![]),
        ("{\"calls\":[]}", false, "", vec![]),
        ("{\"calls\":[{\"name\":\"a\"}]}", false, "", vec![]),
        ("{\"calls\":[{\"tool\":\"a", false, "", vec![]),
        ("```json\n{\"ca", false, "", vec![]),
        ("{\"answer\": {\"a\": [1,", false, "{\"a\": [1,", vec![]),
        ("{\"x\": 1}", false, "{\"x\": 1}", vec![]),
        ("[1]", true, "[1]", vec![]),
        ("", false, "", vec![]),
    ] {
        for size in [1, 2, 3, 5, 1000] {
            assert_eq!(read(text, size), (early, said.to_owned(), called.clone()), "{text} in pieces of {size}");
        }
    }
}
