//! Turns that are cancelled keep their output so far, and a later turn sends it to the model.

use amalgam_testkit::{Setup, check};
use serde_json::{Value, json};

use crate::support::{
    Delivery, Script, WIRES, Wire, World, asking, cancel, id_of, retrieved, standing, stores, text_of,
};

/// Frames of a scripted text of three pieces up to and with its second delta.
fn frames_with_two_pieces(wire: Wire) -> usize {
    match wire {
        Wire::Chat => 3,
        Wire::Responses => 6,
        Wire::Anthropic => 4,
    }
}

fn assert_partial(response: &Value, wire: Wire, what: &str) {
    assert_eq!(response["status"], "cancelled", "{what}");
    assert_eq!(text_of(response), "One two ", "{what}: {response}");
    assert_eq!(response["output"][0]["status"], "incomplete", "{what}");
    assert_eq!(response["amalgam"]["model"], format!("{}/{}", wire.kind(), wire.model()), "{what}");
    assert_eq!(check::response(response), Vec::<String>::new(), "{what}");
    let usage = &response["usage"];
    let tokens = |name: &str| usage[name].as_u64().unwrap_or_default();
    // The one wire that reports tokens before its end; the server counts what the others do not report.
    assert_eq!(usage["estimated"] == true, wire != Wire::Anthropic, "{what}: {response}");
    assert!((1..40).contains(&tokens("input_tokens")), "{what}: {response}");
    assert!((1..8).contains(&tokens("output_tokens")), "{what}: {response}");
    assert_eq!(tokens("total_tokens"), tokens("input_tokens") + tokens("output_tokens"), "{what}: {response}");
}

/// Continues a cancelled response; the model reads the output so far.
async fn assert_told_again(world: &World, wire: Wire, id: &str, what: &str) {
    let more = json!({"input": "Go on", "previous_response_id": id});
    world.whole(wire, &Script::text(&["three"]), &more).await;
    let sent = world.sent(wire).to_string();
    assert!(sent.contains("One two ") && sent.contains("Count"), "{what}: {sent}");
}

#[tokio::test]
async fn a_cancelled_background_turn_keeps_what_was_said() {
    // right A4
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        for wire in WIRES {
            let what = format!("{} {wire:?}", store.name);
            let script = Script::text(&["One ", "two ", "three"]);
            let reply = script.reply(wire, Delivery::Stream).hang_after(frames_with_two_pieces(wire));
            world.upstream(wire).enqueue(reply);
            let request = asking(wire, Delivery::Stream, &json!({"input": "Count", "background": true}));
            let mut stream = client.post_stream("/v1/responses", &request).await;
            let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
            while stream.next_of_type("response.output_text.delta").await["delta"] != "two " {}
            let cancelled = cancel(&client, &id).await.json();
            assert_partial(&cancelled, wire, &what);
            let told = stream.next_of_type("response.incomplete").await["response"].clone();
            assert_eq!(told, cancelled, "{what}: the stream tells the same");
            assert_eq!(retrieved(&client, &id).await, cancelled, "{what}");
            assert_told_again(&world, wire, &id, &what).await;
        }
    }
}

#[tokio::test]
async fn a_stored_stream_that_its_caller_leaves_keeps_what_was_said() {
    // right A4
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        for wire in WIRES {
            let what = format!("{} {wire:?}", store.name);
            let script = Script::text(&["One ", "two ", "three"]);
            let reply = script.reply(wire, Delivery::Stream).hang_after(frames_with_two_pieces(wire));
            world.upstream(wire).enqueue(reply);
            let request = asking(wire, Delivery::Stream, &json!({"input": "Count"}));
            let mut stream = client.post_stream("/v1/responses", &request).await;
            let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
            while stream.next_of_type("response.output_text.delta").await["delta"] != "two " {}
            drop(stream);
            assert_partial(&standing(&client, &id, "cancelled").await, wire, &what);
            assert_told_again(&world, wire, &id, &what).await;
        }
    }
}

#[tokio::test]
async fn a_turn_that_another_process_cancels_keeps_what_was_said() {
    // right A4
    let Some(store) = crate::support::shared_store() else { return };
    let world = World::with(store.setup(Setup::new()), &[]).await;
    let client = world.amalgam.client();
    let script = Script::text(&["One ", "two ", "three"]);
    let reply = script.reply(Wire::Chat, Delivery::Stream).hang_after(frames_with_two_pieces(Wire::Chat));
    world.upstream(Wire::Chat).enqueue(reply);
    let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Count", "background": true}));
    let mut stream = client.post_stream("/v1/responses", &request).await;
    let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
    while stream.next_of_type("response.output_text.delta").await["delta"] != "two " {}
    let another = world.another().await;
    assert_eq!(cancel(&another.client(), &id).await.json()["status"], "cancelled");
    let complete = crate::support::eventually("what was said", crate::support::SOON, async || {
        let response = retrieved(&client, &id).await;
        (!text_of(&response).is_empty()).then_some(response)
    });
    assert_partial(&complete.await, Wire::Chat, "another process");
    assert_told_again(&world, Wire::Chat, &id, "another process").await;
}
