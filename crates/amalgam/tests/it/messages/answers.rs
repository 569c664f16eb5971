//! What a client gets: blocks, stop reasons and usage, whole and streamed.

use serde_json::{Value, json};

use super::{ask, message};
use crate::support::{DELIVERIES, Delivery, Said, Script, WIRES, Wire, World};

/// A message without its id, and without signatures.
fn shown(mut message: Value) -> Value {
    let fields = message.as_object_mut().expect("a message is an object");
    assert!(fields.remove("id").is_some_and(|id| id.as_str().is_some_and(|id| id.starts_with("msg_"))));
    for block in message["content"].as_array_mut().expect("a message has content") {
        block.as_object_mut().expect("a block is an object").remove("signature");
    }
    message
}

#[tokio::test]
async fn text_comes_from_every_upstream_whole_and_streamed() {
    let world = World::start().await;
    let script = Script::text(&["All ", "is \"well\".\n", "Bye"]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let answer = ask(&world, wire, delivery, &script, &json!({})).await;
            let expected = json!({
                "type": "message", "role": "assistant", "model": wire.model(),
                "content": [{"type": "text", "text": "All is \"well\".\nBye"}],
                "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {
                    "input_tokens": 8, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3,
                    "output_tokens": 7,
                },
            });
            assert_eq!(shown(message(delivery, &answer)), expected, "{wire:?} {delivery:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_says_at_its_beginning_how_many_tokens_the_prompt_has() {
    let world = World::start().await;
    let words = "lorem ipsum dolor sit amet ".repeat(400);
    let fields = json!({"messages": [{"role": "user", "content": words}]});
    let mut counted = Vec::new();
    for wire in WIRES {
        let answer = ask(&world, wire, Delivery::Stream, &Script::text(&["Yes"]), &fields).await;
        let start = super::events(&answer)[0].clone();
        assert_eq!(start["type"], "message_start");
        counted.push(start["message"]["usage"]["input_tokens"].as_u64().unwrap_or_default());
    }
    assert!(counted.iter().all(|tokens| (1500..4000).contains(tokens)), "{counted:?}");
    let count = super::request(Wire::Chat, Delivery::Whole, &fields);
    let counts = world.amalgam.client().post_json("/v1/messages/count_tokens?beta=true", &count).await;
    assert_eq!(counts.status, 200, "{}", counts.text());
    let tokens = counts.json()["input_tokens"].as_u64().unwrap_or_default();
    assert!(tokens.abs_diff(counted[0]) * 20 < tokens, "{tokens} and {counted:?}");
}

#[tokio::test]
async fn a_stream_whose_model_is_slow_to_accept_says_it_too() {
    let world = World::start().await;
    // Later than the head of a stream may be.
    let slow = Script::text(&["Yes"]).reply(Wire::Chat, Delivery::Stream).after(std::time::Duration::from_millis(1500));
    world.upstream(Wire::Chat).enqueue(slow);
    let body = super::request(Wire::Chat, Delivery::Stream, &json!({}));
    let answer = super::post(&world.amalgam.client(), &[], &body).await;
    assert_eq!(answer.header("amalgam-model"), None, "the head was sent before a model had accepted");
    let events = super::events(&answer);
    let start = events.iter().find(|event| event["type"] != "ping").expect("a stream has events");
    assert_eq!(start["type"], "message_start");
    assert!(start["message"]["usage"]["input_tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{start}");
    assert_eq!(super::fold(&events)["content"][0]["text"], "Yes");
}

#[tokio::test]
async fn calls_and_reasoning_are_blocks_in_their_order() {
    let world = World::start().await;
    let script = Script::new([
        Said::reasoning(&["Let me ", "look."]),
        Said::text(&["I look."]),
        Said::call("call_1", "look", &["{\"at\":", "\"x\"}"]),
        Said::call("call_2", "look", &["{}"]),
    ]);
    let tool = json!({"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}});
    let fields = json!({"tools": [tool], "thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 9000});
    for wire in WIRES {
        for delivery in DELIVERIES {
            let answer = ask(&world, wire, delivery, &script, &fields).await;
            let message = message(delivery, &answer);
            let signature = message["content"][0]["signature"].as_str().unwrap_or_default();
            assert!(signature.starts_with("ams"), "{wire:?} {delivery:?}: reasoning is sealed: {message}");
            let message = shown(message);
            let expected = json!([
                {"type": "thinking", "thinking": "Let me look."},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "x"}},
                {"type": "tool_use", "id": "call_2", "name": "look", "input": {}},
            ]);
            assert_eq!(message["content"], expected, "{wire:?} {delivery:?}");
            assert_eq!(message["stop_reason"], "tool_use", "{wire:?} {delivery:?}");
        }
    }
}

#[tokio::test]
async fn thinking_that_is_switched_off_is_not_shown() {
    let world = World::start().await;
    let script = Script::new([Said::reasoning(&["Hm."]), Said::text(&["Yes"])]);
    for delivery in DELIVERIES {
        let off = json!({"thinking": {"type": "disabled"}});
        let answer = ask(&world, Wire::Chat, delivery, &script, &off).await;
        assert_eq!(message(delivery, &answer)["content"], json!([{"type": "text", "text": "Yes"}]));
        let omitted =
            json!({"thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "low"}});
        let answer = ask(&world, Wire::Chat, delivery, &script, &omitted).await;
        let message = message(delivery, &answer);
        assert_eq!(message["content"][0]["thinking"], "", "{message}");
        assert!(message["content"][0]["signature"].as_str().is_some_and(|text| text.starts_with("ams")), "{message}");
    }
}

#[tokio::test]
async fn an_answer_that_is_cut_or_refused_says_so() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            let cut = Script::text(&["All is"]).cut_by_length();
            let answer = ask(&world, wire, delivery, &cut, &json!({})).await;
            assert_eq!(message(delivery, &answer)["stop_reason"], "max_tokens", "{wire:?} {delivery:?}");
        }
    }
    for wire in [Wire::Chat, Wire::Responses] {
        for delivery in DELIVERIES {
            let refusal = Script::new([Said::refusal(&["I must ", "not."])]);
            let answer = ask(&world, wire, delivery, &refusal, &json!({})).await;
            let message = message(delivery, &answer);
            assert_eq!(message["stop_reason"], "refusal", "{wire:?} {delivery:?}");
            assert_eq!(message["content"], json!([{"type": "text", "text": "I must not."}]), "{wire:?} {delivery:?}");
        }
    }
}

#[tokio::test]
async fn the_stop_sequence_that_an_upstream_names_is_passed_on() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        let reply = match delivery {
            Delivery::Whole => amalgam_testkit::Reply::json(json!({
                "id": "m", "type": "message", "role": "assistant", "model": "x",
                "content": [{"type": "text", "text": "One"}],
                "stop_reason": "stop_sequence", "stop_sequence": "END", "usage": {"input_tokens": 3, "output_tokens": 1},
            })),
            Delivery::Stream => amalgam_testkit::Reply::sse_typed([
                json!({"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 3}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One"}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"},
                       "usage": {"output_tokens": 1}}),
                json!({"type": "message_stop"}),
            ]),
        };
        world.upstream(Wire::Anthropic).enqueue(reply);
        let fields = json!({"stop_sequences": ["END"]});
        let answer =
            super::post(&world.amalgam.client(), &[], &super::request(Wire::Anthropic, delivery, &fields)).await;
        let message = message(delivery, &answer);
        assert_eq!((&message["stop_reason"], &message["stop_sequence"]), (&json!("stop_sequence"), &json!("END")));
    }
}
