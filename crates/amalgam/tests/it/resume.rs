//! Streams that are picked up on another connection, with no event lost and none doubled. P6

use std::time::Duration;

use amalgam_testkit::{Amalgam, Client, Gate, Reply, Setup, check, sse};
use serde_json::{Value, json};

use crate::support::{
    Delivery, Said, Script, WIRES, Wire, World, asking, assert_refused, cancel, ended, id_of, last_response, retrieved,
    shared_store, stores, types,
};

/// A text in this many pieces.
fn pieces(count: usize) -> Script {
    Script::new([Said::Text((0..count).map(|number| format!("{number} ")).collect())])
}

/// The text, said with a pause before every piece.
fn slowly(count: usize) -> Reply {
    let frames = pieces(count).frames(Wire::Chat).len();
    let reply = pieces(count).reply(Wire::Chat, Delivery::Stream);
    (1..frames).rev().fold(reply, |reply, frame| reply.stall_after(frame, Duration::from_millis(15)))
}

/// The frames of a stream, as they were sent.
fn frames(body: &[u8]) -> Vec<&[u8]> {
    let mut frames = Vec::new();
    let mut rest = body;
    while let Some(end) = rest.windows(2).position(|pair| pair == b"\n\n") {
        let (frame, behind) = rest.split_at(end + 2);
        frames.push(frame);
        rest = behind;
    }
    assert!(rest.is_empty(), "the stream ends inside a frame");
    frames
}

fn path(id: &str, after: Option<u64>) -> String {
    let after = after.map(|after| format!("&starting_after={after}")).unwrap_or_default();
    format!("/v1/responses/{id}?stream=true{after}")
}

async fn tail(client: &Client, id: &str, after: Option<u64>) -> Vec<u8> {
    let answer = client.get(&path(id, after)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    answer.body.to_vec()
}

#[tokio::test]
async fn a_stream_that_has_ended_is_told_again_from_any_event_on() {
    let said = Script::new([
        Said::reasoning(&["Hm", "."]),
        Said::text(&["It ", "is \"31\" °C\n\n", "💥"]),
        Said::call("call_1", "f", &["{\"a\": ", "1}"]),
    ]);
    let tool = json!({"type": "function", "name": "f", "parameters": {"type": "object"}});
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        for (wire, script) in
            WIRES.map(|wire| (wire, said.clone())).into_iter().chain([(Wire::Chat, said.clone().cut_by_length())])
        {
            let request = json!({"input": "Hi", "tools": [tool]});
            let original = world.ask(wire, Delivery::Stream, &script, &request).await.body;
            let original = frames(&original);
            let events = original.len() - 1;
            let id = id_of(&last_response(&sse::json_events(&original.concat()))).to_owned();
            let client = world.amalgam.client();
            assert_eq!(tail(&client, &id, None).await, original.concat(), "{} {wire:?}", store.name);
            for seen in 0..events {
                let rest = tail(&client, &id, Some(seen as u64)).await;
                assert_eq!(rest, original[seen + 1..].concat(), "{} {wire:?} after {seen}", store.name);
            }
            // A reader that has seen everything gets the end of the stream.
            for beyond in [events as u64, 1 << 40, i64::MAX as u64] {
                assert_eq!(
                    tail(&client, &id, Some(beyond)).await,
                    b"data: [DONE]\n\n",
                    "{} after {beyond}",
                    store.name
                );
            }
        }
    }
}

/// Follows a response over connections that each break after a few events; the servers take turns.
async fn in_pieces(servers: &[&Amalgam], first: &Value, per_connection: usize) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    let mut turn = 0;
    loop {
        let after = events.last().map(|event| event["sequence_number"].as_u64().expect("events are numbered"));
        let client = servers[turn % servers.len()].client();
        let opened = client.try_stream(http::Method::GET, &path(id_of(first), after), &[], bytes::Bytes::new()).await;
        let mut stream = opened.expect("the server is there");
        assert_eq!(stream.status, 200);
        for _ in 0..per_connection {
            let event = stream.next_event().await.expect("a stream ends with [DONE]");
            if event.is_done() {
                return events;
            }
            events.push(event.json());
        }
        turn += 1;
        assert!(turn < 200, "a stream of {} events has no end", events.len());
    }
}

#[tokio::test]
async fn a_running_background_stream_is_cut_and_picked_up_again_and_again() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        for per_connection in [1, 2, 5] {
            world.upstream(Wire::Chat).enqueue(slowly(20));
            let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi", "background": true}));
            let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
            let created = stream.next_of_type("response.created").await["response"].clone();
            drop(stream);
            let events = in_pieces(&[&world.amalgam], &created, per_connection).await;
            assert_eq!(check::stream(&events), Vec::<String>::new(), "{}", store.name);
            let whole = tail(&world.amalgam.client(), id_of(&created), None).await;
            assert_eq!(events, sse::json_events(&whole), "{} by {per_connection}", store.name);
            assert_eq!(last_response(&events), retrieved(&world.amalgam.client(), id_of(&created)).await);
        }
    }
}

#[tokio::test]
async fn a_running_stream_is_picked_up_through_another_process() {
    let Some(store) = shared_store() else { return };
    let world = World::with(store.setup(Setup::new()), &[]).await;
    let (second, third) = (world.another().await, world.another().await);
    for (key, value) in [("background", json!(true)), ("metadata", json!({}))] {
        world.upstream(Wire::Chat).enqueue(slowly(30));
        let mut request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        request[key] = value;
        // A foreground turn lives on its caller's connection, so that its caller stays.
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let created = stream.next_of_type("response.created").await["response"].clone();
        let servers = [&second, &third, &world.amalgam];
        let (events, own) = tokio::join!(in_pieces(&servers, &created, 3), stream.rest());
        assert_eq!(check::stream(&events), Vec::<String>::new());
        let own: Vec<Value> = own.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json).collect();
        assert_eq!(events[1..], own);
        assert_eq!(types(&events).last(), Some(&"response.completed"));
    }
}

#[tokio::test]
async fn a_stream_that_failed_or_was_cancelled_is_told_to_its_end() {
    // P5
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        world.upstream(Wire::Chat).enqueue(pieces(5).reply(Wire::Chat, Delivery::Stream).cut_after(4));
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi"}));
        let original = client.post_json("/v1/responses", &request).await.body;
        let original = frames(&original);
        let failed = last_response(&sse::json_events(&original.concat()));
        assert_eq!(failed["status"], "failed");
        // Up to the last event of the model; what follows is sent once more on request.
        for seen in 0..original.len() - 3 {
            let rest = tail(&client, id_of(&failed), Some(seen as u64)).await;
            assert_eq!(rest, original[seen + 1..].concat(), "{} after {seen}", store.name);
        }

        let gate = Gate::new();
        let held = pieces(5).reply(Wire::Chat, Delivery::Stream).hold_after(3, &gate);
        world.upstream(Wire::Chat).enqueue(held);
        let request = asking(Wire::Chat, Delivery::Stream, &json!({"input": "Hi", "background": true}));
        let mut stream = client.post_stream("/v1/responses", &request).await;
        let mut events = vec![stream.next_of_type("response.created").await];
        let id = id_of(&events[0]["response"]).to_owned();
        while types(&events).last() != Some(&"response.output_text.delta") {
            events.push(stream.next_event().await.expect("the model speaks").json());
        }
        cancel(&client, &id).await;
        let rest: Vec<Value> =
            stream.rest().await.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json).collect();
        events.extend(rest);
        let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>(), "{}", store.name);
        assert_eq!(types(&events).last(), Some(&"response.incomplete"));
        assert_eq!(last_response(&events), ended(&client, &id).await);
    }
}

#[tokio::test]
async fn what_has_no_events_says_so() {
    for store in stores() {
        let world = World::with(store.setup(Setup::new()), &[]).await;
        let client = world.amalgam.client();
        let whole = world.whole(Wire::Chat, &pieces(2), &json!({"input": "Hi"})).await;
        assert_refused(&client.get(&path(id_of(&whole), None)).await, 400, Some("stream"), "stream_not_available");
        let missing = client.get(&path("resp_AM-1760000000000-aaaaaaaaaaaaaaaaaaaaaaaa", Some(1))).await;
        assert_refused(&missing, 404, None, "not_found");

        let streamed = last_response(&world.streamed(Wire::Chat, &pieces(2), &json!({"input": "Hi"})).await);
        let stranger = client.clone().with_header("x-amalgam-user", "stranger");
        assert_refused(&stranger.get(&path(id_of(&streamed), None)).await, 404, None, "not_found");
        for wrong in ["-1", "x", "1.5", "99999999999999999999999"] {
            let answer = client.get(&format!("{}&starting_after={wrong}", path(id_of(&streamed), None))).await;
            assert_refused(&answer, 400, Some("starting_after"), "invalid_value");
        }
        assert_eq!(tail(&client, id_of(&streamed), Some(u64::MAX)).await, b"data: [DONE]\n\n", "{}", store.name);
    }
}
