//! The list of models for clients of Anthropic, and names with `*`.

use amalgam_testkit::Setup;
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{error_of, post, request};
use crate::support::{Delivery, Script, Wire, World};

const PATTERNS: &str = r#"
[models."claude-*"]
upstream = "chat"
model = "m-chat"
max_output_tokens = 4096

[models."claude-*haiku*"]
upstream = "responses"
model = "small"
context_window = 8000

[models."own-*"]
upstream = "anthropic"
"#;

async fn world() -> World {
    World::with(Setup::new().extra(PATTERNS), &[]).await
}

async fn models(world: &World, path: &str) -> amalgam_testkit::HttpAnswer {
    let version = [("anthropic-version", "2023-06-01")];
    world.amalgam.client().request(Method::GET, path, &version, Bytes::new()).await
}

#[tokio::test]
async fn clients_of_anthropic_get_the_list_in_their_format() {
    let world = world().await;
    let list = models(&world, "/v1/models?limit=2").await.json();
    let ids: Vec<&str> = list["data"].as_array().unwrap().iter().filter_map(|model| model["id"].as_str()).collect();
    assert_eq!(ids.len(), 2, "{list}");
    assert_eq!((&list["first_id"], &list["last_id"]), (&json!(ids[0]), &json!(ids[1])));
    assert_eq!(list["has_more"], true);
    let next = models(&world, &format!("/v1/models?after_id={}", ids[1])).await.json();
    assert_eq!(next["has_more"], false, "{next}");
    let all: Vec<&Value> = list["data"].as_array().unwrap().iter().chain(next["data"].as_array().unwrap()).collect();
    assert!(all.iter().all(|model| model["type"] == "model" && model["created_at"].is_string()), "{all:?}");
    assert!(all.iter().all(|model| !model["id"].as_str().unwrap().contains('*')), "patterns are no models: {all:?}");
    for wire in crate::support::WIRES {
        assert!(all.iter().any(|model| model["id"] == wire.model()), "{wire:?}");
    }
    let one = models(&world, "/v1/models/m-chat").await.json();
    assert_eq!((&one["type"], &one["id"]), (&json!("model"), &json!("m-chat")));
    assert_eq!(error_of(&models(&world, "/v1/models/absent").await).1, "not_found_error");
    let other = world.amalgam.client().get("/v1/models").await.json();
    assert_eq!(other["object"], "list", "other clients get theirs");
}

#[tokio::test]
async fn a_name_with_a_star_stands_for_every_name_that_fits() {
    let world = world().await;
    let client = world.amalgam.client();
    for (name, wire, model, limit) in [
        ("claude-opus-4-7", Wire::Chat, "m-chat", 4096),
        ("claude-haiku-4-5-20251001", Wire::Responses, "small", 4000),
        ("own-7", Wire::Anthropic, "own-7", 128_000),
    ] {
        world.upstream(wire).enqueue(Script::text(&["Yes"]).reply(wire, Delivery::Whole));
        let mut body = request(wire, Delivery::Whole, &json!({"max_tokens": 128_000}));
        body["model"] = json!(name);
        let answer = post(&client, &[], &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.json()["model"], name, "the answer has the name of the request");
        let sent = world.sent(wire);
        assert_eq!(sent["model"], model);
        let most = sent.get("max_tokens").or(sent.get("max_output_tokens")).cloned();
        assert_eq!(most, Some(json!(limit)), "a model with a smaller limit gets its own: {sent}");
    }
    let mut body = request(Wire::Chat, Delivery::Whole, &json!({}));
    body["model"] = json!("gemini-3");
    assert_eq!(error_of(&post(&client, &[], &body).await).0, 404);
}
