//! Turns that run without their caller: polled, followed, cancelled, and more of them than there is room.

use amalgam_testkit::{Client, Gate, HttpAnswer, Reply, Setup, check, sse};
use serde_json::{Value, json};

use crate::support::{
    DELIVERIES, Delivery, SOON, Script, TestStore, WIRES, Wire, World, asking, assert_refused, beside, cancel, ended,
    error_of, id_of, last_response, retrieved, standing, stores, text_of, types,
};

async fn worlds(setup: Setup) -> Vec<(World, TestStore)> {
    let mut worlds = Vec::new();
    for store in stores() {
        worlds.push((World::with(store.setup(setup.clone()), &[]).await, store));
    }
    worlds
}

fn background(wire: Wire, delivery: Delivery, text: &str) -> Value {
    asking(wire, delivery, &json!({"input": text, "background": true}))
}

async fn queued(client: &Client, wire: Wire, text: &str) -> Value {
    let answer = client.post_json("/v1/responses", &background(wire, Delivery::Whole, text)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let response = answer.json();
    assert_eq!(check::response(&response), Vec::<String>::new());
    assert_eq!((&response["status"], &response["background"]), (&json!("queued"), &json!(true)));
    response
}

#[tokio::test]
async fn a_background_turn_is_polled_from_queued_to_completed() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        for wire in WIRES {
            let gate = Gate::new();
            let reply = Script::text(&["All ", "is well."]).reply(wire, Delivery::Whole);
            world.upstream(wire).enqueue(reply.behind(&gate));
            let first = queued(&client, wire, "Hi").await;
            let running = standing(&client, id_of(&first), "in_progress").await;
            assert_eq!((&running["output"], &running["completed_at"]), (&json!([]), &Value::Null));
            gate.open();
            let completed = standing(&client, id_of(&first), "completed").await;
            assert_eq!(text_of(&completed), "All is well.", "{} {wire:?}", store.name);
            assert_eq!(check::response(&completed), Vec::<String>::new());
            assert_eq!((&completed["background"], &completed["usage"]["total_tokens"]), (&json!(true), &json!(18)));
            assert_eq!(world.upstream(wire).requests().len(), 1);
            // It can be continued, like any other response.
            let more = json!({"input": "more", "previous_response_id": first["id"]});
            world.whole(wire, &Script::text(&["x"]), &more).await;
            assert!(world.sent(wire).to_string().contains("All is well."));
        }
    }
}

#[tokio::test]
async fn a_background_turn_that_fails_says_why() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        let refusal = json!({"error": {"message": "no such thing", "type": "invalid_request_error"}});
        let failures = [
            (Delivery::Whole, Reply::status(400).with_json(refusal)),
            (Delivery::Stream, Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream).cut_after(2)),
            (Delivery::Whole, Reply::json(json!({"not": "a completion"}))),
        ];
        for (delivery, failure) in failures {
            world.upstream(Wire::Chat).enqueue(failure);
            let answer = client.post_json("/v1/responses", &background(Wire::Chat, delivery, "Hi")).await;
            assert_eq!(answer.status, 200, "{} {}", store.name, answer.text());
            let id = match delivery {
                Delivery::Whole => id_of(&answer.json()).to_owned(),
                Delivery::Stream => id_of(&last_response(&answer.json_events())).to_owned(),
            };
            let failed = standing(&client, &id, "failed").await;
            assert!(failed["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{failed}");
            assert!(failed["error"]["code"].as_str().is_some_and(|code| !code.is_empty()), "{failed}");
        }
    }
}

#[tokio::test]
async fn the_creator_of_a_streamed_background_turn_follows_it() {
    for (world, store) in worlds(Setup::new()).await {
        for wire in WIRES {
            world.upstream(wire).enqueue(Script::text(&["All ", "is ", "well."]).reply(wire, Delivery::Stream));
            let answer =
                world.amalgam.client().post_json("/v1/responses", &background(wire, Delivery::Stream, "Hi")).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(check::body(&answer.body), Vec::<String>::new(), "{}", answer.text());
            let events = answer.json_events();
            assert_eq!(types(&events)[..3], ["response.created", "response.queued", "response.in_progress"]);
            assert_eq!(types(&events).last(), Some(&"response.completed"));
            let last = last_response(&events);
            assert_eq!(text_of(&last), "All is well.", "{} {wire:?}", store.name);
            assert_eq!(retrieved(&world.amalgam.client(), id_of(&last)).await, last);
        }
    }
}

#[tokio::test]
async fn a_background_turn_goes_on_when_its_follower_leaves() {
    // Fault table: client leaves, background
    for (world, store) in worlds(Setup::new()).await {
        let gate = Gate::new();
        let reply = Script::text(&["a", "b", "c"]).reply(Wire::Chat, Delivery::Stream).hold_after(2, &gate);
        world.upstream(Wire::Chat).enqueue(reply);
        let request = background(Wire::Chat, Delivery::Stream, "Hi");
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        let delta = stream.next_of_type("response.output_text.delta").await;
        drop(stream);
        gate.open();
        let client = world.amalgam.client();
        let completed = ended(&client, id_of(&created)).await;
        assert_eq!(
            (text_of(&completed).as_str(), &completed["status"]),
            ("abc", &json!("completed")),
            "{}",
            store.name
        );
        let path = format!("/v1/responses/{}?stream=true&starting_after={}", id_of(&created), delta["sequence_number"]);
        let rest = sse::json_events(&client.get(&path).await.body);
        let deltas: Vec<&Value> = rest.iter().filter(|event| event["type"] == "response.output_text.delta").collect();
        assert_eq!(deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect::<String>(), "bc");
    }
}

#[tokio::test]
async fn cancelling_really_ends_the_upstreams_work() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        // Before the upstream has answered at all, and in the middle of what it says.
        for wire in WIRES {
            let talking = Script::text(&["a", "b", "c"]).reply(wire, Delivery::Stream).hang_after(3);
            for (index, (delivery, reply)) in
                [(Delivery::Whole, Reply::hang()), (Delivery::Stream, Reply::hang()), (Delivery::Stream, talking)]
                    .into_iter()
                    .enumerate()
            {
                world.upstream(wire).enqueue(reply);
                let mut stream = client.post_stream("/v1/responses", &background(wire, delivery, "Hi")).await;
                let id = match delivery {
                    Delivery::Whole => id_of(&stream.into_answer().await.json()).to_owned(),
                    Delivery::Stream => id_of(&stream.next_of_type("response.created").await["response"]).to_owned(),
                };
                world.upstream(wire).wait_for_requests(index + 1).await;
                if index == 2 {
                    standing(&client, &id, "in_progress").await;
                }
                let started = std::time::Instant::now();
                let cancelled = cancel(&client, &id).await;
                assert_eq!((cancelled.status.as_u16(), &cancelled.json()["status"]), (200, &json!("cancelled")));
                if index < 2 {
                    assert_eq!(cancelled.json()["output"], json!([]));
                }
                world.upstream(wire).wait_for_disconnect(index).await;
                assert!(started.elapsed() < SOON, "{} {wire:?} {:?}", store.name, started.elapsed());
                // Again and again, and nothing changes.
                for _ in 0..2 {
                    let again = cancel(&client, &id).await;
                    assert_eq!((again.status.as_u16(), again.text()), (200, cancelled.text()));
                }
                assert_eq!(retrieved(&client, &id).await, cancelled.json());
            }
        }
        // Its events say so too.
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let request = background(Wire::Chat, Delivery::Stream, "Hi");
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let id = id_of(&stream.next_of_type("response.created").await["response"]).to_owned();
        cancel(&client, &id).await;
        let told = stream.next_of_type("response.incomplete").await;
        assert_eq!(told["response"], retrieved(&client, &id).await, "{}", store.name);
        assert!(stream.rest().await.last().is_some_and(sse::SseEvent::is_done));
    }
}

#[tokio::test]
async fn what_ended_cannot_be_cancelled_any_more_and_what_runs_in_the_foreground_never() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole));
        let done = queued(&client, Wire::Chat, "Hi").await;
        let completed = standing(&client, id_of(&done), "completed").await;
        let answer = cancel(&client, id_of(&done)).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (200, completed), "{}", store.name);

        let gate = Gate::new();
        let reply = Script::text(&["a"]).reply(Wire::Chat, Delivery::Stream).hold_after(1, &gate);
        world.upstream(Wire::Chat).enqueue(reply);
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        assert_refused(&cancel(&client, id_of(&created)).await, 400, None, "response_not_cancellable");
        gate.open();
        stream.next_of_type("response.completed").await;
        assert_refused(&cancel(&client, id_of(&created)).await, 400, None, "response_not_cancellable");
    }
}

#[tokio::test]
async fn a_response_that_is_not_kept_cannot_be_made_in_the_background() {
    let world = World::start().await;
    for delivery in DELIVERIES {
        let request = json!({"input": "Hi", "background": true, "store": false});
        let refused = world.refused(&asking(Wire::Chat, delivery, &request)).await;
        assert_refused(&refused, 400, Some("background"), "unsupported_parameter");
    }
}

#[tokio::test]
async fn a_deleted_background_turn_stops() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(Reply::hang());
        let response = queued(&client, Wire::Chat, "Hi").await;
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        let path = format!("/v1/responses/{}", id_of(&response));
        let deleted = client.request(http::Method::DELETE, &path, &[], bytes::Bytes::new()).await;
        assert_eq!(deleted.status, 200, "{} {}", store.name, deleted.text());
        world.upstream(Wire::Chat).wait_for_disconnect(0).await;
        assert_eq!(client.get(&path).await.status, 404);
    }
}

#[tokio::test]
async fn more_background_turns_than_room_wait_and_all_run() {
    // P7: a queue in the store, not in memory.
    const TURNS: usize = 40;
    for (world, store) in worlds(Setup::new().extra("[limits]\nmax_in_flight = 2")).await {
        let client = world.amalgam.client();
        let gate = Gate::new();
        let reply = Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole);
        world.upstream(Wire::Chat).from_now_on(reply.behind(&gate));
        let mut waiting = Vec::new();
        for number in 0..TURNS {
            waiting.push(queued(&client, Wire::Chat, &format!("turn {number}")).await);
        }
        world.upstream(Wire::Chat).wait_for_requests(2).await;
        let statuses = async |wanted: &str| {
            let mut count = 0;
            for response in &waiting {
                count += usize::from(retrieved(&client, id_of(response)).await["status"] == wanted);
            }
            count
        };
        assert_eq!((statuses("in_progress").await, statuses("queued").await), (2, TURNS - 2), "{}", store.name);
        // There is no room for other requests, and they are refused.
        let busy =
            client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &json!({"input": "Hi"}))).await;
        assert_eq!(busy.status, 429, "{}", busy.text());
        gate.open();
        for response in &waiting {
            assert_eq!(ended(&client, id_of(response)).await["status"], "completed", "{}", store.name);
        }
        // Each once, in the order in which they came.
        let asked: Vec<String> = world
            .upstream(Wire::Chat)
            .requests()
            .iter()
            .map(|request| request.json()["messages"][0]["content"].as_str().unwrap().to_owned())
            .collect();
        let mut numbers: Vec<usize> =
            asked.iter().map(|text| text.trim_start_matches("turn ").parse().unwrap()).collect();
        // Turns that found no room after all are behind a few that came later.
        assert!(numbers.iter().enumerate().all(|(at, number)| at.abs_diff(*number) <= 8), "{numbers:?}");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..TURNS).collect::<Vec<_>>(), "{}", store.name);
    }
}

#[tokio::test]
async fn no_more_turns_wait_than_the_limits_say() {
    // P7: a queue in the store is bounded too.
    const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n\n";
    let limits = "[limits]\nmax_in_flight = 1\nmax_queued = 3\nmax_queued_total = 4";
    for (world, store) in worlds(Setup::new().extra(&format!("{TENANTS}{limits}"))).await {
        let caller = |key: &str| Client::new(world.amalgam.url()).with_key(key);
        let gate = Gate::new();
        let reply = Script::text(&["done"]).reply(Wire::Chat, Delivery::Whole);
        world.upstream(Wire::Chat).from_now_on(reply.behind(&gate));
        // One runs, which takes all the room.
        let mut taken = vec![queued(&caller("am_a"), Wire::Chat, "first").await];
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        standing(&caller("am_a"), id_of(&taken[0]), "in_progress").await;
        let refused = |answer: &HttpAnswer| {
            let code = (answer.status.as_u16(), error_of(answer)["code"].clone());
            assert_eq!(code, (429, json!("server_is_overloaded")), "{}", store.name);
            assert_eq!(answer.header("retry-after"), Some("5"), "{}", store.name);
        };
        // Of many at once no more than the limit are accepted; one after the other, all that fit.
        for attempts in [8, 1, 1, 1, 1] {
            let racing: Vec<_> = (0..attempts)
                .map(|_| {
                    let client = caller("am_a");
                    beside(async move {
                        client.post_json("/v1/responses", &background(Wire::Chat, Delivery::Whole, "more")).await
                    })
                })
                .collect();
            for racer in racing {
                let answer = racer.end().await;
                match answer.status.as_u16() {
                    200 => taken.push(answer.json()),
                    _ => refused(&answer),
                }
            }
        }
        assert_eq!(taken.len(), 1 + 3, "{}", store.name);
        // Another tenant has room of its own, until there is none in total.
        let other = queued(&caller("am_b"), Wire::Chat, "other").await;
        let more = background(Wire::Chat, Delivery::Stream, "more");
        refused(&caller("am_b").post_json("/v1/responses", &more).await);
        gate.open();
        for response in &taken {
            assert_eq!(ended(&caller("am_a"), id_of(response)).await["status"], "completed", "{}", store.name);
        }
        assert_eq!(ended(&caller("am_b"), id_of(&other)).await["status"], "completed", "{}", store.name);
        let later = queued(&caller("am_a"), Wire::Chat, "later").await;
        assert_eq!(ended(&caller("am_a"), id_of(&later)).await["status"], "completed", "{}", store.name);
    }
}

#[tokio::test]
async fn a_stream_that_waits_in_the_queue_gives_signs_of_life() {
    // S7
    for (world, store) in worlds(Setup::new().extra("[limits]\nmax_in_flight = 1\nkeepalive = \"100ms\"")).await {
        let client = world.amalgam.client();
        let gate = Gate::new();
        world.upstream(Wire::Chat).enqueue(Script::text(&["x"]).reply(Wire::Chat, Delivery::Whole).behind(&gate));
        queued(&client, Wire::Chat, "Hi").await;
        world.upstream(Wire::Chat).wait_for_requests(1).await;
        world.upstream(Wire::Chat).enqueue(Script::text(&["done"]).reply(Wire::Chat, Delivery::Stream));
        let mut stream = client.post_stream("/v1/responses", &background(Wire::Chat, Delivery::Stream, "Me too")).await;
        let mut events = Vec::new();
        while events.iter().filter(|event: &&Value| event["type"] == "keepalive").count() < 3 {
            events.push(stream.next_event().await.expect("the stream goes on").json());
        }
        assert_eq!(types(&events)[..2], ["response.created", "response.queued"], "{}", store.name);
        // Later events have the numbers after the last one, for every reader.
        for sign in &events[2..] {
            assert_eq!(*sign, json!({"type": "keepalive", "sequence_number": 1}), "{}", store.name);
        }
        gate.open();
        events.extend(stream.rest().await.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
        events.retain(|event| *event != json!({"type": "keepalive", "sequence_number": 1}));
        assert_eq!(check::stream(&events), Vec::<String>::new(), "{}", store.name);
        assert_eq!(text_of(&last_response(&events)), "done", "{}", store.name);
    }
}

#[tokio::test]
async fn a_stream_whose_response_is_deleted_says_so_and_ends() {
    for (world, store) in worlds(Setup::new()).await {
        let client = world.amalgam.client();
        let reply = || Script::text(&["a", "b"]).reply(Wire::Chat, Delivery::Stream);
        for (index, hanging) in [reply().hold_after(2, &Gate::new()), Reply::hang()].into_iter().enumerate() {
            world.upstream(Wire::Chat).enqueue(hanging);
            let request = background(Wire::Chat, Delivery::Stream, "Hi");
            let mut stream = client.post_stream("/v1/responses", &request).await;
            let mut events = vec![stream.next_event().await.expect("a first event").json()];
            let path = format!("/v1/responses/{}", id_of(&events[0]["response"]));
            let said = ["response.output_text.delta", "response.queued"][index];
            while !types(&events).contains(&said) {
                events.push(stream.next_event().await.expect("the stream goes on").json());
            }
            world.upstream(Wire::Chat).wait_for_requests(index + 1).await;
            let deleted = client.request(http::Method::DELETE, &path, &[], bytes::Bytes::new()).await;
            assert_eq!(deleted.status, 200, "{} {}", store.name, deleted.text());
            let rest = stream.rest().await;
            assert!(rest.last().is_some_and(sse::SseEvent::is_done), "{}: {rest:?}", store.name);
            events.extend(rest.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
            let numbers: Vec<u64> = events.iter().filter_map(|event| event["sequence_number"].as_u64()).collect();
            assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>(), "{}: {events:#?}", store.name);
            assert_eq!(types(&events).split_off(events.len() - 2), ["error", "response.failed"], "{}", store.name);
            assert_eq!(last_response(&events)["error"]["message"], "The response was deleted.", "{}", store.name);
        }
    }
}
