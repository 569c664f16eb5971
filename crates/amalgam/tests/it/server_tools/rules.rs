//! What a request and a tool may demand: choices, bounds, order, and what a failure does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use amalgam_testkit::Gate;

use super::*;
use crate::support::{beside, error_of, setup};

fn chosen(request: Value, key: &str, value: Value) -> Value {
    let mut request = request;
    request[key] = value;
    request
}

#[tokio::test]
async fn a_forced_choice_holds_for_the_first_call_only() {
    // C-30
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        for wire in WIRES {
            for choice in [json!("required"), json!({"type": "function", "name": "weather"})] {
                let before = workshop.world.upstream(wire).requests().len();
                let request = chosen(question(), "tool_choice", choice.clone());
                let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])];
                let response = workshop.turn(wire, Delivery::Whole, &scripts, &request).await;
                assert_eq!((&response["status"], &response["tool_choice"]), (&json!("completed"), &choice));
                let sent = workshop.world.upstream(wire).requests_from(before);
                let choices: Vec<Value> = sent.iter().map(|request| request.json()["tool_choice"].clone()).collect();
                let forced = choices[0].to_string();
                assert!(["required", "any", "weather"].iter().any(|word| forced.contains(word)), "{wire:?}: {forced}");
                let free = choices[1].to_string();
                assert!(["null", "\"auto\"", "{\"type\":\"auto\"}"].contains(&free.as_str()), "{wire:?}: {free}");
            }
        }
    }
}

#[tokio::test]
async fn allowed_tools_bound_what_a_model_may_call() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        for name in ["weather", "traffic"] {
            workshop.put(name, json!({})).await;
            workshop.service.always_for(&format!("/{name}"), says(json!("fine")));
        }
        let choice = json!({"type": "allowed_tools", "mode": "auto", "tools": [named("weather")]});
        let request = json!({"input": "Hi", "tools": [named("weather"), named("traffic")], "tool_choice": choice});
        for wire in WIRES {
            let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Fine."])];
            let response = workshop.turn(wire, Delivery::Stream, &scripts, &request).await;
            assert_eq!(response["status"], "completed", "{} {wire:?}", store.name);
            workshop.script(wire, Delivery::Stream, &[calls("call_1", "traffic", "Oslo")]);
            let answer = workshop.client().post_json("/v1/responses", &asking(wire, Delivery::Stream, &request)).await;
            let response = last_response(&checked_events(&answer));
            assert_eq!(response["status"], "failed", "{} {wire:?}", store.name);
        }
        assert!(workshop.service.requests().iter().all(|request| request.path == "/weather"));
    }
}

#[tokio::test]
async fn calls_of_one_answer_run_side_by_side_unless_the_request_forbids_it() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        for (parallel, second) in [(true, "early"), (false, "late")] {
            let (gate, open) = (Gate::new(), Arc::new(AtomicBool::new(false)));
            let before = workshop.service.requests().len();
            let (closed, seen) = (gate.clone(), Arc::clone(&open));
            // Of two calls side by side either may be the first to arrive.
            workshop.service.answer_for("/weather", move |request| match request.json()["city"].as_str() {
                Some("Oslo") => says(json!("first")).behind(&closed),
                _ => says(json!(if seen.load(Ordering::SeqCst) { "late" } else { "early" })),
            });
            let both = Script::new([asks("call_1", "weather", "Oslo"), asks("call_2", "weather", "Rome")]);
            workshop.script(Wire::Chat, Delivery::Whole, &[both, Script::text(&["x"])]);
            let request = chosen(question(), "parallel_tool_calls", json!(parallel));
            let (client, request) = (workshop.client(), asking(Wire::Chat, Delivery::Whole, &request));
            let asked = beside(async move { client.post_json("/v1/responses", &request).await });
            workshop.service.wait_for_requests(before + if parallel { 2 } else { 1 }).await;
            // A call that does not wait its turn is given the time to show itself.
            tokio::time::sleep(Duration::from_millis(50)).await;
            open.store(true, Ordering::SeqCst);
            gate.open();
            let response = asked.end().await.json();
            let outputs: Vec<_> = (0..2).map(|index| response["output"][index]["output"].as_str().unwrap()).collect();
            assert_eq!(outputs, ["first", second], "{}: {response}", store.name);
        }
    }
}

#[tokio::test]
async fn a_turn_that_comes_to_a_bound_is_asked_for_its_last_words() {
    let endless = |count: usize| {
        (0..count)
            .map(|number| calls(&format!("call_{number}"), "weather", &format!("city {number}")))
            .collect::<Vec<_>>()
    };
    let cases = [
        ("tool_iterations = 2", json!({}), 2, 2, "max_tool_iterations"),
        ("tool_calls = 3", json!({}), 3, 3, "max_tool_calls"),
        ("turn_tokens = 30", json!({}), 2, 2, "max_turn_tokens"),
        ("", json!({"max_tool_calls": 1}), 1, 1, "max_tool_calls"),
    ];
    for store in stores() {
        for (limits, extra, rounds, ran, reason) in &cases {
            let workshop = Workshop::with(&store, setup().extra(&format!("[limits]\n{limits}"))).await;
            workshop.put("weather", json!({})).await;
            workshop.service.always_for("/weather", says(json!("grey")));
            let mut request = question();
            for (key, value) in extra.as_object().unwrap() {
                request[key] = value.clone();
            }
            for (turn, delivery) in DELIVERIES.into_iter().enumerate() {
                let mut scripts = endless(*rounds);
                scripts.push(Script::text(&["As far as I came."]));
                let response = workshop.turn(Wire::Chat, delivery, &scripts, &request).await;
                let place = format!("{} {limits} {extra} {delivery:?}", store.name);
                assert_eq!(response["status"], "incomplete", "{place}: {response}");
                assert_eq!(response["incomplete_details"]["reason"], *reason, "{place}");
                assert_eq!(text_of(&response), "As far as I came.", "{place}");
                assert_eq!(workshop.service.requests().len(), ran * (turn + 1), "{place}");
                // The last question leaves the model no choice.
                let last = workshop.world.sent(Wire::Chat);
                assert!(last["tools"].is_null() || last["tool_choice"] == "none", "{place}: {last}");
            }
        }
    }
}

#[tokio::test]
async fn a_model_that_calls_on_at_the_bound_is_not_heard() {
    let store = &stores()[0];
    let workshop = Workshop::with(store, setup().extra("[limits]\ntool_iterations = 1")).await;
    workshop.put("weather", json!({})).await;
    workshop.service.always_for("/weather", says(json!("grey")));
    for wire in WIRES {
        let last = Script::new([Said::text(&["Grey."]), asks("call_2", "weather", "Rome")]);
        let response =
            workshop.turn(wire, Delivery::Stream, &[calls("call_1", "weather", "Oslo"), last], &question()).await;
        assert_eq!(shown(&response), [r#"bank/weather({"city":"Oslo"}) completed"#, "message"], "{wire:?}");
        assert_eq!(response["incomplete_details"]["reason"], "max_tool_iterations");
    }
    assert_eq!(workshop.service.requests().len(), WIRES.len());
}

#[tokio::test]
async fn calls_of_the_client_wait_for_it_while_those_of_the_server_have_run() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        let own = json!({
            "type": "function", "name": "local", "description": "Mine.", "parameters": {"type": "object"},
        });
        for wire in WIRES {
            for delivery in DELIVERIES {
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                let request = json!({"input": "Both?", "tools": [named("weather"), own]});
                let both =
                    Script::new([Said::call("call_own", "local", &["{\"a\":1}"]), asks("call_1", "weather", "Oslo")]);
                // One question to the model, then it is the client's turn.
                let first = workshop.turn(wire, delivery, &[both], &request).await;
                assert_eq!(first["status"], "completed", "{place}");
                assert_eq!(shown(&first), ["function_call", r#"bank/weather({"city":"Oslo"}) completed"#], "{place}");
                let output = json!({
                    "type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "mine",
                });
                let request = json!({
                    "input": [output], "tools": [named("weather"), own], "previous_response_id": id_of(&first),
                });
                let second = workshop.turn(wire, delivery, &[Script::text(&["Both."])], &request).await;
                assert_eq!(text_of(&second), "Both.");
                let mut said = workshop.told(wire);
                said.sort();
                assert_eq!(
                    said,
                    [
                        pair("call", r#"local{"a":1}"#),
                        pair("call", r#"weather{"city":"Oslo"}"#),
                        pair("output", "grey"),
                        pair("output", "mine"),
                        pair("user", "Both?"),
                    ],
                    "{place}"
                );
            }
        }
    }
}

#[tokio::test]
async fn what_a_failure_does_is_for_the_tool_to_say() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({"on_error": "fail_turn"})).await;
        workshop.service.always_for("/weather", Reply::status(500));
        for delivery in DELIVERIES {
            workshop.script(Wire::Chat, delivery, &[calls("call_1", "weather", "Oslo")]);
            let answer = workshop.client().post_json("/v1/responses", &asking(Wire::Chat, delivery, &question())).await;
            let error = match delivery {
                Delivery::Whole => {
                    assert_eq!(answer.status, 502);
                    error_of(&answer)
                }
                Delivery::Stream => {
                    let events = checked_events(&answer);
                    let response = last_response(&events);
                    assert_eq!(response["status"], "failed");
                    assert_eq!(retrieved(&workshop.client(), id_of(&response)).await["status"], "failed");
                    // The call was shown before, and is written down.
                    assert_eq!(done(&events), [("weather".to_owned(), "failed".to_owned())]);
                    let record = workshop.turn_record(id_of(&response)).await;
                    assert_eq!(record["tool_calls"][0]["error"], "refused", "{record}");
                    response["error"].clone()
                }
            };
            assert!(error["message"].as_str().unwrap().contains("`weather`"), "{} {delivery:?}: {error}", store.name);
        }
        // By itself a failure is the model's to deal with.
        workshop.put("weather", json!({})).await;
        let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Unknown."])];
        let response = workshop.turn(Wire::Chat, Delivery::Whole, &scripts, &question()).await;
        assert_eq!(response["status"], "completed");
        assert!(workshop.told(Wire::Chat)[2].1.contains("status 500"), "{:?}", workshop.told(Wire::Chat));
    }
}

#[tokio::test]
async fn an_instruction_of_a_tool_is_told_once_its_call_went_well() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({"after_call_instruction": "Speak of umbrellas."})).await;
        workshop.service.enqueue_for("/weather", Reply::status(500));
        workshop.service.always_for("/weather", says(json!("grey")));
        for wire in WIRES {
            let scripts =
                [calls("call_1", "weather", "Oslo"), calls("call_2", "weather", "Rome"), Script::text(&["x"])];
            let before = workshop.world.upstream(wire).requests().len();
            workshop.turn(wire, Delivery::Whole, &scripts, &question()).await;
            let told: Vec<bool> = workshop
                .world
                .upstream(wire)
                .requests_from(before)
                .iter()
                .map(|request| request.json().to_string().contains("Speak of umbrellas."))
                .collect();
            // The first call of all fails.
            assert_eq!(told, [false, wire != Wire::Chat, true], "{} {wire:?}", store.name);
        }
        // It was not part of the stored items.
        let response = workshop
            .turn(Wire::Chat, Delivery::Whole, &[calls("call_1", "weather", "Oslo"), Script::text(&["x"])], &question())
            .await;
        let more = json!({"input": "more", "previous_response_id": id_of(&response)});
        workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["x"])], &more).await;
        assert!(!workshop.world.sent(Wire::Chat).to_string().contains("umbrellas"));
    }
}

#[tokio::test]
async fn a_turn_that_is_not_stored_runs_its_tools_all_the_same() {
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        let request = chosen(question(), "store", json!(false));
        for wire in WIRES {
            for delivery in DELIVERIES {
                let scripts = [calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])];
                let response = workshop.turn(wire, delivery, &scripts, &request).await;
                assert_eq!(shown(&response), [r#"bank/weather({"city":"Oslo"}) completed"#, "message"], "{wire:?}");
                assert_eq!(workshop.client().get(&format!("/v1/responses/{}", id_of(&response))).await.status, 404);
                // A client that sends everything back itself is understood as well.
                let mut items = vec![json!({"role": "user", "content": "What about Oslo?"})];
                items.extend(response["output"].as_array().unwrap().iter().cloned());
                items.push(json!({"role": "user", "content": "And now?"}));
                let more = json!({"input": items, "store": false, "tools": [named("weather")]});
                workshop.turn(wire, delivery, &[Script::text(&["Still."])], &more).await;
                let said = workshop.told(wire);
                assert_eq!(said[1..3], [pair("call", r#"weather{"city":"Oslo"}"#), pair("output", "grey")], "{wire:?}");
            }
        }
    }
}
