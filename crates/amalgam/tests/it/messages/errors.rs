//! Errors in the format of this wire, before, during and after a turn.

use amalgam_testkit::{Amalgam, Client, Reply, Setup, Upstream};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{error_of, post, request};
use crate::support::{BINARY, DELIVERIES, Delivery, WIRES, Wire, World};

#[tokio::test]
async fn errors_before_routing_have_the_format_of_the_wire() {
    let amalgam = Amalgam::start(BINARY, Setup::new().tenant_key("am_right-key-0123456789")).await;
    let anonymous = Client::new(amalgam.url());
    let body = request(Wire::Chat, Delivery::Whole, &json!({}));
    let told = |answer| {
        let (status, kind, _) = error_of(&answer);
        (status, kind)
    };
    assert_eq!(told(post(&anonymous, &[], &body).await), (401, "authentication_error".to_owned()));
    let wrong = [("x-api-key", "am_wrong-key-0123456789")];
    assert_eq!(told(post(&anonymous, &wrong, &body).await), (401, "authentication_error".to_owned()));
    let right = [("x-api-key", "am_right-key-0123456789")];
    assert_eq!(
        told(post(&anonymous, &right, &body).await),
        (404, "not_found_error".to_owned()),
        "the model is unknown"
    );
    let client = amalgam.client();
    assert_eq!(told(client.get("/v1/messages").await), (405, "invalid_request_error".to_owned()));
    assert_eq!(told(client.get("/v1/messages/msg_1").await), (404, "not_found_error".to_owned()));
    let form = client.post_raw("/v1/messages", "text/plain", "{}").await;
    assert_eq!(told(form), (415, "invalid_request_error".to_owned()));
    let version = [("anthropic-version", "2023-06-01")];
    let models = anonymous.request(Method::GET, "/v1/models", &version, Bytes::new()).await;
    assert_eq!(told(models), (401, "authentication_error".to_owned()));
}

#[tokio::test]
async fn a_wrong_request_is_refused_with_the_place_of_the_error() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for (fields, message) in [
        (json!({"max_tokens": null}), "max_tokens: Field required"),
        (json!({"messages": []}), "messages: at least one message is required"),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "base64"}}]}]}),
            "messages.0.content.0.source.media_type: Field required",
        ),
        (
            json!({"tools": [{"name": "f", "input_schema": []}]}),
            "tools.0.input_schema: expected an object, but got an array instead",
        ),
    ] {
        let refused = post(&client, &[], &request(Wire::Chat, Delivery::Whole, &fields)).await;
        let expected = (400, "invalid_request_error".to_owned(), message.to_owned());
        assert_eq!(error_of(&refused), expected);
    }
    let broken = client.post_raw("/v1/messages", "application/json", "{\"model\": ").await;
    let (status, _, message) = error_of(&broken);
    assert!(status == 400 && message.starts_with("The request body is not valid JSON"), "{message}");
    let list = client.post_raw("/v1/messages", "application/json", "[]").await;
    assert_eq!(error_of(&list).2, "body: expected an object, but got an array instead");
    let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
    assert_eq!(error_of(&client.post_raw("/v1/messages", "application/json", deep).await).0, 400);
    let beta = post(&client, &[("anthropic-beta", "a b")], &request(Wire::Chat, Delivery::Whole, &json!({}))).await;
    assert_eq!(error_of(&beta).0, 400);
    let count = client.post_json("/v1/messages/count_tokens", &json!({"model": "m-chat"})).await;
    assert_eq!(error_of(&count).2, "messages: Field required");
    assert!(WIRES.iter().all(|wire| world.upstream(*wire).requests().is_empty()), "no upstream was asked");
}

#[tokio::test]
async fn a_thread_is_refused_with_the_code_after_which_clients_send_the_whole_conversation() {
    let world = World::start().await;
    let fields = json!({"thread": {"type": "create"}});
    let refused = post(&world.amalgam.client(), &[], &request(Wire::Chat, Delivery::Whole, &fields)).await;
    assert_eq!(error_of(&refused).0, 400);
    let details = json!({"error_code": "thread_unsupported_request", "unsupported": ["thread"]});
    assert_eq!(refused.json()["error"]["details"], details);
}

#[tokio::test]
async fn a_refusal_of_an_upstream_keeps_its_meaning() {
    let error = |message: &str| json!({"error": {"message": message, "type": "invalid_request_error", "code": null}});
    for (status, reply, expected) in [
        (400_u16, error("bad"), (400, "invalid_request_error")),
        (429, error("slow down"), (429, "rate_limit_error")),
        (401, error("who are you"), (502, "api_error")),
        (404, error("no such model"), (404, "not_found_error")),
        (500, error("broken"), (502, "api_error")),
    ] {
        for delivery in DELIVERIES {
            let world = World::with(Setup::new(), &[("retries", "0")]).await;
            world.upstream(Wire::Chat).enqueue(Reply::json(reply.clone()).with_status(status));
            let refused = post(&world.amalgam.client(), &[], &request(Wire::Chat, delivery, &json!({}))).await;
            let (code, kind, _) = error_of(&refused);
            assert_eq!((code, kind.as_str()), expected, "{status} {delivery:?}: {}", refused.text());
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_ends_with_an_error_event() {
    let upstream = Upstream::start();
    let setup = Setup::new().upstream("u", "chat", &upstream.base_url()).option("models", "[\"m\"]");
    let amalgam = Amalgam::start(BINARY, setup).await;
    let chunk = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "Half"}, "finish_reason": null}]});
    upstream.enqueue(Reply::sse_data([chunk]).cut_after(1));
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "Hi"}]});
    let answer = post(&amalgam.client(), &[], &body).await;
    let events = super::events(&answer);
    let types: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(types.last(), Some(&"error"), "{types:?}");
    assert_eq!(types.iter().filter(|kind| **kind == "error").count(), 1, "{types:?}");
    assert_eq!(events.last().map(|event: &Value| &event["error"]["type"]), Some(&json!("api_error")));
    assert!(!types.contains(&"message_stop"), "{types:?}");
}
