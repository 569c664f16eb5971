//! What administrators see of model calls: all of it, for every outcome of the turn.

use amalgam_testkit::{Client, Gate, Reply};
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, SOON, Script, Wire, World, asking, cancel, ended, eventually, id_of, last_response, setup,
    stores,
};

/// The calls of a turn, as many as there are.
async fn calls(client: &Client, id: &str) -> Vec<Value> {
    let turn = client.get(&format!("/admin/turns/{id}")).await;
    assert_eq!(turn.status, 200, "{}", turn.text());
    turn.json()["calls"].as_array().expect("a turn has calls").clone()
}

#[tokio::test]
async fn a_call_is_told_with_its_tries_times_tokens_and_losses() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[("retries", "2")]).await;
        let client = world.amalgam.client();
        for wire in [Wire::Chat, Wire::Anthropic] {
            for delivery in DELIVERIES {
                world.upstream(wire).enqueue(Reply::status(503).header("retry-after", "0"));
                let reply = Script::text(&["All ", "is well."]).reply(wire, delivery);
                world.upstream(wire).enqueue(reply);
                let request = json!({"input": "Hi", "tools": [{"type": "web_search"}]});
                let answer = client.post_json("/v1/responses", &asking(wire, delivery, &request)).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let response = match delivery {
                    Delivery::Whole => answer.json(),
                    Delivery::Stream => last_response(&answer.json_events()),
                };
                let place = format!("{} {wire:?} {delivery:?}", store.name);
                let told = calls(&client, id_of(&response)).await;
                let [call] = told.as_slice() else { panic!("{place}: {told:?}") };
                assert_eq!(call["retries"], json!(1), "{place}: {call}");
                assert_eq!(call["usage"], response["usage"], "{place}");
                assert!(call["usage"]["input_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{place}: {call}");
                if wire == Wire::Chat {
                    assert_eq!(call["usage"]["output_tokens_details"]["reasoning_tokens"], json!(2), "{place}");
                }
                let (first, last) = (call["first_token_ms"].as_u64(), call["duration_ms"].as_u64());
                assert!(first.is_some() && first <= last, "{place}: {call}");
                let losses = answer.header("amalgam-losses").expect("no model here searches the web");
                let [loss] = call["losses"].as_array().expect("a list").as_slice() else { panic!("{place}: {call}") };
                assert!(loss.as_str().is_some_and(|loss| losses.contains(loss)), "{place}: {loss} in {losses}");
                let sent = world.sent(wire).to_string();
                let kept: Value = serde_json::from_str(call["request"].as_str().expect("a text")).expect("a body");
                assert_eq!((kept.to_string(), &call["request_incomplete"]), (sent, &json!(false)), "{place}");
                assert!(call["response"].as_str().is_some_and(|body| body.contains("is well.")), "{place}: {call}");
                assert_eq!((&call["response_cut"], &call["error"]), (&json!(false), &Value::Null), "{place}");
            }
        }
    }
}

#[tokio::test]
async fn where_no_calls_are_kept_none_are_told() {
    for store in stores() {
        let setup = setup().extra("[retention]\nkeep_transcripts = \"none\"");
        let world = World::with(store.setup(setup), &[]).await;
        for delivery in DELIVERIES {
            let response = world.response(Wire::Chat, delivery, &Script::text(&["a"]), &json!({"input": "Hi"})).await;
            assert_eq!(calls(&world.amalgam.client(), id_of(&response)).await, Vec::<Value>::new(), "{}", store.name);
        }
    }
}

#[tokio::test]
async fn the_calls_of_a_chain_are_told_whole_also_when_its_beginning_is_deleted_meanwhile() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let long = "Once upon a time. ".repeat(200);
        let first = world.whole(Wire::Chat, &Script::text(&["a"]), &json!({"input": long})).await;
        let gate = Gate::new();
        let reply = Script::text(&["b", "c"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
        world.upstream(Wire::Chat).enqueue(reply);
        let next = json!({"input": "And then?", "previous_response_id": first["id"]});
        let mut stream = client.post_stream("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &next)).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        let path = format!("/v1/responses/{}", id_of(&first));
        let deleted = client.request(http::Method::DELETE, &path, &[], bytes::Bytes::new()).await;
        assert_eq!(deleted.status, 200, "{}", deleted.text());
        gate.open();
        stream.rest().await;
        let told = calls(&client, id_of(&created)).await;
        let [call] = told.as_slice() else { panic!("{}: {told:?}", store.name) };
        let kept: Value = serde_json::from_str(call["request"].as_str().expect("a text")).expect("a whole body");
        assert_eq!(kept, world.sent(Wire::Chat), "{}", store.name);
        assert_eq!(call["request_incomplete"], json!(false), "{}", store.name);
    }
}

#[tokio::test]
async fn the_call_of_a_turn_whose_caller_left_is_kept() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        let gate = Gate::new();
        let reply = Script::text(&["All ", "is well."]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
        world.upstream(Wire::Chat).enqueue(reply);
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        stream.next_of_type("response.output_text.delta").await;
        drop(stream);
        assert_eq!(ended(&client, id_of(&created)).await["status"], "cancelled", "{}", store.name);
        assert_abandoned(&calls(&client, id_of(&created)).await, Some("All "));
    }
}

#[tokio::test]
async fn the_call_of_a_turn_that_was_cancelled_is_kept() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        let client = world.amalgam.client();
        for delivery in DELIVERIES {
            for accepted in [true, false] {
                let asked = world.upstream(Wire::Chat).requests().len();
                let gate = Gate::new();
                let reply = Script::text(&["All ", "is well."]).reply(Wire::Chat, delivery);
                let reply = if accepted { reply.hold_after(0, &gate) } else { reply.behind(&gate) };
                world.upstream(Wire::Chat).enqueue(reply);
                let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "background": true}));
                let queued = match delivery {
                    Delivery::Whole => client.post_json("/v1/responses", &request).await.json(),
                    Delivery::Stream => {
                        let mut stream = client.post_stream("/v1/responses", &request).await;
                        stream.next_of_type("response.created").await["response"].clone()
                    }
                };
                world.upstream(Wire::Chat).wait_for_requests(asked + 1).await;
                assert_eq!(cancel(&client, id_of(&queued)).await.status, 200, "{}", store.name);
                let told = eventually("the call of a cancelled turn", SOON, async || {
                    Some(calls(&client, id_of(&queued)).await).filter(|calls| !calls.is_empty())
                })
                .await;
                assert_abandoned(&told, None);
                assert_eq!(ended(&client, id_of(&queued)).await["status"], "cancelled", "{}", store.name);
            }
        }
    }
}

/// Expects one call whose end no caller waited for, with what had arrived by then.
fn assert_abandoned(calls: &[Value], said: Option<&str>) {
    assert_eq!(calls.len(), 1, "{calls:?}");
    let call = &calls[0];
    assert_eq!(call["error"], "The response was cancelled.", "{call}");
    let request: Value = serde_json::from_str(call["request"].as_str().expect("a text")).expect("a body");
    assert_eq!(request["messages"][0]["content"], "Hi", "{call}");
    if let Some(said) = said {
        assert!(call["response"].as_str().is_some_and(|body| body.contains(said)), "{call}");
        assert!(call["first_token_ms"].is_u64(), "{call}");
    }
}
