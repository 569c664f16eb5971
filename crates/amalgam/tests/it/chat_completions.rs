//! `/v1/chat/completions`: the language of most clients, over every kind of upstream.

mod failures;
mod requests;
mod state;
mod tools;

use amalgam_testkit::HttpAnswer;
use serde_json::{Value, json};

use crate::support::{DELIVERIES, Delivery, Said, Script, WIRES, Wire, World};

pub(crate) const PATH: &str = "/v1/chat/completions";

/// A question for the model of this wire.
pub(crate) fn question(wire: Wire, delivery: Delivery) -> Value {
    let mut request = json!({"model": wire.model(), "messages": [{"role": "user", "content": "Say hello."}]});
    if delivery == Delivery::Stream {
        request["stream"] = json!(true);
        request["stream_options"] = json!({"include_usage": true});
    }
    request
}

/// The question with one more field.
pub(crate) fn asking(wire: Wire, delivery: Delivery, field: &str, value: Value) -> Value {
    let mut request = question(wire, delivery);
    request[field] = value;
    request
}

/// Asks while the upstream says `script`, and wants status 200.
pub(crate) async fn ask(world: &World, wire: Wire, delivery: Delivery, script: &Script, request: &Value) -> HttpAnswer {
    world.upstream(wire).enqueue(script.reply(wire, delivery));
    let answer = world.amalgam.client().post_json(PATH, request).await;
    assert_eq!(answer.status, 200, "{wire:?} {delivery:?}: {}", answer.text());
    answer
}

/// The chunks of a stream that ends as it has to.
pub(crate) fn chunks(answer: &HttpAnswer) -> Vec<Value> {
    assert!(answer.header("content-type").unwrap_or_default().starts_with("text/event-stream"), "{}", answer.text());
    let text = answer.text();
    let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.iter().map(|data| serde_json::from_str(data).expect("a chunk is JSON")).collect()
}

/// The choice of an answer, whole or added up from its chunks, and its usage.
pub(crate) fn choice(answer: &HttpAnswer, delivery: Delivery) -> (Value, Value) {
    if delivery == Delivery::Whole {
        let completion = answer.json();
        assert_eq!(completion["object"], "chat.completion", "{completion}");
        return (completion["choices"][0].clone(), completion["usage"].clone());
    }
    let chunks = chunks(answer);
    let mut message = json!({"role": null, "content": null, "refusal": null, "annotations": []});
    let mut calls: Vec<Value> = Vec::new();
    let mut finish = Value::Null;
    let add = |target: &mut Value, piece: &Value| {
        if let Some(piece) = piece.as_str().filter(|piece| !piece.is_empty()) {
            *target = json!(format!("{}{piece}", target.as_str().unwrap_or_default()));
        }
    };
    for choice in chunks.iter().filter_map(|chunk| chunk["choices"].get(0)) {
        let delta = &choice["delta"];
        for field in ["role", "content", "refusal", "reasoning_content"] {
            if delta.get(field).is_some() {
                add(&mut message[field], &delta[field]);
            }
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().expect("a call has an index") as usize;
            if let Some(id) = call.get("id") {
                assert_eq!(index, calls.len(), "calls begin in order");
                calls.push(json!({"id": id, "type": call["type"], "function": {"name": call["function"]["name"], "arguments": ""}}));
            }
            let piece = call["function"]["arguments"].clone();
            add(&mut calls[index]["function"]["arguments"], &piece);
        }
        finish = choice["finish_reason"].clone();
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish});
    (choice, chunks.last().expect("a stream has chunks")["usage"].clone())
}

#[tokio::test]
async fn a_text_comes_back_with_reason_and_usage_over_every_upstream() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let script = Script::text(&["Grü", "ße, \"Welt\"\n", "🦀"]);
            let answer = ask(&world, wire, delivery, &script, &question(wire, delivery)).await;
            let (choice, usage) = choice(&answer, delivery);
            let message =
                json!({"role": "assistant", "content": "Grüße, \"Welt\"\n🦀", "refusal": null, "annotations": []});
            let expected = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": "stop"});
            assert_eq!(choice, expected, "{wire:?} {delivery:?}");
            let counted = [&usage["prompt_tokens"], &usage["completion_tokens"], &usage["total_tokens"]];
            assert_eq!(counted, [&json!(11), &json!(7), &json!(18)], "{wire:?} {delivery:?}");
            assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 3, "{wire:?} {delivery:?}");
            let response = answer.header("amalgam-response-id").expect("the turn is named").to_owned();
            let id = match delivery {
                Delivery::Whole => answer.json()["id"].clone(),
                Delivery::Stream => chunks(&answer)[0]["id"].clone(),
            };
            assert_eq!(id, response.replace("resp_", "chatcmpl-"), "{wire:?} {delivery:?}");
            if delivery == Delivery::Whole {
                assert_eq!(answer.header("amalgam-model"), Some(&*format!("{}/{}", wire.kind(), wire.model())));
                assert_eq!(answer.json()["model"], wire.model());
            }
            assert_eq!(world.upstream(wire).malformed(), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn streamed_and_whole_answers_are_the_same() {
    let world = World::start().await;
    let scripts = [
        Script::new([Said::reasoning(&["I ", "think"]), Said::text(&["so ", "be it"])]),
        Script::new([Said::text(&["Let me look."]), Said::call("call_1", "look", &["{\"a\"", ":1}"])]),
        Script::new([Said::call("call_1", "look", &["{}"]), Said::call("call_2", "look", &["{\"b\"", ":[2]}"])]),
        Script::text(&["cut ", "off"]).cut_by_length(),
    ];
    for wire in WIRES {
        for script in &scripts {
            let mut answers = Vec::new();
            for delivery in DELIVERIES {
                let tools =
                    json!([{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]);
                let mut request = asking(wire, delivery, "tools", tools);
                if wire != Wire::Chat {
                    request["reasoning"] = json!({"summary": "auto"});
                }
                let answer = ask(&world, wire, delivery, script, &request).await;
                answers.push(choice(&answer, delivery));
            }
            assert_eq!(answers[0], answers[1], "{wire:?} {script:?}");
        }
    }
}

#[tokio::test]
async fn reasoning_and_refusals_have_their_own_fields() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        let script = Script::new([Said::reasoning(&["I ", "think."]), Said::text(&["So."])]);
        let request = asking(Wire::Chat, delivery, "reasoning_effort", json!("high"));
        let answer = ask(&world, Wire::Chat, delivery, &script, &request).await;
        let (choice_of_reasoning, _) = choice(&answer, delivery);
        assert_eq!(choice_of_reasoning["message"]["reasoning_content"], "I think.");
        assert_eq!(choice_of_reasoning["message"]["content"], "So.");
        assert_eq!(world.sent(Wire::Chat)["reasoning_effort"], "high");
        let script = Script::new([Said::refusal(&["I can", "not."])]);
        for wire in [Wire::Chat, Wire::Responses] {
            let (choice, _) = choice(&ask(&world, wire, delivery, &script, &question(wire, delivery)).await, delivery);
            assert_eq!(
                (&choice["message"]["refusal"], &choice["message"]["content"]),
                (&json!("I cannot."), &Value::Null)
            );
        }
    }
}

#[tokio::test]
async fn a_stream_tells_its_usage_only_if_asked() {
    let world = World::start().await;
    let mut request = question(Wire::Chat, Delivery::Stream);
    request.as_object_mut().expect("a request is an object").remove("stream_options");
    let answer = ask(&world, Wire::Chat, Delivery::Stream, &Script::text(&["Hello."]), &request).await;
    for chunk in chunks(&answer) {
        assert_eq!(chunk["choices"].as_array().map(Vec::len), Some(1), "{chunk}");
        assert!(chunk.get("usage").is_none(), "{chunk}");
    }
}
