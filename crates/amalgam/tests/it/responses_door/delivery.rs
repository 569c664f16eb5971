//! How a stream travels: order, writes, pace, and many of them at once.

use std::collections::HashSet;

use amalgam_testkit::{check, sse};
use serde_json::Value;

use super::{GREETING, greeting, hello};
use crate::support::{
    Delivery, Script, WIRES, Wire, World, asking, assert_fine, checked_events, last_response, text_of, types,
};

#[tokio::test]
async fn every_event_of_a_text_comes_in_the_published_order() {
    // RAM-33 to RAM-39
    let world = World::start().await;
    for wire in WIRES {
        let events = world.streamed(wire, &Script::text(&["one ", "two ", "three"]), &hello()).await;
        // Frames that arrive together may leave together, but no delta is lost or joined.
        assert_eq!(
            types(&events),
            [
                "response.created",
                "response.in_progress",
                "response.output_item.added",
                "response.content_part.added",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_text.delta",
                "response.output_text.done",
                "response.content_part.done",
                "response.output_item.done",
                "response.completed",
            ],
            "{wire:?}"
        );
        let deltas: Vec<&Value> = events[4..7].iter().map(|event| &event["delta"]).collect();
        assert_eq!(deltas, ["one ", "two ", "three"], "{wire:?}");
    }
}

#[tokio::test]
async fn every_frame_leaves_in_one_write() {
    let world = World::start().await;
    for wire in WIRES {
        // The upstream splits inside characters and frames; what leaves must not.
        for size in [1, 7, 4096] {
            world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Stream).split(size));
            let request = asking(wire, Delivery::Stream, &hello());
            let writes = world.amalgam.client().post_chunks("/v1/responses", &request).await;
            sse::check_writes(&writes).unwrap_or_else(|problem| panic!("{wire:?}, pieces of {size}: {problem}"));
            let body = writes.concat();
            let problems = check::body(&body);
            assert!(problems.is_empty(), "{wire:?}, pieces of {size}: {problems:?}");
            assert!(body.ends_with(b"data: [DONE]\n\n"));
            let text = String::from_utf8(body).unwrap();
            assert!(!text.lines().any(|line| line.starts_with("id:") || line.starts_with(':')), "{text}");
            assert_eq!(text_of(&last_response(&sse::json_events(text.as_bytes()))), GREETING);
        }
    }
}

#[tokio::test]
async fn a_delta_leaves_before_the_next_one_arrives() {
    let world = World::start().await;
    for wire in WIRES {
        let gate = amalgam_testkit::Gate::new();
        let frames = match wire {
            Wire::Chat => 2,
            Wire::Responses => 5,
            Wire::Anthropic => 3,
        };
        let reply = Script::text(&["first", "second"]).reply(wire, Delivery::Stream).hold_after(frames, &gate);
        world.upstream(wire).enqueue(reply);
        let request = asking(wire, Delivery::Stream, &hello());
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let delta = stream.next_of_type("response.output_text.delta").await;
        assert_eq!(delta["delta"], "first", "{wire:?}: while the upstream holds back the rest");
        gate.open();
        let rest = stream.rest().await;
        assert!(rest.last().is_some_and(sse::SseEvent::is_done));
    }
}

#[tokio::test]
async fn an_upstream_that_answers_whole_to_a_streamed_request_is_still_streamed() {
    let world = World::start().await;
    for wire in WIRES {
        world.upstream(wire).enqueue(greeting().reply(wire, Delivery::Whole));
        let request = asking(wire, Delivery::Stream, &hello());
        let answer = world.amalgam.client().post_json("/v1/responses", &request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(text_of(&last_response(&checked_events(&answer))), GREETING, "{wire:?}");
    }
}

#[tokio::test]
async fn many_streams_at_once_do_not_mix() {
    let world = World::start().await;
    for number in 0..24 {
        let pieces: Vec<String> = (0..20).map(|piece| format!("<{number}:{piece}>")).collect();
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        world.upstream(Wire::Chat).enqueue(Script::text(&pieces).reply(Wire::Chat, Delivery::Stream).split(11));
    }
    let client = world.amalgam.client();
    let request = asking(Wire::Chat, Delivery::Stream, &hello());
    let asked = (0..24).map(|_| client.post_json("/v1/responses", &request));
    let answers = futures_util::future::join_all(asked).await;
    let mut texts = HashSet::new();
    for answer in &answers {
        assert_fine(check::body(&answer.body), answer);
        let text = text_of(&last_response(&answer.json_events()));
        let number = text.trim_start_matches('<').split(':').next().unwrap().to_owned();
        let expected: String = (0..20).map(|piece| format!("<{number}:{piece}>")).collect();
        assert_eq!(text, expected);
        texts.insert(text);
    }
    assert_eq!(texts.len(), 24, "every stream has its own text");
}
