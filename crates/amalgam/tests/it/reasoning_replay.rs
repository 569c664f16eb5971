//! Reasoning that a client carries: sealed on its way out on every upstream, given back to the upstream that had it.

use amalgam_testkit::{Reply, Setup};
use serde_json::{Value, json};

use crate::support::{DELIVERIES, Said, Script, WIRES, Wire, World};

fn tools() -> Value {
    json!([{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}])
}

fn first() -> Value {
    json!({
        "input": [{"role": "user", "content": "Look."}], "tools": tools(), "store": false,
        "reasoning": {"effort": "medium"}, "include": ["reasoning.encrypted_content"],
    })
}

/// The request that carries an answer back, with the output of its call.
fn second(response: &Value) -> Value {
    let mut request = first();
    let input = request["input"].as_array_mut().expect("a list");
    input.extend(response["output"].as_array().expect("a list").iter().cloned());
    input.push(json!({"type": "function_call_output", "call_id": "call_1", "output": "Found."}));
    request
}

fn sealed(response: &Value) -> &str {
    let reasoning = &response["output"][0];
    assert_eq!(reasoning["type"], "reasoning", "{response:#}");
    let sealed = reasoning["encrypted_content"].as_str().unwrap_or_default();
    assert!(sealed.starts_with("ams"), "{reasoning:#}");
    assert!(!sealed.contains("Hmm"), "{reasoning:#}");
    sealed
}

// right A6
#[tokio::test]
async fn reasoning_is_sealed_on_every_upstream_and_goes_back_to_those_that_take_it() {
    let world = World::start().await;
    let script = Script::new([Said::thoughts(&["Hmm, ", "a call."]), Said::call("call_1", "look", &["{}"])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &first()).await;
            sealed(&response);
            let answer = world.ask(wire, delivery, &Script::text(&["Done."]), &second(&response)).await;
            let sent = world.sent(wire);
            let losses = answer.header("amalgam-losses");
            match wire {
                Wire::Chat => {
                    assert_eq!(sent["messages"][1]["reasoning_content"], "Hmm, a call.", "{sent:#}");
                    assert_eq!(losses, None, "{sent:#}");
                }
                Wire::Anthropic => {
                    let block = json!({"type": "thinking", "thinking": "Hmm, a call.", "signature": "c2ln"});
                    assert_eq!(sent["messages"][1]["content"][0], block, "{sent:#}");
                    assert_eq!(losses, None, "{sent:#}");
                }
                // It gave a summary and nothing that makes its reasoning readable again.
                Wire::Responses => {
                    let told = "[Summary of earlier reasoning]\nHmm, a call.";
                    assert_eq!(sent["input"][1]["content"][0]["text"], told, "{sent:#}");
                    assert!(losses.is_some_and(|losses| losses.starts_with("input.reasoning")), "{losses:?}");
                }
            }
            assert!(!sent.to_string().contains("\"ams"), "{sent:#}");
        }
    }
}

// right A6
#[tokio::test]
async fn reasoning_goes_back_in_the_field_that_the_chat_server_has_for_it() {
    let world = World::start().await;
    let call = json!({"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let message = json!({"role": "assistant", "content": null, "reasoning": "Hmm.", "tool_calls": [call]});
    let choice = json!({"index": 0, "message": message, "finish_reason": "tool_calls"});
    world.upstream(Wire::Chat).enqueue(Reply::json(json!({"id": "c", "model": "m", "choices": [choice]})));
    let mut request = first();
    request["model"] = json!(Wire::Chat.model());
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    sealed(&answer.json());
    world.whole(Wire::Chat, &Script::text(&["Done."]), &second(&answer.json())).await;
    let sent = world.sent(Wire::Chat);
    assert_eq!(sent["messages"][1]["reasoning"], "Hmm.", "{sent:#}");
    assert_eq!(sent["messages"][1].get("reasoning_content"), None, "{sent:#}");
}

// right A6
#[tokio::test]
async fn a_chat_server_that_takes_no_reasoning_back_gets_none_and_that_is_told() {
    let upstream = amalgam_testkit::Upstream::start();
    let setup = Setup::new()
        .upstream("chat", "chat", &upstream.base_url())
        .option("models", r#"["m"]"#)
        .option("replay_reasoning", r#""never""#);
    let amalgam = amalgam_testkit::Amalgam::start(crate::support::BINARY, setup).await;
    let ask = async |mut request: Value, script: Script| {
        upstream.enqueue(script.reply(Wire::Chat, crate::support::Delivery::Whole));
        request["model"] = json!("m");
        let answer = amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    };
    let script = Script::new([Said::thoughts(&["Hmm."]), Said::call("call_1", "look", &["{}"])]);
    let response = ask(first(), script).await.json();
    sealed(&response);
    let answer = ask(second(&response), Script::text(&["Done."])).await;
    let sent = upstream.requests().last().expect("it was asked").json();
    assert!(!sent.to_string().contains("Hmm."), "{sent:#}");
    let losses = answer.header("amalgam-losses").unwrap_or_default();
    assert!(losses.contains("input.reasoning: this upstream does not accept earlier reasoning"), "{losses}");
}

// right A6
#[tokio::test]
async fn reasoning_that_a_responses_server_gives_in_the_clear_goes_back_as_it_came() {
    let world = World::start().await;
    let thoughts = json!([{"type": "reasoning_text", "text": "Hmm."}]);
    let output = json!([
        {"type": "reasoning", "id": "rs_up", "summary": [], "content": thoughts},
        {"type": "function_call", "id": "fc_up", "call_id": "call_1", "name": "look", "arguments": "{}", "status": "completed"},
    ]);
    let body = json!({"id": "resp_up", "object": "response", "status": "completed", "model": "m", "output": output});
    world.upstream(Wire::Responses).enqueue(Reply::json(body));
    let mut request = first();
    request["model"] = json!(Wire::Responses.model());
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    sealed(&answer.json());
    let script = Script::text(&["Done."]);
    let answer = world.ask(Wire::Responses, crate::support::Delivery::Whole, &script, &second(&answer.json())).await;
    let sent = world.sent(Wire::Responses);
    let item = &sent["input"][1];
    assert_eq!((&item["type"], &item["id"], &item["content"]), (&json!("reasoning"), &json!("rs_up"), &thoughts));
    assert_eq!(answer.header("amalgam-losses"), None, "{sent:#}");
}

// right A6
#[tokio::test]
async fn the_demo_seals_its_reasoning_and_takes_it_back() {
    let amalgam = amalgam_testkit::Amalgam::start(crate::support::BINARY, Setup::new()).await;
    let ask = async |request: &Value| {
        let answer = amalgam.client().post_json("/v1/responses", request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    };
    let mut request = first();
    request["model"] = json!("demo");
    request.as_object_mut().expect("an object").remove("tools");
    let response = ask(&request).await.json();
    sealed(&response);
    let input = request["input"].as_array_mut().expect("a list");
    input.extend(response["output"].as_array().expect("a list").iter().cloned());
    input.push(json!({"role": "user", "content": "And now?"}));
    assert_eq!(ask(&request).await.header("amalgam-losses"), None);
}
