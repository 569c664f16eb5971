//! What happens around the calls: keepalives, deadlines, tokens that are left, losses, and the other questions that a
//! client can ask about such a turn.

use amalgam_testkit::Gate;

use super::*;
use crate::support::{error_of, setup};

async fn workshop(limits: &str, extra: Value) -> Workshop {
    let workshop = Workshop::with(&stores()[0], setup().extra(&format!("[limits]\n{limits}"))).await;
    workshop.put("weather", extra).await;
    workshop.service.always_for("/weather", says(json!("grey")));
    workshop
}

fn rounds() -> [Script; 2] {
    [calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])]
}

#[tokio::test]
async fn a_stream_shows_signs_of_life_while_a_tool_takes_its_time() {
    let workshop = workshop("keepalive = \"100ms\"", json!({})).await;
    let gate = Gate::new();
    workshop.service.enqueue_for("/weather", says(json!("grey")).behind(&gate));
    workshop.script(Wire::Chat, Delivery::Stream, &rounds());
    let request = asking(Wire::Chat, Delivery::Stream, &question());
    let mut stream = workshop.client().post_stream("/v1/responses", &request).await;
    stream.next_of_type("response.mcp_call.in_progress").await;
    for _ in 0..3 {
        assert_eq!(stream.next_event().await.unwrap().event.as_deref(), Some("keepalive"));
    }
    gate.open();
    stream.next_of_type("response.mcp_call.completed").await;
    stream.next_of_type("response.completed").await;
}

#[tokio::test]
async fn a_turn_that_runs_out_of_time_in_a_call_ends_the_call() {
    let workshop = workshop("turn_deadline = \"1s\"", json!({})).await;
    for (index, delivery) in DELIVERIES.into_iter().enumerate() {
        workshop.service.enqueue_for("/weather", Reply::hang());
        workshop.script(Wire::Chat, delivery, &rounds()[..1]);
        let answer = workshop.client().post_json("/v1/responses", &asking(Wire::Chat, delivery, &question())).await;
        let code = match delivery {
            Delivery::Whole => {
                assert_eq!(answer.status, 504, "{}", answer.text());
                error_of(&answer)["code"].clone()
            }
            Delivery::Stream => last_response(&checked_events(&answer))["error"]["code"].clone(),
        };
        assert_eq!(code, "request_timeout");
        workshop.service.wait_for_disconnect(index).await;
    }
}

#[tokio::test]
async fn rounds_share_the_tokens_that_the_caller_allows() {
    let workshop = workshop("", json!({})).await;
    for (wire, field) in
        [(Wire::Chat, "max_completion_tokens"), (Wire::Responses, "max_output_tokens"), (Wire::Anthropic, "max_tokens")]
    {
        let mut request = question();
        request["max_output_tokens"] = json!(20);
        let response = workshop.turn(wire, Delivery::Whole, &rounds(), &request).await;
        assert_eq!(
            (&response["status"], &response["max_output_tokens"]),
            (&json!("completed"), &json!(20)),
            "{wire:?}"
        );
        let sent: Vec<Value> = workshop.world.upstream(wire).requests().iter().map(|request| request.json()).collect();
        let allowed: Vec<&Value> = sent
            .iter()
            .map(|body| body.get(field).or_else(|| body.get("max_tokens")).unwrap_or(&Value::Null))
            .collect();
        assert_eq!(allowed, [20, 13], "{wire:?}");

        // The model makes seven calls in a round, and no request is empty.
        request["max_output_tokens"] = json!(16);
        let scripts = [0, 1, 2].map(|number| calls("call_1", "weather", &format!("city {number}")));
        let response = workshop.turn(wire, Delivery::Whole, &scripts, &request).await;
        assert_eq!(response["incomplete_details"]["reason"], "max_output_tokens", "{wire:?}: {response}");
    }
}

#[tokio::test]
async fn tools_that_the_server_runs_are_no_loss() {
    let workshop = workshop("", json!({})).await;
    crate::support::serve_mcp(&workshop.service);
    let mcp = json!({
        "type": "mcp", "server_label": "city", "server_url": format!("{}/mcp", workshop.service.url()),
        "server_description": "Knows cities.", "require_approval": "never",
    });
    let request = json!({"input": "Hi", "tools": [named("weather"), mcp], "max_tool_calls": 5});
    for wire in WIRES {
        workshop.script(wire, Delivery::Whole, &rounds());
        let client = workshop.client().with_header("amalgam-strict", "true");
        let answer = client.post_json("/v1/responses", &asking(wire, Delivery::Whole, &request)).await;
        assert_eq!(answer.status, 200, "{wire:?}: {}", answer.text());
        assert_eq!(answer.header("amalgam-losses"), None, "{wire:?}");
        assert_eq!(
            shown(&answer.json()),
            ["mcp_list_tools", r#"bank/weather({"city":"Oslo"}) completed"#, "message"],
            "{wire:?}"
        );
    }
}

#[tokio::test]
async fn tokens_are_counted_and_histories_are_compacted_with_calls_in_them() {
    let workshop = workshop("", json!({})).await;
    let client = workshop.client();
    let first = workshop.turn(Wire::Chat, Delivery::Whole, &rounds(), &question()).await;
    let plain = json!({"model": Wire::Chat.model(), "input": "Hi"});
    let count = async |request: &Value| {
        let answer = client.post_json("/v1/responses/input_tokens", request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["input_tokens"].as_u64().unwrap()
    };
    let alone = count(&plain).await;
    let continued = json!({"model": Wire::Chat.model(), "input": "Hi", "previous_response_id": id_of(&first)});
    assert!(count(&continued).await > alone + 5, "what the tool said counts");

    workshop.script(Wire::Chat, Delivery::Whole, &[Script::text(&["A summary."])]);
    let request = json!({"model": Wire::Chat.model(), "previous_response_id": id_of(&first), "input": "And now?"});
    let answer = client.post_json("/v1/responses/compact", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let sent = workshop.world.sent(Wire::Chat).to_string();
    assert!(sent.contains("weather") && sent.contains("grey"), "the call is part of what is summed up: {sent}");
    let compacted = answer.json()["output"].clone();
    let more = json!({"input": compacted, "tools": [named("weather")]});
    let response = workshop.turn(Wire::Chat, Delivery::Whole, &rounds(), &more).await;
    assert_eq!(response["status"], "completed");
}
