//! The end of a process in order: new work is turned away, what its callers wait for is finished, the rest is handed over.

use std::time::Instant;

use amalgam_testkit::{Gate, Reply, Setup, check, sse};
use serde_json::{Value, json};

use crate::support::{
    Delivery, SOON, Script, Wire, World, asking, beside, ended, id_of, last_response, retrieved, shared_store,
    standing, stores, text_of, types,
};

fn short_drain() -> Setup {
    Setup::new().extra("[server]\ndrain_timeout = \"1s\"")
}

fn background(delivery: Delivery) -> Value {
    asking(Wire::Chat, delivery, &json!({"input": "Hi", "background": true}))
}

/// A background turn that waits for its model; its id.
async fn waiting_for_its_model(world: &World, delivery: Delivery) -> String {
    let asked = world.upstream(Wire::Chat).requests().len();
    let client = world.amalgam.client();
    let mut stream = client.post_stream("/v1/responses", &background(delivery)).await;
    let id = match delivery {
        Delivery::Whole => id_of(&stream.into_answer().await.json()).to_owned(),
        Delivery::Stream => id_of(&stream.next_of_type("response.created").await["response"]).to_owned(),
    };
    world.upstream(Wire::Chat).wait_for_requests(asked + 1).await;
    standing(&client, &id, "in_progress").await;
    id
}

#[tokio::test]
async fn a_restarted_process_goes_on_with_background_turns() {
    // Fault table: SIGTERM
    for store in stores() {
        let mut world = World::with(store.setup(short_drain()), &[]).await;
        let answer = Script::text(&["All ", "is well."]);
        // Its upstream says nothing, or has only begun to answer.
        for (delivery, reply) in [
            (Delivery::Whole, Reply::hang()),
            (Delivery::Stream, Reply::hang()),
            (Delivery::Stream, answer.reply(Wire::Chat, Delivery::Stream).hang_after(1)),
        ] {
            world.upstream(Wire::Chat).enqueue(reply);
            let id = waiting_for_its_model(&world, delivery).await;
            let started = Instant::now();
            world.amalgam.stop().await;
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
            world.upstream(Wire::Chat).enqueue(answer.reply(Wire::Chat, delivery));
            world.start_again().await;
            let response = ended(&world.amalgam.client(), &id).await;
            let told = (response["status"].as_str().unwrap_or_default(), text_of(&response));
            assert_eq!(told, ("completed", "All is well.".to_owned()), "{} {delivery:?}: {response}", store.name);
            if delivery == Delivery::Stream {
                let told = world.amalgam.client().get(&format!("/v1/responses/{id}?stream=true")).await;
                assert_eq!(check::body(&told.body), Vec::<String>::new(), "{} {}", store.name, told.text());
            }
        }
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 6, "each began twice, and no more");
    }
}

#[tokio::test]
async fn another_process_takes_over_what_is_handed_over() {
    let Some(store) = shared_store() else { return };
    let mut world = World::with(store.setup(short_drain()), &[]).await;
    let answer = Script::text(&["All ", "is well."]);
    for delivery in [Delivery::Whole, Delivery::Stream] {
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let id = waiting_for_its_model(&world, delivery).await;
        let second = world.another().await;
        let client = second.client();
        // A client follows it at the other process all the while.
        let follower = (delivery == Delivery::Stream).then(|| {
            let (client, path) = (client.clone(), format!("/v1/responses/{id}?stream=true"));
            beside(async move { client.get(&path).await })
        });
        world.upstream(Wire::Chat).enqueue(answer.reply(Wire::Chat, delivery));
        world.amalgam.stop().await;
        let response = ended(&client, &id).await;
        assert_eq!((&response["status"], text_of(&response).as_str()), (&json!("completed"), "All is well."));
        if let Some(follower) = follower {
            let told = follower.end().await;
            assert_eq!(check::body(&told.body), Vec::<String>::new(), "{}", told.text());
            assert_eq!(last_response(&told.json_events()), response);
        }
        world.amalgam = second;
    }
}

#[tokio::test]
async fn a_background_turn_that_ends_in_time_is_not_handed_over() {
    for store in stores() {
        let mut world = World::with(store.setup(Setup::new().extra("[server]\ndrain_timeout = \"20s\"")), &[]).await;
        let gate = Gate::new();
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole).behind(&gate));
        let id = waiting_for_its_model(&world, Delivery::Whole).await;
        world.amalgam.signal("TERM");
        world.amalgam.wait_for_stderr("stopping").await;
        gate.open();
        world.amalgam.ended().await;
        world.start_again().await;
        let response = retrieved(&world.amalgam.client(), &id).await;
        assert_eq!(response["status"], "completed", "{}", store.name);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn what_was_told_in_part_fails_when_the_drain_is_over() {
    // P5: another process could not continue with the same text.
    for store in stores() {
        let mut world = World::with(store.setup(short_drain()), &[]).await;
        let reply = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).hang_after(3);
        world.upstream(Wire::Chat).enqueue(reply);
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &background(Delivery::Stream)).await;
        let mut events = vec![stream.next_of_type("response.created").await];
        while types(&events).last() != Some(&"response.output_text.delta") {
            events.push(stream.next_event().await.expect("the model speaks").json());
        }
        let id = id_of(&events[0]["response"]).to_owned();
        world.amalgam.signal("TERM");
        let rest = stream.rest().await;
        events.extend(rest.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
        assert_eq!(types(&events).last(), Some(&"response.failed"), "{}", store.name);
        assert_eq!(check::stream(&events), Vec::<String>::new());
        world.amalgam.ended().await;
        world.start_again().await;
        let response = retrieved(&world.amalgam.client(), &id).await;
        assert_eq!(response, last_response(&events), "{}", store.name);
        assert_eq!(response["error"]["code"], "server_is_shutting_down", "{}", store.name);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_drains_is_stored_as_it_was_told() {
    for store in stores() {
        let mut world = World::with(store.setup(Setup::new()), &[]).await;
        let gate = Gate::new();
        world
            .upstream(Wire::Chat)
            .enqueue(Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        stream.next_of_type("response.output_text.delta").await;
        world.amalgam.signal("TERM");
        world.amalgam.wait_for_stderr("stopping").await;
        gate.open();
        let completed = stream.next_of_type("response.completed").await["response"].clone();
        drop(stream);
        world.amalgam.ended().await;
        world.start_again().await;
        assert_eq!(retrieved(&world.amalgam.client(), id_of(&completed)).await, completed, "{}", store.name);
    }
}
