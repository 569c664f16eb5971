//! `/v1/messages`: the wire for clients of Anthropic's Messages API, over every kind of upstream.

mod answers;
mod errors;
mod models;
mod prompts;
mod state;
mod tools;

use amalgam_testkit::{Client, HttpAnswer};
use http::Method;
use serde_json::{Value, json};

use crate::support::{Delivery, Script, Wire, World};

/// A request with its model, for a whole or a streamed answer.
fn request(wire: Wire, delivery: Delivery, fields: &Value) -> Value {
    let mut request = json!({
        "model": wire.model(), "max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}],
        "stream": delivery == Delivery::Stream,
    });
    for (key, value) in fields.as_object().expect("fields are an object") {
        request[key] = value.clone();
    }
    request
}

/// Asks with further headers.
async fn post(client: &Client, headers: &[(&str, &str)], request: &Value) -> HttpAnswer {
    let headers = [&[("content-type", "application/json"), ("anthropic-version", "2023-06-01")], headers].concat();
    client.request(Method::POST, "/v1/messages", &headers, request.to_string().into()).await
}

/// The answer while the upstream says `script`.
async fn ask(world: &World, wire: Wire, delivery: Delivery, script: &Script, fields: &Value) -> HttpAnswer {
    world.upstream(wire).enqueue(script.reply(wire, delivery));
    let answer = post(&world.amalgam.client(), &[], &request(wire, delivery, fields)).await;
    assert_eq!(answer.status, 200, "{wire:?} {delivery:?}: {}", answer.text());
    answer
}

/// The message of an answer, whole or added up from its events.
fn message(delivery: Delivery, answer: &HttpAnswer) -> Value {
    match delivery {
        Delivery::Whole => answer.json(),
        Delivery::Stream => fold(&events(answer)),
    }
}

/// The data of the frames of a stream; each frame is named after its event.
fn events(answer: &HttpAnswer) -> Vec<Value> {
    let content_type = answer.header("content-type").unwrap_or_default();
    assert!(content_type.starts_with("text/event-stream"), "{content_type}: {}", answer.text());
    let read = |frame: amalgam_testkit::sse::SseEvent| {
        let data: Value = serde_json::from_str(&frame.data).expect("a frame has JSON");
        assert_eq!(frame.event.as_deref(), data["type"].as_str());
        data
    };
    answer.events().into_iter().map(read).collect()
}

/// Adds a stream up as the official clients do.
fn fold(events: &[Value]) -> Value {
    let events: Vec<&Value> = events.iter().filter(|event| event["type"] != "ping").collect();
    assert_eq!(events[0]["type"], "message_start", "{events:?}");
    let mut message = events[0]["message"].clone();
    let mut input = String::new();
    for event in &events[1..] {
        let blocks = message["content"].as_array_mut().expect("a message has content");
        match event["type"].as_str().expect("an event has a type") {
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                let (block, delta) = (blocks.last_mut().expect("a block is open"), &event["delta"]);
                for field in ["text", "thinking", "signature"] {
                    if let Some(piece) = delta[field].as_str() {
                        block[field] = json!(format!("{}{piece}", block[field].as_str().unwrap_or_default()));
                    }
                }
                input.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" => {
                let input = std::mem::take(&mut input);
                if !input.is_empty() {
                    let block = blocks.last_mut().expect("a block is open");
                    block["input"] = serde_json::from_str(&input).expect("the input is JSON");
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                message["stop_sequence"] = event["delta"]["stop_sequence"].clone();
                message["usage"] = event["usage"].clone();
            }
            other => assert_eq!(other, "message_stop", "{event}"),
        }
    }
    assert_eq!(events.last().expect("a stream has events")["type"], "message_stop");
    message
}

/// Wants an error in the format of this wire; returns its type and message.
fn error_of(answer: &HttpAnswer) -> (u16, String, String) {
    let body = answer.json();
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned).unwrap_or_else(|| body.to_string());
    assert_eq!(body["type"], "error", "{body}");
    assert_eq!(answer.header("request-id"), body["request_id"].as_str(), "{body}");
    assert!(body["request_id"].is_string(), "{body}");
    (answer.status.as_u16(), text(&body["error"]["type"]), text(&body["error"]["message"]))
}
