//! The same turn by every way in: background, WebSocket, conversation, a request that is sent twice.

use amalgam_testkit::{Gate, check};
use futures_util::{SinkExt as _, StreamExt as _};
use http::Method;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use super::*;
use crate::support::{TestStore, beside, cancel, ended, response_of, standing};

const WHOLE_TURN: [&str; 2] = [r#"bank/weather({"city":"Oslo"}) completed"#, "message"];

fn rounds() -> [Script; 2] {
    [calls("call_1", "weather", "Oslo"), Script::text(&["Grey."])]
}

async fn workshops() -> Vec<(TestStore, Workshop)> {
    let mut workshops = Vec::new();
    for store in stores() {
        let workshop = Workshop::on(&store).await;
        workshop.put("weather", json!({})).await;
        workshop.service.always_for("/weather", says(json!("grey")));
        workshops.push((store, workshop));
    }
    workshops
}

#[tokio::test]
async fn a_background_turn_runs_its_tools_without_a_caller() {
    for (_store, workshop) in workshops().await {
        let client = workshop.client();
        let mut request = question();
        request["background"] = json!(true);
        for wire in WIRES {
            let gate = Gate::new();
            workshop.service.enqueue_for("/weather", says(json!("grey")).behind(&gate));
            let before = workshop.service.requests().len();
            workshop.script(wire, Delivery::Whole, &rounds());
            let queued = client.post_json("/v1/responses", &asking(wire, Delivery::Whole, &request)).await.json();
            assert_eq!(queued["status"], "queued", "{queued}");
            workshop.service.wait_for_requests(before + 1).await;
            assert_eq!(retrieved(&client, id_of(&queued)).await["status"], "in_progress");
            gate.open();
            let completed = standing(&client, id_of(&queued), "completed").await;
            assert_eq!(shown(&completed), WHOLE_TURN, "{wire:?}");
            assert_eq!(check::response(&completed), Vec::<String>::new());
            assert_eq!(completed["usage"]["total_tokens"], 36);
        }

        // Followed while it runs, and cancelled in the middle of a call: the connection to the service is closed.
        workshop.service.enqueue_for("/weather", Reply::hang());
        let before = workshop.service.requests().len();
        workshop.script(Wire::Chat, Delivery::Stream, &rounds()[..1]);
        let mut stream = client.post_stream("/v1/responses", &asking(Wire::Chat, Delivery::Stream, &request)).await;
        let created = stream.next_of_type("response.created").await;
        stream.next_of_type("response.mcp_call.in_progress").await;
        assert_eq!(cancel(&client, id_of(&created["response"])).await.json()["status"], "cancelled");
        workshop.service.wait_for_disconnect(before).await;
        assert_eq!(ended(&client, id_of(&created["response"])).await["status"], "cancelled");
        assert_eq!(workshop.world.upstream(Wire::Chat).replies_left(), 0);
    }
}

#[tokio::test]
async fn a_caller_who_leaves_ends_the_call_of_a_tool() {
    for (_store, workshop) in workshops().await {
        workshop.service.enqueue_for("/weather", Reply::hang());
        workshop.script(Wire::Chat, Delivery::Whole, &rounds()[..1]);
        let (client, request) = (workshop.client(), asking(Wire::Chat, Delivery::Whole, &question()));
        let asked = beside(async move { client.post_json("/v1/responses", &request).await });
        workshop.service.wait_for_requests(1).await;
        asked.leave().await;
        workshop.service.wait_for_disconnect(0).await;
        assert_eq!(workshop.world.upstream(Wire::Chat).requests().len(), 1, "no model is asked for a caller that left");
    }
}

#[tokio::test]
async fn a_websocket_carries_the_same_events() {
    for (_store, workshop) in workshops().await {
        let url = workshop.world.amalgam.url();
        for stored in [true, false] {
            let mut request =
                format!("{}/v1/responses", url.replace("http://", "ws://")).into_client_request().unwrap();
            request.headers_mut().insert("authorization", "Bearer am_workshop".parse().unwrap());
            let stream = workshop.client().connect().await;
            let (mut socket, _) = client_async(request, stream).await.unwrap();
            let mut before: Option<String> = None;
            for (turn, wire) in WIRES.into_iter().enumerate() {
                workshop.script(wire, Delivery::Stream, &rounds());
                let mut message = asking(wire, Delivery::Whole, &question());
                message["type"] = json!("response.create");
                message["store"] = json!(stored);
                if let Some(before) = &before {
                    message["previous_response_id"] = json!(before);
                }
                socket.send(Message::text(message.to_string())).await.unwrap();
                let mut events: Vec<Value> = Vec::new();
                while types(&events).last() != Some(&"response.completed") {
                    match socket.next().await.unwrap().unwrap() {
                        Message::Text(text) => events.push(serde_json::from_str(&text).unwrap()),
                        other => assert!(matches!(other, Message::Ping(_)), "{other:?}"),
                    }
                    assert_ne!(types(&events).last(), Some(&"error"), "{events:?}");
                }
                assert_eq!(check::stream(&events), Vec::<String>::new());
                let response = last_response(&events);
                assert_eq!(shown(&response), WHOLE_TURN, "{wire:?}");
                // The model receives the whole history, calls with their outputs, also what only the connection has.
                let told = workshop.told(wire);
                let count = |who: &str| told.iter().filter(|(one, _)| one == who).count();
                assert_eq!((count("user"), count("call"), count("output")), (turn + 1, turn + 1, turn + 1), "{told:?}");
                before = Some(id_of(&response).to_owned());
            }
        }
    }
}

#[tokio::test]
async fn a_conversation_keeps_calls_with_their_outputs() {
    for (_store, workshop) in workshops().await {
        let client = workshop.client();
        let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
        let id = conversation["id"].as_str().unwrap();
        let mut request = question();
        request["conversation"] = json!(id);
        workshop.turn(Wire::Chat, Delivery::Stream, &rounds(), &request).await;
        let items = client.get(&format!("/v1/conversations/{id}/items?order=asc")).await.json();
        let kinds: Vec<_> =
            items["data"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message", "mcp_call", "message"], "{items}");
        request["input"] = json!("And now?");
        workshop.turn(Wire::Anthropic, Delivery::Whole, &[Script::text(&["Still."])], &request).await;
        assert_eq!(
            workshop.told(Wire::Anthropic),
            [
                pair("user", "What about Oslo?"),
                pair("call", r#"weather{"city":"Oslo"}"#),
                pair("output", "grey"),
                pair("assistant", "Grey."),
                pair("user", "And now?"),
            ]
        );
    }
}

#[tokio::test]
async fn a_request_that_is_sent_twice_runs_its_tool_once() {
    // P4
    for (_store, workshop) in workshops().await {
        for (index, delivery) in DELIVERIES.into_iter().enumerate() {
            let gate = Gate::new();
            workshop.service.enqueue_for("/weather", says(json!("grey")).behind(&gate));
            workshop.script(Wire::Chat, delivery, &rounds());
            let body = asking(Wire::Chat, delivery, &question()).to_string();
            let key = format!("once-{index}");
            let post = || {
                let (client, body, key) = (workshop.client(), body.clone(), key.clone());
                beside(async move {
                    let headers = [("content-type", "application/json"), ("idempotency-key", key.as_str())];
                    client.request(Method::POST, "/v1/responses", &headers, body.into()).await
                })
            };
            let first = post();
            workshop.service.wait_for_requests(index + 1).await;
            // In the middle of the call, and when all is over.
            let second = post();
            gate.open();
            let first = first.end().await;
            assert_eq!(shown(&response_of(delivery, &first)), WHOLE_TURN);
            let (second, third) = (second.end().await, post().end().await);
            assert_eq!(third.text(), first.text());
            assert!(second.text() == first.text() || second.status == 409, "{}", second.text());
            assert_eq!(workshop.service.requests().len(), index + 1);
        }
    }
}
