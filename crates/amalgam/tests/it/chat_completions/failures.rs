//! Limits, failing upstreams, and clients that leave.

use std::time::Instant;

use amalgam_testkit::{Gate, Reply};
use serde_json::json;

use super::{PATH, ask, question};
use crate::{
    limits::{answers, key, set},
    support::{
        DELIVERIES, Delivery, FINAL, SOON, Script, WIRES, Wire, World, assert_calm, error_of, eventually, setup, stores,
    },
};

#[tokio::test]
async fn a_client_that_leaves_a_stream_frees_the_upstream() {
    let world = World::start().await;
    for wire in WIRES {
        let gate = Gate::new();
        let reply = Script::text(&["Hel", "lo."]).reply(wire, Delivery::Stream).hold_after(2, &gate);
        world.upstream(wire).enqueue(reply);
        let mut stream = world.amalgam.client().post_stream(PATH, &question(wire, Delivery::Stream)).await;
        assert!(stream.next_event().await.is_some());
        let started = Instant::now();
        drop(stream);
        world.upstream(wire).wait_for_disconnect(0).await;
        assert!(started.elapsed() < SOON, "{wire:?}: {:?}", started.elapsed());
    }
    assert_calm(&world.amalgam);
}

#[tokio::test]
async fn limits_apply_as_on_every_wire() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        answers(&world);
        let (id, caller) = key(&world, &store, &["use"]);
        set(&world.amalgam.client(), &format!("keys/{id}"), &json!({"requests_per_minute": 1})).await;
        let refused = eventually("the limit in force", FINAL, async || {
            let answer = caller.post_json(PATH, &question(Wire::Chat, Delivery::Whole)).await;
            (answer.status != 200).then_some(answer)
        })
        .await;
        let error = error_of(&refused);
        assert_eq!((refused.status.as_u16(), &error["code"]), (429, &json!("rate_limit_exceeded")), "{}", store.name);
        assert!(refused.header("retry-after").is_some(), "{}", store.name);
        let streamed = caller.post_json(PATH, &question(Wire::Chat, Delivery::Stream)).await;
        assert_eq!((streamed.status.as_u16(), streamed.header("content-type")), (429, Some("application/json")));
    }
}

#[tokio::test]
async fn a_turn_is_listed_and_counted_under_its_own_door() {
    for store in stores() {
        let world = World::with(store.setup(setup()), &[]).await;
        for delivery in DELIVERIES {
            let question = question(Wire::Chat, delivery);
            ask(&world, Wire::Chat, delivery, &Script::text(&["Hello."]), &question).await;
        }
        let client = world.amalgam.client();
        let turns = eventually("both turns in the list", FINAL, async || {
            let turns = client.get("/admin/turns?door=chat_completions").await.json();
            let ended = turns["data"].as_array()?.iter().filter(|turn| turn["status"] == "completed").count();
            (ended == 2).then_some(turns)
        })
        .await;
        assert_eq!(turns["data"][0]["door"], "chat_completions", "{}", store.name);
        let metrics = client.get("/metrics").await.text();
        assert!(metrics.contains(r#"door="chat_completions""#), "{metrics}");
    }
}

#[tokio::test]
async fn a_failure_before_the_answer_has_its_status_and_a_later_one_is_in_the_stream() {
    let world = World::start().await;
    let client = world.amalgam.client();
    for wire in WIRES {
        for delivery in DELIVERIES {
            world
                .upstream(wire)
                .enqueue(Reply::status(400).with_json(json!({"error": {"message": "no", "type": "x"}})));
            let answer = client.post_json(PATH, &question(wire, delivery)).await;
            assert_eq!(answer.status, 400, "{wire:?}: {}", answer.text());
            error_of(&answer);
        }
        let cut = Script::text(&["Hel", "lo."]).reply(wire, Delivery::Stream).cut_after(3);
        world.upstream(wire).enqueue(cut);
        let answer = client.post_json(PATH, &question(wire, Delivery::Stream)).await;
        let text = answer.text();
        let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let [.., error, "[DONE]"] = data.as_slice() else { panic!("{wire:?}: {text}") };
        let error: serde_json::Value = serde_json::from_str(error).expect("an error is JSON");
        assert!(error["error"]["message"].is_string() && error["error"]["code"].is_string(), "{wire:?}: {text}");
    }
    assert_calm(&world.amalgam);
}
