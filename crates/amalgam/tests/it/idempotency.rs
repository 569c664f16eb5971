//! `Idempotency-Key`: the same request sent twice is done once. S1, P4

use amalgam_testkit::{Amalgam, Client, Gate, HttpAnswer, Reply, Setup, check};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, SOON, Script, TestStore, Wire, World, asking, assert_refused, beside, ended, eventually,
    id_of, last_response, retrieved, shared_store, standing, stores, types,
};

const REPLAYED: &str = "idempotent-replayed";

async fn worlds(setup: Setup, options: &[(&str, &str)]) -> Vec<(World, TestStore)> {
    let mut worlds = Vec::new();
    for store in stores() {
        worlds.push((World::with(store.setup(setup.clone()), options).await, store));
    }
    worlds
}

async fn post(client: &Client, key: &str, request: &Value) -> HttpAnswer {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    client.request(Method::POST, "/v1/responses", &headers, request.to_string().into()).await
}

/// Begins to ask and leaves without an answer, once `asked` has happened.
async fn ask_and_leave(client: &Client, key: &str, request: &Value, asked: impl Future) {
    let (client, key, request) = (client.clone(), key.to_owned(), request.clone());
    let leaving = beside(async move { post(&client, &key, &request).await });
    asked.await;
    leaving.leave().await;
}

fn final_response(delivery: Delivery, answer: &HttpAnswer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    match delivery {
        Delivery::Whole => answer.json(),
        Delivery::Stream => {
            assert_eq!(check::body(&answer.body), Vec::<String>::new(), "{}", answer.text());
            last_response(&answer.json_events())
        }
    }
}

#[tokio::test]
async fn the_same_request_is_answered_with_the_same_bytes_and_one_call() {
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        let mut asked = 0;
        for delivery in DELIVERIES {
            for kept in [true, false] {
                let key = format!("{delivery:?} {kept}");
                let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "store": kept}));
                world.upstream(Wire::Chat).enqueue(Script::text(&["All ", "is well."]).reply(Wire::Chat, delivery));
                asked += 1;
                let first = post(&client, &key, &request).await;
                assert_eq!(first.header(REPLAYED), None, "{} {key}", store.name);
                let response = final_response(delivery, &first);
                assert_eq!(response["status"], "completed", "{} {key}", store.name);
                for _ in 0..3 {
                    let again = post(&client, &key, &request).await;
                    assert_eq!((again.status, again.text()), (first.status, first.text()), "{} {key}", store.name);
                    assert_eq!(again.header(REPLAYED), Some("true"));
                    assert_eq!(again.header("content-type"), first.header("content-type"));
                }
                assert_eq!(world.upstream(Wire::Chat).requests().len(), asked, "{} {key}", store.name);
                let stored = client.get(&format!("/v1/responses/{}", id_of(&response))).await;
                assert_eq!(stored.status == 200, kept);
            }
        }
        // Without the key it is another request.
        world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "store": true}));
        assert_eq!(client.post_json("/v1/responses", &request).await.status, 200);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), asked + 1);
    }
}

/// Sends the same request many times at once, to all of these servers, while the model is made to wait.
async fn twins(world: &World, servers: &[&Amalgam], delivery: Delivery, kept: bool) {
    const TWINS: usize = 20;
    let before = world.upstream(Wire::Chat).requests().len();
    let gate = Gate::new();
    let key = format!("twins {delivery:?} {kept}");
    let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "store": kept}));
    world.upstream(Wire::Chat).enqueue(Script::text(&["All ", "is well."]).reply(Wire::Chat, delivery).behind(&gate));
    let twins: Vec<_> = (0..TWINS)
        .map(|twin| {
            let (client, key, request) = (servers[twin % servers.len()].client(), key.clone(), request.clone());
            beside(async move { post(&client, &key, &request).await })
        })
        .collect();
    world.upstream(Wire::Chat).wait_for_requests(before + 1).await;
    gate.open();
    let mut answers = Vec::new();
    for twin in twins {
        answers.push(twin.end().await);
    }
    let first = answers[0].text();
    assert_eq!(final_response(delivery, &answers[0])["status"], "completed");
    assert!(answers.iter().all(|answer| answer.text() == first), "{delivery:?} {kept}: {answers:#?}");
    let replayed = answers.iter().filter(|answer| answer.header(REPLAYED).is_some()).count();
    assert_eq!(replayed, TWINS - 1, "{delivery:?} {kept}");
    assert_eq!(world.upstream(Wire::Chat).requests().len(), before + 1, "one call for {TWINS} twins");
}

#[tokio::test]
async fn twins_in_flight_share_one_call() {
    for (world, _store) in worlds(Setup::new(), &[]).await {
        for delivery in DELIVERIES {
            for kept in [true, false] {
                twins(&world, &[&world.amalgam], delivery, kept).await;
            }
        }
    }
}

#[tokio::test]
async fn twins_at_two_processes_share_one_call() {
    let Some(store) = shared_store() else { return };
    let world = World::with(store.setup(Setup::new()), &[]).await;
    let second = world.another().await;
    for delivery in DELIVERIES {
        for kept in [true, false] {
            twins(&world, &[&world.amalgam, &second], delivery, kept).await;
        }
    }
}

#[tokio::test]
async fn a_key_with_another_body_is_refused() {
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        let gate = Gate::new();
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        let other = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Ho"}));
        world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole).behind(&gate));
        let first = {
            let (client, request) = (client.clone(), request.clone());
            beside(async move { post(&client, "k", &request).await })
        };
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        // While the first is worked on, and after it.
        assert_refused(&post(&client, "k", &other).await, 422, None, "idempotency_mismatch");
        gate.open();
        assert_eq!(first.end().await.status, 200);
        assert_refused(&post(&client, "k", &other).await, 422, None, "idempotency_mismatch");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
        assert_eq!(post(&client, "k", &request).await.header(REPLAYED), Some("true"));
    }
}

#[tokio::test]
async fn a_key_is_its_tenants_and_its_users_own() {
    let tenants = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";
    for (world, store) in worlds(Setup::new().extra(tenants), &[]).await {
        let caller =
            |key: &str, user: &str| Client::new(world.amalgam.url()).with_key(key).with_header("x-amalgam-user", user);
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        world.upstream(Wire::Chat).from_now_on(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole));
        let mut ids = Vec::new();
        for (key, user) in [("am_a", "u"), ("am_a", "v"), ("am_b", "u")] {
            let first = post(&caller(key, user), "k", &request).await;
            assert_eq!((first.status.as_u16(), first.header(REPLAYED)), (200, None), "{} {key} {user}", store.name);
            let again = post(&caller(key, user), "k", &request).await;
            assert_eq!((again.text(), again.header(REPLAYED)), (first.text(), Some("true")));
            ids.push(id_of(&first.json()).to_owned());
        }
        ids.dedup();
        assert_eq!((ids.len(), world.upstream(Wire::Chat).requests().len()), (3, 3), "{}", store.name);
    }
}

#[tokio::test]
async fn a_failure_is_not_told_again() {
    // S1: replay what was done, not 429 and 5xx.
    for (world, store) in worlds(Setup::new(), &[("retries", "0")]).await {
        let client = world.amalgam.client();
        for delivery in DELIVERIES {
            for kept in [true, false] {
                let cut = Script::text(&["a", "b"]).reply(Wire::Chat, delivery);
                let failures = [
                    (502, Reply::status(500)),
                    (429, Reply::status(429).header("retry-after", "1")),
                    (502, Reply::json(json!({"not": "a completion"}))),
                    match delivery {
                        Delivery::Whole => (502, Reply::bytes("application/json", "{\"id\":").chunked().cut_after(1)),
                        Delivery::Stream => (200, cut.cut_after(2)),
                    },
                ];
                for (index, (status, failure)) in failures.into_iter().enumerate() {
                    let key = format!("{delivery:?} {kept} {index}");
                    let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "store": kept}));
                    world.upstream(Wire::Chat).enqueue(failure);
                    let first = post(&client, &key, &request).await;
                    let whole_body_was_json = first.status == 200 && delivery == Delivery::Whole;
                    assert!(first.status == status && !whole_body_was_json, "{} {key}: {}", store.name, first.text());
                    world.upstream(Wire::Chat).enqueue(Script::text(&["fine"]).reply(Wire::Chat, delivery));
                    let second = post(&client, &key, &request).await;
                    let response = final_response(delivery, &second);
                    assert_eq!(response["status"], "completed", "{} {key}", store.name);
                    assert_eq!(post(&client, &key, &request).await.text(), second.text(), "{} {key}", store.name);
                }
            }
        }
        assert_eq!(world.upstream(Wire::Chat).replies_left(), 0, "{}", store.name);
    }
}

#[tokio::test]
async fn what_an_upstream_refuses_for_good_is_told_again() {
    // S1: and stable 4xx.
    for (world, store) in worlds(Setup::new(), &[("retries", "0")]).await {
        let client = world.amalgam.client();
        let upstream = world.upstream(Wire::Chat);
        for delivery in DELIVERIES {
            for kept in [true, false] {
                let key = format!("{delivery:?} {kept}");
                let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "store": kept}));
                let asked = upstream.requests().len();
                upstream.enqueue(Reply::status(400).with_json(json!({"error": {"message": "no"}})));
                let first = post(&client, &key, &request).await;
                assert_eq!((first.status.as_u16(), first.header(REPLAYED)), (400, None), "{} {key}", store.name);
                for _ in 0..2 {
                    let again = post(&client, &key, &request).await;
                    assert_eq!((again.status.as_u16(), again.header(REPLAYED)), (400, Some("true")), "{}", store.name);
                    assert_eq!((again.text(), again.header("content-type")), (first.text(), Some("application/json")));
                }
                assert_eq!(upstream.requests().len(), asked + 1, "{} {key}: it was asked once", store.name);
            }
        }
        // The result of a compaction is also replayed.
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        let headers = [("content-type", "application/json"), ("idempotency-key", "compact")];
        let compact = || client.request(Method::POST, "/v1/responses/compact", &headers, request.to_string().into());
        let asked = upstream.requests().len();
        upstream.enqueue(Reply::status(400).with_json(json!({"error": {"message": "no"}})));
        let (first, again) = (compact().await, compact().await);
        assert_eq!((first.status.as_u16(), again.text()), (400, first.text()), "{}", store.name);
        assert_eq!(again.header(REPLAYED), Some("true"), "{}", store.name);
        assert_eq!(upstream.requests().len(), asked + 1, "{}", store.name);
    }
}

#[tokio::test]
async fn what_was_refused_here_is_looked_at_again() {
    // No model was asked: what was missing may be there by now.
    let world = World::start().await;
    let client = world.amalgam.client();
    let request = json!({"model": "late", "input": "Hi"});
    for _ in 0..2 {
        let refused = post(&client, "k", &request).await;
        assert_refused(&refused, 404, Some("model"), "model_not_found");
        assert_eq!(refused.header(REPLAYED), None);
    }
}

#[tokio::test]
async fn a_caller_that_leaves_midway_comes_back_for_the_same_answer() {
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        for delivery in DELIVERIES {
            for kept in [true, false] {
                for before_the_head in [true, false] {
                    let before = world.upstream(Wire::Chat).requests().len();
                    let gate = Gate::new();
                    let key = format!("{delivery:?} {kept} {before_the_head}");
                    let request = asking(Wire::Chat, delivery, &json!({"input": "Hi", "store": kept}));
                    let reply = Script::text(&["All ", "is well."]).reply(Wire::Chat, delivery);
                    let reply = if before_the_head { reply.behind(&gate) } else { reply.hold_after(0, &gate) };
                    world.upstream(Wire::Chat).enqueue(reply);
                    ask_and_leave(&client, &key, &request, world.upstream(Wire::Chat).wait_for_requests(before + 1))
                        .await;
                    let twin = {
                        let (client, key, request) = (client.clone(), key.clone(), request.clone());
                        beside(async move { post(&client, &key, &request).await })
                    };
                    gate.open();
                    let answer = twin.end().await;
                    let response = final_response(delivery, &answer);
                    assert_eq!(response["status"], "completed", "{} {key}", store.name);
                    assert_eq!(post(&client, &key, &request).await.text(), answer.text(), "{} {key}", store.name);
                    assert_eq!(world.upstream(Wire::Chat).requests().len(), before + 1, "{} {key}", store.name);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_background_turn_under_a_key_is_queued_once() {
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi", "background": true}));
        let first = post(&client, "k", &request).await.json();
        let second = post(&client, "k", &request).await;
        assert_eq!((second.header(REPLAYED), &second.json()["id"]), (Some("true"), &first["id"]), "{}", store.name);
        let completed = standing(&client, id_of(&first), "completed").await;
        assert_eq!(post(&client, "k", &request).await.json(), completed, "{}", store.name);
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_twin_takes_over_what_a_dead_process_was_doing() {
    // P3, P4
    let Some(store) = shared_store() else { return };
    let mut world = World::with(store.setup(Setup::new()), &[]).await;
    let second = world.another().await;
    let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
    world.upstream(Wire::Chat).enqueue(Reply::hang());
    let client = world.amalgam.client();
    let dying = {
        let request = request.clone();
        let headers = [("content-type", "application/json"), ("idempotency-key", "k")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        beside(async move {
            let headers: Vec<(&str, &str)> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            client.try_request(Method::POST, "/v1/responses", &headers, request.to_string().into()).await
        })
    };
    world.upstream(Wire::Chat).wait_for_requests(1).await;
    world.upstream(Wire::Chat).enqueue(Script::text(&["mine"]).reply(Wire::Chat, Delivery::Whole));
    world.amalgam.kill();
    assert!(dying.end().await.is_err(), "the caller of the dead process gets no answer");
    let answer = post(&second.client(), "k", &request).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(retrieved(&second.client(), id_of(&answer.json())).await, answer.json());
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 2);
}

#[tokio::test]
async fn a_key_of_another_form_is_refused() {
    let world = World::start().await;
    let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
    for key in ["", &"k".repeat(256)] {
        let refused = post(&world.amalgam.client(), key, &request).await;
        assert_refused(&refused, 400, Some("Idempotency-Key"), "invalid_idempotency_key");
    }
    assert_eq!(world.upstream(Wire::Chat).requests().len(), 0);
    world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole));
    assert_eq!(post(&world.amalgam.client(), &"k".repeat(255), &request).await.status, 200);
}

#[tokio::test]
async fn a_key_whose_response_was_deleted_says_that_it_is_gone() {
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole));
        let request = asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}));
        let response = post(&client, "k", &request).await.json();
        ended(&client, id_of(&response)).await;
        let path = format!("/v1/responses/{}", id_of(&response));
        client.request(Method::DELETE, &path, &[], Bytes::new()).await;
        assert_refused(&post(&client, "k", &request).await, 404, None, "not_found");
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
    }
}

#[tokio::test]
async fn a_key_whose_response_was_deleted_while_it_ran_is_free_again() {
    // P3: the end of the first one has no place to be written to, and so it settles nothing.
    for (world, store) in worlds(Setup::new(), &[]).await {
        let client = world.amalgam.client();
        let gate = Gate::new();
        let reply = Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream);
        world.upstream(Wire::Chat).enqueue(reply.hold_after(3, &gate));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let idempotency_key = client.clone().with_header("idempotency-key", "k");
        let mut stream = idempotency_key.post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        let path = format!("/v1/responses/{}", id_of(&created));
        assert_eq!(client.request(Method::DELETE, &path, &[], Bytes::new()).await.status, 200, "{}", store.name);
        gate.open();
        world.upstream(Wire::Chat).enqueue(Script::text(&["anew"]).reply(Wire::Chat, Delivery::Stream));
        let again =
            tokio::time::timeout(SOON, post(&client, "k", &request)).await.expect("no other process works on it");
        let response = final_response(Delivery::Stream, &again);
        assert_eq!(response["status"], "completed", "{}", store.name);
        assert_ne!(id_of(&response), id_of(&created), "{}", store.name);
    }
}

#[tokio::test]
async fn a_stream_is_told_again_also_when_its_events_are_gone() {
    // S1: keys are stored for longer than events.
    for store in stores() {
        let setup = Setup::new().extra("[retention]\nevents = \"0s\"");
        let mut world = World::with(store.setup(setup), &[]).await;
        world.upstream(Wire::Chat).enqueue(Script::text(&["All ", "is well."]).reply(Wire::Chat, Delivery::Stream));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let first = final_response(Delivery::Stream, &post(&world.amalgam.client(), "k", &request).await);
        // A process clears away when it starts.
        world.amalgam.stop().await;
        world.start_again().await;
        let client = world.amalgam.client();
        let path = format!("/v1/responses/{}?stream=true", id_of(&first));
        eventually("the events to be gone", SOON, async || (client.get(&path).await.status == 400).then_some(())).await;
        let again = post(&client, "k", &request).await;
        assert_eq!(again.header(REPLAYED), Some("true"), "{}", store.name);
        // Its items are sent as a whole; the deltas are not stored any more.
        let events = again.json_events();
        let life = ["response.created", "response.in_progress"];
        let items = ["response.output_item.added", "response.output_item.done"];
        assert_eq!(types(&events), [&life[..], &items, &["response.completed"]].concat(), "{}", store.name);
        assert!(events.iter().enumerate().all(|(number, event)| event["sequence_number"] == number), "{events:#?}");
        assert_eq!((&events[3]["item"], last_response(&events)), (&first["output"][0], first.clone()));
        assert_eq!(world.upstream(Wire::Chat).requests().len(), 1, "{}", store.name);
    }
}
