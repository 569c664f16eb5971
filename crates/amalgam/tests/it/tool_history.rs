//! Calls and outputs of a history on their way to every upstream: pairs are found by id, and nothing that has its partner is
//! reported as lost.

use amalgam_testkit::{Amalgam, Client, HttpAnswer, Setup, Upstream};
use serde_json::{Value, json};

use crate::support::{
    BINARY, DELIVERIES, Delivery, Said, Script, WIRES, Wire, World, asking, last_response, stores, types,
};

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": text})
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"})
}

fn output(id: &str, text: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": text})
}

fn tools() -> Value {
    json!([{"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}])
}

/// What an upstream was sent in short, one word a step, in its order.
fn steps(wire: Wire, body: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let mut steps = Vec::new();
    let list = if wire == Wire::Responses { &body["input"] } else { &body["messages"] };
    for step in list.as_array().expect("a body has messages") {
        match wire {
            Wire::Responses => steps.push(match step["type"].as_str() {
                Some("message") => format!(
                    "{}: {}",
                    step["role"].as_str().unwrap_or_default(),
                    text(&step["content"]).or(text(&step["content"][0]["text"])).unwrap_or_default()
                ),
                kind => format!("{} {}", kind.unwrap_or_default(), step["call_id"].as_str().unwrap_or_default()),
            }),
            Wire::Chat => {
                if let Some(said) = step["content"].as_str().filter(|_| step["role"] != "tool") {
                    steps.push(format!("{}: {said}", step["role"].as_str().unwrap_or_default()));
                }
                for call in step["tool_calls"].as_array().into_iter().flatten() {
                    steps.push(format!("function_call {}", call["id"].as_str().unwrap_or_default()));
                }
                if step["role"] == "tool" {
                    let id = step["tool_call_id"].as_str().unwrap_or_default();
                    steps.push(format!("function_call_output {id}"));
                }
            }
            Wire::Anthropic => {
                for block in step["content"].as_array().into_iter().flatten() {
                    steps.push(match block["type"].as_str() {
                        Some("text") => {
                            format!(
                                "{}: {}",
                                step["role"].as_str().unwrap_or_default(),
                                block["text"].as_str().unwrap_or_default()
                            )
                        }
                        Some("tool_use") => format!("function_call {}", block["id"].as_str().unwrap_or_default()),
                        _ => format!("function_call_output {}", block["tool_use_id"].as_str().unwrap_or_default()),
                    });
                }
            }
        }
    }
    steps
}

/// Asks in strict mode, which refuses every loss.
async fn strictly(client: &Client, request: &Value) -> HttpAnswer {
    client.clone().with_header("amalgam-strict", "true").post_json("/v1/responses", request).await
}

#[tokio::test]
async fn a_message_between_a_call_and_its_output_tears_nothing_apart() {
    // right A1
    let world = World::start().await;
    for role in ["user", "assistant", "developer"] {
        let request = json!({"input": [said("user", "Go."), call("c1"), said(role, "Hm."), output("c1", "seen")], "tools": tools()});
        for wire in WIRES {
            world.upstream(wire).enqueue(Script::text(&["Done."]).reply(wire, Delivery::Whole));
            let answer = strictly(&world.amalgam.client(), &asking(wire, Delivery::Whole, &request)).await;
            assert_eq!(answer.status, 200, "{wire:?} {role}: {}", answer.text());
            assert_eq!(answer.header("amalgam-losses"), None, "{wire:?} {role}");
            let hm = match (wire, role) {
                // After the beginning the wire has no such role; the text contains it.
                (Wire::Anthropic, "developer") => "user: <developer>\nHm.\n</developer>".to_owned(),
                // The role that this upstream takes instructions in.
                (Wire::Chat, "developer") => "system: Hm.".to_owned(),
                _ => format!("{role}: Hm."),
            };
            let expected: [&str; 4] = match (wire, role) {
                (Wire::Responses, _) => ["user: Go.", "function_call c1", &hm, "function_call_output c1"],
                // Words of the assistant stay in the message of the call.
                (_, "assistant") => ["user: Go.", &hm, "function_call c1", "function_call_output c1"],
                _ => ["user: Go.", "function_call c1", "function_call_output c1", &hm],
            };
            assert_eq!(steps(wire, &world.sent(wire)), expected, "{wire:?} {role}");
        }
    }
}

#[tokio::test]
async fn outputs_of_an_answer_with_calls_around_a_message_are_accepted_by_every_upstream() {
    // right A1
    for store in stores() {
        let (speaker, setup) = (Upstream::start(), store.setup(Setup::new()));
        let others: Vec<(Wire, Upstream)> = WIRES.into_iter().map(|wire| (wire, Upstream::start())).collect();
        let mut setup = setup.upstream("speaker", "responses", &speaker.base_url()).option("models", "[\"speaker\"]");
        for (wire, upstream) in &others {
            setup = setup.upstream(wire.kind(), wire.kind(), &upstream.base_url());
            setup = setup.option("models", &json!([wire.model()]).to_string());
        }
        let amalgam = Amalgam::start(BINARY, setup).await;
        let client = amalgam.client();
        for delivery in DELIVERIES {
            let script = Script::new([
                Said::call("c1", "look", &["{}"]),
                Said::text(&["And then."]),
                Said::call("c2", "look", &["{}"]),
            ]);
            speaker.enqueue(script.reply(Wire::Responses, delivery));
            let stream = delivery == Delivery::Stream;
            let request = json!({"model": "speaker", "input": "Go.", "tools": tools(), "stream": stream});
            let answer = client.post_json("/v1/responses", &request).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let response = if stream { last_response(&answer.json_events()) } else { answer.json() };
            let kinds: Vec<&str> = types(response["output"].as_array().expect("a response has output"));
            assert_eq!(kinds, ["function_call", "message", "function_call"], "{}", store.name);

            for (wire, upstream) in &others {
                let outputs = [output("c1", "1"), output("c2", "2")];
                let mut history = vec![said("user", "Go.")];
                history.extend(response["output"].as_array().expect("a response has output").iter().cloned());
                history.extend(outputs.clone());
                let continued = json!({"model": wire.model(), "previous_response_id": response["id"], "input": outputs, "tools": tools()});
                let retold = json!({"model": wire.model(), "input": history, "tools": tools(), "store": false});
                for request in [continued, retold] {
                    upstream.enqueue(Script::text(&["Done."]).reply(*wire, Delivery::Whole));
                    let answer = strictly(&client, &request).await;
                    assert_eq!(answer.status, 200, "{} {wire:?}: {}", store.name, answer.text());
                    let body = upstream.requests().last().expect("the upstream was asked").json();
                    let expected = match wire {
                        Wire::Responses => ["function_call c1", "assistant: And then.", "function_call c2"],
                        Wire::Chat | Wire::Anthropic => {
                            ["assistant: And then.", "function_call c1", "function_call c2"]
                        }
                    };
                    let mut all = vec!["user: Go."];
                    all.extend(expected);
                    all.extend(["function_call_output c1", "function_call_output c2"]);
                    assert_eq!(steps(*wire, &body), all, "{} {wire:?} {delivery:?}", store.name);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_conversation_and_a_chain_of_responses_find_the_call_of_a_late_output() {
    // right A1
    for store in stores() {
        let upstream = Upstream::start();
        let setup = store.setup(Setup::new()).upstream("chat", "chat", &upstream.base_url());
        let amalgam = Amalgam::start(BINARY, setup.option("models", "[\"m\"]")).await;
        let client = amalgam.client();
        let expected = [
            "user: Go.",
            "function_call c1",
            "function_call_output c1",
            "user: Hurry.",
            "assistant: Wait.",
            "user: And?",
        ];

        let items = json!([said("user", "Go."), call("c1"), said("user", "Hurry."), said("assistant", "Wait.")]);
        let conversation = client.post_json("/v1/conversations", &json!({"items": items})).await.json();
        upstream.enqueue(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole));
        let late = json!([output("c1", "seen"), said("user", "And?")]);
        let request = json!({"model": "m", "conversation": conversation["id"], "input": late, "tools": tools()});
        let answer = strictly(&client, &request).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        let body = upstream.requests().last().expect("the upstream was asked").json();
        assert_eq!(steps(Wire::Chat, &body), expected, "{}", store.name);

        // The same over responses: the call is left open for a turn.
        upstream.enqueue(Script::new([Said::call("c1", "look", &["{}"])]).reply(Wire::Chat, Delivery::Whole));
        let first =
            client.post_json("/v1/responses", &json!({"model": "m", "input": "Go.", "tools": tools()})).await.json();
        upstream.enqueue(Script::text(&["Wait."]).reply(Wire::Chat, Delivery::Whole));
        let request = json!({"model": "m", "input": "Hurry.", "previous_response_id": first["id"], "tools": tools()});
        let second = client.post_json("/v1/responses", &request).await.json();
        upstream.enqueue(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole));
        let request = json!({"model": "m", "input": late, "previous_response_id": second["id"], "tools": tools()});
        let answer = strictly(&client, &request).await;
        assert_eq!(answer.status, 200, "{}: {}", store.name, answer.text());
        let body = upstream.requests().last().expect("the upstream was asked").json();
        assert_eq!(steps(Wire::Chat, &body), expected, "{}", store.name);
    }
}

#[tokio::test]
async fn calls_of_one_answer_never_share_an_id() {
    // right C7
    let world = World::start().await;
    let script = Script::new([Said::call("c1", "look", &["{\"n\":1}"]), Said::call("c1", "look", &["{\"n\":2}"])]);
    for wire in WIRES {
        for delivery in DELIVERIES {
            let response = world.response(wire, delivery, &script, &json!({"input": "Go.", "tools": tools()})).await;
            let calls = response["output"].as_array().expect("a response has output");
            let ids: Vec<&str> = calls.iter().map(|call| call["call_id"].as_str().unwrap()).collect();
            assert_eq!((ids.len(), ids[0]), (2, "c1"), "{wire:?} {delivery:?}");
            assert_ne!(ids[1], "c1", "{wire:?} {delivery:?}");

            let outputs = [output(ids[0], "one"), output(ids[1], "two")];
            let request = json!({"input": outputs, "previous_response_id": response["id"], "tools": tools()});
            world.upstream(wire).enqueue(Script::text(&["Done."]).reply(wire, Delivery::Whole));
            let answer = strictly(&world.amalgam.client(), &asking(wire, Delivery::Whole, &request)).await;
            assert_eq!(answer.status, 200, "{wire:?} {delivery:?}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn an_upstream_that_keeps_state_is_told_everything_when_a_call_got_another_id() {
    // right C7
    let upstream = Upstream::start();
    let setup = Setup::new().upstream("keeper", "responses", &upstream.base_url());
    let setup = setup.option("models", "[\"m\"]").option("keeps_state", "true");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let client = amalgam.client();
    let script = Script::new([Said::call("c1", "look", &["{\"n\":1}"]), Said::call("c1", "look", &["{\"n\":2}"])]);
    upstream.enqueue(script.reply(Wire::Responses, Delivery::Whole));
    let first =
        client.post_json("/v1/responses", &json!({"model": "m", "input": "Go.", "tools": tools()})).await.json();
    let ids = [&first["output"][0]["call_id"], &first["output"][1]["call_id"]].map(|id| id.as_str().unwrap());
    upstream.enqueue(Script::text(&["Done."]).reply(Wire::Responses, Delivery::Whole));
    let outputs = [output(ids[0], "one"), output(ids[1], "two")];
    let request = json!({"model": "m", "input": outputs, "previous_response_id": first["id"], "tools": tools()});
    let answer = client.post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = upstream.requests().last().expect("the upstream was asked").json();
    assert_eq!(body.get("previous_response_id"), None, "the upstream does not know the second id: {body}");
    let named = |id: &str| body["input"].as_array().unwrap().iter().filter(|item| item["call_id"] == id).count();
    assert_eq!((named(ids[0]), named(ids[1])), (2, 2), "{body}");
}
