//! Calls that the server runs keep the model's own ids towards the model: in the rounds of a turn, and in later turns.

use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, Script, WIRES, Wire, Workshop, asks, calls, id_of, named, retrieved, says, setup, shown,
    stores,
};

/// The ids of calls and outputs that an upstream was sent, in their order.
fn ids(wire: Wire, body: &Value) -> Vec<String> {
    let mut ids = Vec::new();
    let mut push = |kind: &str, id: &Value| ids.push(format!("{kind} {}", id.as_str().unwrap_or_default()));
    for step in steps(wire, body) {
        match wire {
            Wire::Responses if step["type"] == "function_call" => push("call", &step["call_id"]),
            Wire::Responses if step["type"] == "function_call_output" => push("output", &step["call_id"]),
            Wire::Responses => {}
            Wire::Chat => {
                step["tool_calls"].as_array().into_iter().flatten().for_each(|call| push("call", &call["id"]));
                if step["role"] == "tool" {
                    push("output", &step["tool_call_id"]);
                }
            }
            Wire::Anthropic => {
                for block in step["content"].as_array().into_iter().flatten() {
                    match block["type"].as_str() {
                        Some("tool_use") => push("call", &block["id"]),
                        Some("tool_result") => push("output", &block["tool_use_id"]),
                        _ => {}
                    }
                }
            }
        }
    }
    ids
}

/// What an upstream was sent, without the marks that only the end of a request has, and without the ids that items get when
/// they are stored: no model reads either.
fn steps(wire: Wire, body: &Value) -> Vec<Value> {
    let list = if wire == Wire::Responses { &body["input"] } else { &body["messages"] };
    let mut steps = list.as_array().expect("a request has messages").clone();
    for step in steps.iter_mut().filter_map(Value::as_object_mut) {
        step.remove("id");
        for block in step.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
            block.as_object_mut().map(|block| block.remove("cache_control"));
        }
    }
    steps
}

// right C8
#[tokio::test]
async fn the_model_meets_its_own_call_ids_in_every_round_and_every_later_turn() {
    for store in stores() {
        let workshop = Workshop::with(&store, setup()).await;
        workshop.put("look", json!({})).await;
        workshop.service.always_for("/look", says(json!("seen")));
        for wire in WIRES {
            for delivery in DELIVERIES {
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                let rounds = [
                    Script::new([asks("call_a", "look", "Oslo"), asks("call_b", "look", "Rome")]),
                    calls("call_c", "look", "Bonn"),
                    Script::text(&["Done."]),
                ];
                let request = json!({"input": "Look.", "tools": [named("look")]});
                let first = workshop.turn(wire, delivery, &rounds, &request).await;
                assert_eq!(shown(&first).len(), 4, "{place}: {first}");
                assert!(!first.to_string().contains("kept_"), "{place}: {first}");
                let within = workshop.world.sent(wire);
                let expected =
                    ["call call_a", "call call_b", "output call_a", "output call_b", "call call_c", "output call_c"];
                assert_eq!(ids(wire, &within), expected, "{place}");

                let next = json!({"input": "Sure?", "previous_response_id": first["id"], "tools": [named("look")]});
                workshop.turn(wire, delivery, &[Script::text(&["Sure."])], &next).await;
                let later = workshop.world.sent(wire);
                assert_eq!(ids(wire, &later), expected, "{place}");
                let (before, after) = (steps(wire, &within), steps(wire, &later));
                assert_eq!(
                    after.get(..before.len()),
                    Some(&before[..]),
                    "{place}: the later request extends the earlier"
                );
            }
        }
    }
}

// right C8
#[tokio::test]
async fn an_id_that_the_model_uses_again_is_told_apart_the_same_way_each_time() {
    for store in stores() {
        let workshop = Workshop::with(&store, setup()).await;
        workshop.put("look", json!({})).await;
        workshop.service.always_for("/look", says(json!("seen")));
        for wire in WIRES {
            let place = format!("{} {wire:?}", store.name);
            let rounds = [calls("call_0", "look", "Oslo"), calls("call_0", "look", "Rome"), Script::text(&["Done."])];
            let request = json!({"input": "Look.", "tools": [named("look")]});
            let first = workshop.turn(wire, Delivery::Whole, &rounds, &request).await;
            let within = ids(wire, &workshop.world.sent(wire));
            assert_eq!(within[..2], ["call call_0", "output call_0"], "{place}");
            let [call, output] = &within[2..] else { panic!("{place}: two calls and their outputs: {within:?}") };
            assert_ne!(call, "call call_0", "{place}");
            assert_eq!(call.strip_prefix("call "), output.strip_prefix("output "), "{place}");

            let rounds = [calls("call_0", "look", "Bonn"), Script::text(&["Done."])];
            let next = json!({"input": "More.", "previous_response_id": first["id"], "tools": [named("look")]});
            workshop.turn(wire, Delivery::Whole, &rounds, &next).await;
            let later = ids(wire, &workshop.world.sent(wire));
            assert_eq!(later[..4], within, "{place}");
            assert_eq!(later.len(), 6, "{place}");
            assert!(!later[..4].contains(&later[4]), "{place}: {later:?}");
        }
    }
}

// right C8
#[tokio::test]
async fn what_is_kept_for_the_model_is_in_no_answer() {
    for store in stores() {
        let workshop = Workshop::with(&store, setup()).await;
        workshop.put("look", json!({})).await;
        workshop.put("refund", json!({"requires_approval": true})).await;
        workshop.service.always_for("/look", says(json!("seen")));
        let client = workshop.client();
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let rounds = [calls("call_a", "look", "Oslo"), calls("call_b", "refund", "Oslo")];
        let request = json!({"input": "Look.", "conversation": conversation["id"], "background": true,
                             "tools": [named("look"), named("refund")]});
        workshop.script(Wire::Chat, Delivery::Stream, &rounds);
        let request = crate::support::asking(Wire::Chat, Delivery::Stream, &request);
        let streamed = client.post_json("/v1/responses", &request).await;
        assert!(!streamed.text().contains("kept_"), "{}", streamed.text());
        let conversation = conversation["id"].as_str().expect("a conversation has an id");
        let response = crate::support::last_response(&crate::support::checked_events(&streamed));
        let id = id_of(&response);
        assert_eq!(retrieved(&client, id).await, response, "{}", store.name);
        let denied = json!({"type": "mcp_approval_response", "approval_request_id": response["output"][1]["id"], "approve": false});
        let next = json!({"input": [denied], "previous_response_id": id, "tools": [named("look"), named("refund")]});
        let second = workshop.turn(Wire::Chat, Delivery::Whole, &[Script::text(&["Well."])], &next).await;
        let sent = ids(Wire::Chat, &workshop.world.sent(Wire::Chat));
        assert_eq!(sent, ["call call_a", "output call_a", "call call_b", "output call_b"], "{}", store.name);
        let items = client.get(&format!("/v1/conversations/{conversation}/items")).await;
        assert!(items.text().contains("mcp_call"), "{}", items.text());
        for path in [
            format!("/v1/responses/{id}?stream=true"),
            format!("/v1/responses/{}/input_items", id_of(&second)),
            format!("/v1/conversations/{conversation}/items"),
            format!("/v1/conversations/{conversation}/items/{}", response["output"][0]["id"].as_str().unwrap()),
            format!("/admin/turns/{id}"),
        ] {
            let answer = client.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            assert!(!answer.text().contains("kept_"), "{} {path}: {}", store.name, answer.text());
        }
    }
}
