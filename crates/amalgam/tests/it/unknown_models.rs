//! Models that an upstream turns out not to have.

use amalgam_testkit::Reply;
use serde_json::{Value, json};

use crate::support::{DELIVERIES, WIRES, Wire, World, asking, assert_refused, error_of};

fn not_found(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic => {
            json!({"type": "error", "error": {"type": "not_found_error", "message": "model: m-anthropic"}})
        }
        Wire::Chat | Wire::Responses => json!({"error": {
            "message": "The model `m` does not exist.", "type": "invalid_request_error", "code": "model_not_found", "param": null,
        }}),
    }
}

// right C7
#[tokio::test]
async fn a_model_that_the_upstream_does_not_know_is_not_found_here_either() {
    let world = World::start().await;
    for wire in WIRES {
        for delivery in DELIVERIES {
            world.upstream(wire).enqueue(Reply::json(not_found(wire)).with_status(404));
            let request = asking(wire, delivery, &json!({"input": "Hi"}));
            let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
            assert_refused(&answer, 404, Some("model"), "model_not_found");
        }
        // An address that leads nowhere is no matter of models.
        world.upstream(wire).enqueue(Reply::html(404, "Not Found"));
        let request = asking(wire, DELIVERIES[0], &json!({"input": "Hi"}));
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_ne!(error_of(&answer)["code"], "model_not_found");
    }
}
