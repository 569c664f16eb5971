//! Answers that their limit has cut, however the upstream reports it.

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{DELIVERIES, Delivery, Script, Wire, World, asking, checked_events, last_response};

/// A server that calls every answer completed and says how long it was, as llama.cpp does.
fn completed(delivery: Delivery) -> Reply {
    Script::text(&["Once upon ", "a time"]).reply(Wire::Responses, delivery)
}

async fn ask(world: &World, delivery: Delivery, request: Value) -> Value {
    world.upstream(Wire::Responses).enqueue(completed(delivery));
    let request = asking(Wire::Responses, delivery, &request);
    let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    match delivery {
        Delivery::Whole => answer.json(),
        Delivery::Stream => last_response(&checked_events(&answer)),
    }
}

// right A8
#[tokio::test]
async fn an_answer_that_took_all_its_tokens_is_incomplete_although_the_server_calls_it_completed() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        // The scripted answer has seven tokens.
        let cut = ask(&world, delivery, json!({"input": "Hi", "max_output_tokens": 7})).await;
        assert_eq!(
            (&cut["status"], &cut["incomplete_details"]["reason"]),
            (&json!("incomplete"), &json!("max_output_tokens"))
        );
        assert_eq!(cut["output"][0]["status"], "incomplete", "{delivery:?}: {cut:#}");
        for request in [json!({"input": "Hi", "max_output_tokens": 16}), json!({"input": "Hi"})] {
            let whole = ask(&world, delivery, request).await;
            assert_eq!((&whole["status"], &whole["incomplete_details"]), (&json!("completed"), &json!(null)));
            assert_eq!(whole["output"][0]["status"], "completed");
        }
    }
}
