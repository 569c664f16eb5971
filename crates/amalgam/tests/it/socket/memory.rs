//! What is continued on a socket, and what is not.

use super::*;
use crate::support::{FINAL, eventually};

fn continuing(wire: Wire, text: &str, previous: &Value) -> Value {
    create(wire, json!({"input": text, "store": false, "previous_response_id": previous["id"]}))
}

fn not_found() -> (u64, Option<String>, String) {
    (400, Some("previous_response_id".to_owned()), "previous_response_not_found".to_owned())
}

/// Everything that the upstream received last, as text.
fn heard(world: &World, wire: Wire) -> String {
    world.sent(wire).to_string()
}

#[tokio::test]
async fn a_response_that_is_not_stored_is_continued_on_its_own_connection_only() {
    for setup in [Setup::new(), Setup::new().stateless()] {
        let world = World::with(setup, &[]).await;
        let mut socket = Socket::open(&world.amalgam).await;
        for wire in WIRES {
            world.upstream(wire).enqueue(says("Hello Ada.").reply(wire, Delivery::Stream));
            let first = socket.respond(&create(wire, json!({"input": "I am Ada.", "store": false}))).await;
            let mut last = first.clone();
            for turn in ["One", "Two", "Three"] {
                world.upstream(wire).enqueue(says(&format!("{turn} heard.")).reply(wire, Delivery::Stream));
                last = socket.respond(&continuing(wire, turn, &last)).await;
                assert_eq!(text_of(&last), format!("{turn} heard."));
            }
            let sent = heard(&world, wire);
            for said in ["I am Ada.", "Hello Ada.", "One", "One heard.", "Two", "Two heard.", "Three"] {
                assert!(sent.contains(said), "{wire:?} was not told {said:?}: {sent}");
            }
            // A fork knows nothing of the others.
            world.upstream(wire).enqueue(says("Forked.").reply(wire, Delivery::Stream));
            socket.respond(&continuing(wire, "Fork", &first)).await;
            let sent = heard(&world, wire);
            assert!(sent.contains("Hello Ada.") && !sent.contains("One"), "{sent}");

            let asked = world.upstream(wire).requests().len();
            let mut other = Socket::open(&world.amalgam).await;
            assert_eq!(other.refused(&continuing(wire, "Who?", &last)).await, not_found());
            let mut over_http = continuing(wire, "Who?", &last);
            over_http.as_object_mut().unwrap().remove("type");
            assert_eq!(world.amalgam.client().post_json("/v1/responses", &over_http).await.status, 400);
            assert_eq!(world.upstream(wire).requests().len(), asked);
        }
    }
}

#[tokio::test]
async fn a_failed_continuation_cannot_be_continued() {
    let world = World::start().await;
    let wire = Wire::Chat;
    let mut socket = Socket::open(&world.amalgam).await;
    let begin = async |socket: &mut Socket| {
        world.upstream(wire).enqueue(says("Hello.").reply(wire, Delivery::Stream));
        let first = socket.respond(&create(wire, json!({"input": "Hi", "store": false}))).await;
        world.upstream(wire).enqueue(says("Again.").reply(wire, Delivery::Stream));
        let second = socket.respond(&continuing(wire, "Hi", &first)).await;
        (first, second)
    };

    // Before the stream.
    let (first, second) = begin(&mut socket).await;
    assert_eq!(
        socket.refused(&create(wire, json!({"temperature": 7, "previous_response_id": second["id"]}))).await.0,
        400
    );
    assert_eq!(socket.refused(&continuing(wire, "Hi", &second)).await, not_found());
    world.upstream(wire).enqueue(says("Still here.").reply(wire, Delivery::Stream));
    assert_eq!(text_of(&socket.respond(&continuing(wire, "Hi", &first)).await), "Still here.");

    // Inside it.
    let (_, second) = begin(&mut socket).await;
    let cut = says("Never whole").reply(wire, Delivery::Stream).cut_after(2);
    world.upstream(wire).enqueue(cut);
    let failed = socket.respond(&continuing(wire, "Hi", &second)).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(socket.refused(&continuing(wire, "Hi", &failed)).await, not_found());
    assert_eq!(socket.refused(&continuing(wire, "Hi", &second)).await, not_found());
}

#[tokio::test]
async fn preparing_a_turn_calls_no_model_and_can_be_continued() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let mut socket = Socket::open(&world.amalgam).await;
        for wire in WIRES {
            for kept in [false, true] {
                let asked = world.upstream(wire).requests().len();
                let fields = json!({"input": "I am Ada.", "store": kept, "generate": false, "stream": true});
                socket.say(&create(wire, fields)).await;
                let events = socket.events().await;
                assert_eq!(types(&events), ["response.created", "response.in_progress", "response.completed"]);
                let ready = last_response(&events);
                assert_eq!((&ready["output"], &ready["usage"]["total_tokens"]), (&json!([]), &json!(0)));
                assert_eq!(world.upstream(wire).requests().len(), asked, "{wire:?} was asked");
                let path = format!("/v1/responses/{}", ready["id"].as_str().unwrap());
                assert_eq!(
                    world.amalgam.client().get(&path).await.status,
                    if kept { 200 } else { 404 },
                    "{}",
                    store.name
                );

                // Nothing new has to be said.
                for input in [json!([]), json!("And you?")] {
                    world.upstream(wire).enqueue(says("Hello Ada.").reply(wire, Delivery::Stream));
                    let fields = json!({"input": input, "store": kept, "previous_response_id": ready["id"]});
                    assert_eq!(text_of(&socket.respond(&create(wire, fields)).await), "Hello Ada.");
                    assert!(heard(&world, wire).contains("I am Ada."));
                }
            }
        }
        let (status, param, _) = socket.refused(&json!({"type": "response.create", "generate": false})).await;
        assert_eq!((status, param.as_deref()), (400, Some("model")));
    }
}

#[tokio::test]
async fn stored_and_remembered_responses_go_on_from_each_other() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let wire = Wire::Chat;
        let mut socket = Socket::open(&world.amalgam).await;
        let mut turn = async |text: &str, kept: bool, previous: &Value| {
            world.upstream(wire).enqueue(says(&format!("{text} heard.")).reply(wire, Delivery::Stream));
            let fields = json!({"input": text, "store": kept, "previous_response_id": previous["id"]});
            socket.respond(&create(wire, fields)).await
        };
        let first = turn("One", true, &json!({})).await;
        let second = turn("Two", false, &first).await;
        let third = turn("Three", false, &second).await;
        let fourth = turn("Four", true, &third).await;
        let fifth = turn("Five", true, &fourth).await;
        let sent = heard(&world, wire);
        for said in ["One heard.", "Two heard.", "Three heard.", "Four heard.", "Five"] {
            assert!(sent.contains(said), "{}: not told {said:?}: {sent}", store.name);
        }
        // The store has all of it by now, also for callers that have no socket.
        world.upstream(wire).enqueue(says("Six heard.").reply(wire, Delivery::Whole));
        let request = json!({"model": wire.model(), "input": "Six", "previous_response_id": fifth["id"]});
        assert_eq!(world.amalgam.client().post_json("/v1/responses", &request).await.status, 200);
        let sent = heard(&world, wire);
        assert!(sent.contains("Two heard.") && sent.contains("Five heard."), "{}: {sent}", store.name);
        // What was never stored has no id there.
        let path = format!("/v1/responses/{}", third["id"].as_str().unwrap());
        assert_eq!(world.amalgam.client().get(&path).await.status, 404);
    }
}

#[tokio::test]
async fn what_all_connections_remember_together_is_bounded() {
    // P7
    let world = World::with(Setup::new().extra("[limits]\nremembered_bytes = \"4KiB\""), &[]).await;
    let wire = Wire::Chat;
    let long = || create(wire, json!({"input": "x".repeat(2500), "store": false}));
    let answers = || world.upstream(wire).enqueue(says("Heard.").reply(wire, Delivery::Stream));
    let (mut first, mut second) = (Socket::open(&world.amalgam).await, Socket::open(&world.amalgam).await);
    answers();
    let remembered = first.respond(&long()).await;
    // It is answered, but not remembered: there is no room, and others keep what they have.
    answers();
    let forgotten = second.respond(&long()).await;
    assert_eq!(text_of(&forgotten), "Heard.");
    assert_eq!(second.refused(&continuing(wire, "And?", &forgotten)).await, not_found());
    answers();
    assert_eq!(text_of(&first.respond(&continuing(wire, "And?", &remembered)).await), "Heard.");
    // The memory of a connection is released when it closes.
    drop(first);
    eventually("the first connection to be forgotten", FINAL, async || {
        answers();
        let long = second.respond(&long()).await;
        answers();
        second.say(&continuing(wire, "And?", &long)).await;
        let event = second.event().await;
        match event["type"].as_str() {
            Some("error") => None,
            _ => Some(second.event_of_type("response.completed").await),
        }
    })
    .await;
}
