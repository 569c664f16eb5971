//! A good request with each of its values dropped, replaced or nested, one at a time: always an answer, never a 5xx.

use std::time::Instant;

use amalgam_testkit::{HttpAnswer, check};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::{Delivery, SOON, Script, WIRES, Wire, World, assert_calm};

/// Everything that a client may say, in its proper form.
fn good(model: &str) -> Value {
    json!({
        "model": model,
        "instructions": "Be brief.",
        "input": [
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "Look at this."},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
                {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AAAA"},
            ]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "x"},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"a\":1}"},
            {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "seen"}]},
            {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": "text"},
            {"type": "custom_tool_call_output", "call_id": "call_2", "output": "done"},
            {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_3", "status": "completed",
             "action": {"type": "exec", "command": ["ls"], "env": {}}},
            {"type": "local_shell_call_output", "call_id": "call_3", "output": "a.txt"},
            {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
             "content": [{"type": "output_text", "text": "Done.", "annotations": []}]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"role": "user", "content": "Go on."},
        ],
        "tools": [
            {"type": "function", "name": "look", "description": "Looks.", "strict": true,
             "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
            {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
            {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "in", "parameters": {"type": "object"}}]},
            {"type": "local_shell"},
            {"type": "web_search", "search_context_size": "low"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": false}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"k": "v"},
        "parallel_tool_calls": false, "max_tool_calls": 4, "max_output_tokens": 4096, "temperature": 0.5, "top_p": 0.5,
        "presence_penalty": 0.1, "frequency_penalty": 0.1, "top_logprobs": 2, "truncation": "auto", "stream": false,
        "stream_options": {"include_obfuscation": false}, "store": false, "background": false,
        "service_tier": "auto", "safety_identifier": "s", "prompt_cache_key": "p", "user": "u",
        "prompt_cache_retention": "24h", "context_management": [{"type": "compaction"}], "client_metadata": {"a": 1},
        "previous_response_id": null, "conversation": null, "prompt": null,
    })
}

/// Every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    let mut visit = |key: String, value: &Value| {
        let place = format!("{at}/{key}");
        found.push(place.clone());
        places(value, &place, found);
    };
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| visit(key.clone(), value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(index, value)| visit(index.to_string(), value)),
        _ => {}
    }
}

/// What a value is replaced with.
fn replacements(original: &Value) -> Vec<Value> {
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(-1.5),
        json!(u64::MAX),
        json!(""),
        json!("zzz \u{0} \u{1f980}"),
        json!([]),
        json!({}),
        json!([null]),
        json!({"type": "unheard-of", "id": null}),
        json!([original]),
        json!({"value": original, "type": original}),
    ]
}

/// The request with one place changed; `None` removes the place.
fn mutated(request: &Value, place: &str, value: Option<Value>) -> Value {
    let mut request = request.clone();
    let (parent, key) = place.rsplit_once('/').expect("a pointer has a slash");
    match (request.pointer_mut(parent).expect("the place exists"), value) {
        (Value::Object(object), None) => drop(object.remove(key)),
        (Value::Array(list), None) => drop(list.remove(key.parse::<usize>().expect("a place in a list is a number"))),
        (parent, Some(value)) => match parent {
            Value::Object(object) => drop(object.insert(key.to_owned(), value)),
            Value::Array(list) => list[key.parse::<usize>().expect("a place in a list is a number")] = value,
            _ => {}
        },
        _ => {}
    }
    request
}

/// What is wrong with an answer to a request that may be wrong in any way.
fn verdict(answer: &HttpAnswer) -> Vec<String> {
    match answer.status.as_u16() {
        200 if answer.header("content-type") == Some("application/json") => check::response(&answer.json()),
        200 => check::body(&answer.body),
        400..=499 if answer.header("content-type") == Some("application/json") => check::error(&answer.json()),
        _ => vec![format!("status {}: {}", answer.status, answer.text())],
    }
}

#[tokio::test]
async fn no_change_of_one_value_makes_the_server_stumble() {
    // P9
    let world = World::start().await;
    let mut all = Vec::new();
    for wire in WIRES {
        let request = good(wire.model());
        world.upstream(wire).always_for("", Script::text(&["{}"]).reply(wire, Delivery::Whole));
        let untouched = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(untouched.status, 200, "{wire:?}: {}", untouched.text());

        let mut found = Vec::new();
        places(&request, "", &mut found);
        let mut requests = Vec::new();
        for place in &found {
            let original = request.pointer(place).expect("the place exists");
            let values = replacements(original).into_iter().map(Some).chain([None]);
            requests.extend(values.map(|value| (place.clone(), value.clone(), mutated(&request, place, value))));
        }
        let client = world.amalgam.client();
        let answers = futures_util::stream::iter(requests).map(|(place, value, request)| {
            let client = client.clone();
            async move {
                let started = Instant::now();
                let answer = client.post_json("/v1/responses", &request).await;
                (place, value, started.elapsed(), answer)
            }
        });
        let problems: Vec<String> = answers
            .buffer_unordered(8)
            .filter_map(|(place, value, took, answer)| async move {
                let problems = verdict(&answer);
                let late = (took > SOON).then(|| format!("took {took:?}"));
                let problems: Vec<String> = problems.into_iter().chain(late).collect();
                (!problems.is_empty()).then(|| format!("{place} = {value:?}: {}", problems.join("; ")))
            })
            .collect()
            .await;
        all.extend(problems.into_iter().map(|problem| format!("{wire:?} {problem}")));
    }
    let shown = all.iter().take(60).cloned().collect::<Vec<_>>().join("\n");
    assert!(all.is_empty(), "{} of them, such as\n{shown}", all.len());
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn no_cut_of_the_body_makes_the_server_stumble() {
    // P9: every prefix of a good body is refused as what it is, half a text
    let world = World::start().await;
    let body = json!({"model": Wire::Chat.model(), "input": [{"role": "user", "content": "ü\n\"\\"}], "top_p": 0.5})
        .to_string();
    for end in 0..body.len() {
        let part = body.as_bytes().get(..end).expect("the end is inside").to_vec();
        let answer = world.amalgam.client().post_raw("/v1/responses", "application/json", part).await;
        assert_eq!(answer.status, 400, "after {end} bytes: {}", answer.text());
        assert_eq!(answer.json()["error"]["code"], "invalid_json", "after {end} bytes");
    }
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 0);
    assert_calm(&world.amalgam);
}
