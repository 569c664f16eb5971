//! What is refused rather than guessed, what is skipped and reported, and how often the log repeats a loss.

use amalgam_testkit::Setup;
use serde_json::json;

use crate::support::{Delivery, FINAL, Script, WIRES, Wire, World, asking, assert_refused, eventually};

#[tokio::test]
async fn an_unknown_role_is_refused_with_its_place() {
    // right A5
    let world = World::start().await;
    for role in [json!("tool"), json!("critic"), json!("User"), json!("")] {
        let request = json!({"model": "m-chat", "input": [null, {"role": "user", "content": "a"}, {"role": role, "content": "b"}]});
        assert_refused(&world.refused(&request).await, 400, Some("input[2].role"), "invalid_value");
    }
    let request = json!({"model": "m-chat", "input": [{"type": "message", "role": "tutor", "content": []}]});
    assert_refused(&world.refused(&request).await, 400, Some("input[0].role"), "invalid_value");
    let client = world.amalgam.client();
    let items = json!({"items": [{"role": "tutor", "content": "a"}]});
    assert_refused(&client.post_json("/v1/conversations", &items).await, 400, Some("items[0].role"), "invalid_value");
    let conversation = client.post_json("/v1/conversations", &json!({})).await.json();
    let path = format!("/v1/conversations/{}/items", conversation["id"].as_str().unwrap());
    assert_refused(&client.post_json(&path, &items).await, 400, Some("items[0].role"), "invalid_value");
    // Every role that the wire has, in any spelling of its string.
    let body = r#"{"model": "m-chat", "input": [{"role": "us\u0065r", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "system", "content": "c"}, {"role": "developer", "content": "d"}, {"role": "user", "content": "e"}]}"#;
    world.upstream(Wire::Chat).enqueue(Script::text(&["Done."]).reply(Wire::Chat, Delivery::Whole));
    let answer = client.post_raw("/v1/responses", "application/json", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(world.sent(Wire::Chat)["messages"][0], json!({"role": "user", "content": "a"}));
}

#[tokio::test]
async fn null_inside_input_or_tools_is_skipped_and_reported() {
    // right E5
    let world = World::start().await;
    let tool = json!({"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}});
    let request = json!({"input": [{"role": "user", "content": "Hi"}, null, null], "tools": [null, tool]});
    for wire in WIRES {
        let answer = world.ask(wire, Delivery::Whole, &Script::text(&["Hello"]), &request).await;
        let losses = answer.header("amalgam-losses").expect("null is reported").to_owned();
        assert!(losses.contains("input[1]: null was skipped, the first of 2 in this list"), "{wire:?}: {losses}");
        assert!(losses.contains("tools[0]: null was skipped"), "{wire:?}: {losses}");
        let sent = world.upstream(wire).requests().len();
        let strict = world.amalgam.client().with_header("amalgam-strict", "true");
        let refused = strict.post_json("/v1/responses", &asking(wire, Delivery::Whole, &request)).await;
        assert_refused(&refused, 400, Some("input[1]"), "unsupported_parameter");
        assert_eq!(world.upstream(wire).requests().len(), sent, "{wire:?} was asked");
    }
}

#[tokio::test]
async fn the_log_tells_a_kind_of_loss_once_for_each_model() {
    // right A10
    let world = World::with(Setup::new().env("AMALGAM_LOG", "info"), &[]).await;
    let lossy = json!({"input": [{"role": "user", "content": "Hi"}, {"type": "acme:thing", "id": "x"}]});
    for _ in 0..3 {
        for wire in [Wire::Chat, Wire::Anthropic] {
            let answer = world.ask(wire, Delivery::Whole, &Script::text(&["Hello"]), &lossy).await;
            assert!(answer.header("amalgam-losses").is_some(), "{wire:?}: callers are told each time");
        }
    }
    let other = json!({"input": [{"role": "user", "content": "Hi"}, {"type": "other:thing", "id": "x"}]});
    world.ask(Wire::Chat, Delivery::Whole, &Script::text(&["Hello"]), &other).await;
    // The last lines of the log are written within moments.
    let log = eventually("the last loss in the log", FINAL, async || {
        let log = world.amalgam.stderr();
        log.contains("other:thing").then_some(log)
    })
    .await;
    let told = |text: &str| log.lines().filter(|line| line.contains("carried over") && line.contains(text)).count();
    assert_eq!((told("acme:thing"), told("other:thing")), (2, 1), "{log}");
}
