//! What upstreams receive, and what is lost on the way.

use serde_json::{Value, json};

use super::{PATH, ask, asking, question};
use crate::support::{Delivery, Script, WIRES, Wire, World, assert_refused};

fn hello() -> Script {
    Script::text(&["Hello."])
}

#[tokio::test]
async fn a_conversation_reaches_a_chat_upstream_as_it_was_sent() {
    let world = World::start().await;
    let picture =
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}});
    let audio = json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}});
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"a\":1}"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look"}, picture, audio]},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1"), call("call_2")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
        {"role": "assistant", "content": "Seen."},
        {"role": "user", "content": "Thanks"},
    ]);
    ask(
        &world,
        Wire::Chat,
        Delivery::Whole,
        &hello(),
        &asking(Wire::Chat, Delivery::Whole, "messages", messages.clone()),
    )
    .await;
    assert_eq!(world.sent(Wire::Chat)["messages"], messages);
}

#[tokio::test]
async fn fields_of_this_api_reach_upstreams_that_have_them_and_are_losses_elsewhere() {
    let world = World::start().await;
    let fields = json!({"stop": ["END"], "seed": 7, "logit_bias": {"5": -1}, "top_k": 4});
    for wire in WIRES {
        let mut request = question(wire, Delivery::Whole);
        for (name, value) in fields.as_object().expect("fields are an object") {
            request[name] = value.clone();
        }
        let answer = ask(&world, wire, Delivery::Whole, &hello(), &request).await;
        let losses = answer.header("amalgam-losses").unwrap_or_default().to_owned();
        let lost: Vec<&str> = losses.split("; ").filter_map(|loss| Some(loss.split_once(':')?.0)).collect();
        let sent = world.sent(wire);
        match wire {
            Wire::Chat => {
                assert_eq!(lost, [""; 0]);
                for (name, value) in fields.as_object().expect("fields are an object") {
                    assert_eq!(&sent[name], value, "{name}");
                }
            }
            Wire::Responses => {
                assert_eq!(lost, ["logit_bias", "seed", "stop", "top_k"]);
                assert!(fields.as_object().expect("an object").keys().all(|name| sent.get(name).is_none()), "{sent}");
            }
            Wire::Anthropic => {
                assert_eq!(lost, ["logit_bias", "seed"]);
                assert_eq!((&sent["stop_sequences"], &sent["top_k"]), (&json!(["END"]), &json!(4)));
            }
        }
        assert_eq!(answer.json()["amalgam"]["losses"].as_array().map(Vec::len), Some(lost.len()));
        if wire != Wire::Chat {
            let asked = world.upstream(wire).requests().len();
            let strict = world.amalgam.client().with_header("amalgam-strict", "true").post_json(PATH, &request).await;
            assert_refused(&strict, 400, Some("logit_bias"), "unsupported_parameter");
            assert_eq!(world.upstream(wire).requests().len(), asked, "{wire:?} was asked");
        }
    }
}

#[tokio::test]
async fn settings_become_those_of_each_upstream() {
    let world = World::start().await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    let fields = json!({
        "max_completion_tokens": 50, "temperature": 0.5, "logprobs": true, "top_logprobs": 1,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema, "strict": true}},
        "service_tier": "flex", "user": "u", "metadata": {"a": "b"},
    });
    for wire in [Wire::Chat, Wire::Responses] {
        let mut request = question(wire, Delivery::Whole);
        for (name, value) in fields.as_object().expect("fields are an object") {
            request[name] = value.clone();
        }
        ask(&world, wire, Delivery::Whole, &Script::text(&["{\"a\":\"b\"}"]), &request).await;
        let sent = world.sent(wire);
        match wire {
            Wire::Chat => {
                assert_eq!(sent["response_format"], fields["response_format"]);
                assert_eq!((&sent["logprobs"], &sent["top_logprobs"]), (&json!(true), &json!(1)));
                assert_eq!(sent["max_tokens"], 50, "{sent}");
            }
            _ => {
                let format = json!({"type": "json_schema", "name": "s", "schema": schema, "strict": true});
                assert_eq!(sent["text"]["format"], format);
                assert_eq!(sent["include"], json!(["message.output_text.logprobs"]));
                assert_eq!(sent["max_output_tokens"], 50);
            }
        }
        for name in ["temperature", "service_tier", "user"] {
            assert_eq!(sent[name], fields[name], "{wire:?} {name}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_is_named_in_terms_of_this_api_and_reaches_no_upstream() {
    let world = World::start().await;
    let text = "x".repeat(11 * 1024 * 1024);
    let user = |content: Value| json!([{"role": "system", "content": "a"}, {"role": "user", "content": content}]);
    let cases = [
        ("messages", json!([]), "messages", "invalid_value"),
        ("messages", json!([{"role": "critic", "content": "x"}]), "messages[0].role", "invalid_value"),
        ("messages", user(json!([{"type": "text"}])), "messages[1].content[0].text", "missing_required_parameter"),
        ("n", json!(2), "n", "invalid_value"),
        ("max_tokens", json!(0), "max_tokens", "invalid_value"),
        (
            "tools",
            json!([{"type": "function", "function": {}}]),
            "tools[0].function.name",
            "missing_required_parameter",
        ),
        (
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": "s"}}),
            "response_format.json_schema.schema",
            "missing_required_parameter",
        ),
        ("metadata", json!({"a": 1}), "metadata.a", "invalid_type"),
    ];
    for (field, value, param, code) in cases {
        let answer = world.amalgam.client().post_json(PATH, &asking(Wire::Chat, Delivery::Whole, field, value)).await;
        assert_refused(&answer, 400, Some(param), code);
    }
    let long = asking(Wire::Chat, Delivery::Whole, "messages", user(json!(text)));
    let answer = world.amalgam.client().post_json(PATH, &long).await;
    assert!(answer.status.is_client_error(), "{}", answer.text());
    let answer = world.amalgam.client().post_raw(PATH, "application/json", "{").await;
    assert_refused(&answer, 400, None, "invalid_json");
    let mut unknown = question(Wire::Chat, Delivery::Whole);
    unknown["model"] = json!("nowhere/m");
    let answer = world.amalgam.client().post_json(PATH, &unknown).await;
    assert_refused(&answer, 404, Some("model"), "model_not_found");
    for wire in WIRES {
        assert_eq!(world.upstream(wire).requests().len(), 0, "{wire:?} was asked");
    }
}
