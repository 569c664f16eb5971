//! Streams that stall, break off or turn into something else after they have begun.

use std::time::{Duration, Instant};

use amalgam_testkit::{Gate, Reply, Setup, sse};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{ask, assert_healthy, fine, hello, told};
use crate::support::{
    Delivery, SOON, Script, WIRES, Wire, World, asking, checked_events, last_response, text_of, types,
};

/// Frames of a scripted text up to and with its first delta.
fn frames_before_second_delta(wire: Wire) -> usize {
    match wire {
        Wire::Chat => 2,
        Wire::Responses => 5,
        Wire::Anthropic => 3,
    }
}

/// The last two events of a stream that failed, and the response in it.
fn assert_failed(events: &[Value], what: &str) -> Value {
    let kinds = types(events);
    assert!(kinds.ends_with(&["error", "response.failed"]), "{what}: {kinds:?}");
    let error = &events[events.len() - 2];
    let response = last_response(events);
    // Nested for the specification, flat for the SDKs, and the same in the response.
    for key in ["code", "message", "param"] {
        assert_eq!(error[key], error["error"][key], "{what}: {error}");
        assert_eq!(response["error"][key], error[key], "{what}");
    }
    assert_eq!(response["status"], "failed", "{what}");
    assert_eq!(response["output"], json!([]), "RAM-40 {what}");
    assert_eq!(response["usage"], Value::Null, "RAM-40 {what}");
    assert!(!kinds.contains(&"response.completed"), "P5 {what}");
    response
}

#[tokio::test]
async fn a_stall_inside_a_stream_fails_within_the_idle_timeout() {
    let world = World::with(Setup::new(), &[("idle_timeout", "\"300ms\"")]).await;
    for wire in WIRES {
        let reply = fine().reply(wire, Delivery::Stream).hang_after(frames_before_second_delta(wire));
        let index = world.upstream(wire).requests().len();
        world.upstream(wire).enqueue(reply);
        let started = Instant::now();
        let answer = ask(&world, wire, Delivery::Stream).await;
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        let events = checked_events(&answer);
        let response = assert_failed(&events, "stall");
        assert_eq!(response["error"]["code"], "upstream_timeout", "{wire:?}");
        assert_eq!(world.upstream(wire).requests().len(), index + 1, "no further try after the first token");
        world.upstream(wire).wait_for_disconnect(index).await;
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_stream_that_is_cut_is_failed_and_never_completed() {
    // P5
    let world = World::start().await;
    for wire in WIRES {
        let whole = || fine().reply(wire, Delivery::Stream);
        let first = frames_before_second_delta(wire);
        let cases = [
            ("cut", whole().cut_after(first)),
            ("reset", whole().reset_after(first)),
            ("cut inside a frame", whole().split(100).cut_after(first)),
            ("cut at once", whole().cut_after(0)),
            ("cut after the first frame", whole().cut_after(1)),
        ];
        for (what, reply) in cases {
            let before = world.upstream(wire).requests().len();
            world.upstream(wire).enqueue(reply);
            let answer = ask(&world, wire, Delivery::Stream).await;
            assert_eq!(answer.status, 200, "{wire:?} {what}: {}", answer.text());
            assert_failed(&checked_events(&answer), what);
            assert_eq!(world.upstream(wire).requests().len(), before + 1, "{wire:?} {what}: no repeated text");
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn a_stream_that_ends_before_its_end_is_failed() {
    // P5: a proper end of the body, but none of the answer
    let world = World::start().await;
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "All"}, "finish_reason": null}]});
    let created = json!({"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "output": []}});
    let start = json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "All"}});
    let cases = [
        (Wire::Chat, Reply::sse::<Option<&str>>([(None, chunk)])),
        (Wire::Chat, Reply::stream()),
        (Wire::Responses, Reply::sse_typed([created])),
        (Wire::Responses, Reply::stream().done()),
        (Wire::Anthropic, Reply::sse_typed([start, block, delta])),
        (Wire::Anthropic, Reply::stream()),
    ];
    for (wire, reply) in cases {
        world.upstream(wire).enqueue(reply.clone());
        let answer = ask(&world, wire, Delivery::Stream).await;
        assert_failed(&checked_events(&answer), &format!("{wire:?} {reply:?}"));
    }
}

#[tokio::test]
async fn a_stream_of_something_else_is_told_as_a_failure() {
    let world = World::with(Setup::new(), &[("retries", "0"), ("idle_timeout", "\"2s\"")]).await;
    let replies = [
        ("bad JSON", Reply::stream().frame(None, "{\"choices\":[{]")),
        ("not JSON at all", Reply::stream().frame(None, "hello")),
        ("HTML", Reply::html(200, "Welcome")),
        ("HTML as a stream", Reply::stream().send("<!DOCTYPE html><html><body>502</body></html>")),
        ("plain text", Reply::bytes("text/plain", "internal error")),
        ("an empty stream", Reply::stream()),
        ("comments only", Reply::stream().comment("ping").comment("ping")),
        ("invalid UTF-8", Reply::invalid_utf8()),
        ("a huge line", Reply::huge_line(6 * 1024 * 1024)),
        ("bad JSON body", Reply::bytes("application/json", "{")),
        ("compressed", Reply::stream().header("content-encoding", "br").send("xx")),
        ("deep JSON", Reply::stream().frame(None, &"[".repeat(100_000))),
    ];
    for wire in WIRES {
        let turned = [
            ("bad JSON after a good beginning", begun_then(wire, None, &json!("no object"))),
            ("HTML after a good beginning", begun_then(wire, None, &json!({})).send("<html></html>")),
        ];
        for (what, reply) in replies.iter().cloned().chain(turned) {
            world.upstream(wire).enqueue(reply);
            let started = Instant::now();
            let answer = ask(&world, wire, Delivery::Stream).await;
            assert!(started.elapsed() < SOON, "{wire:?} {what}: {:?}", started.elapsed());
            match answer.status.as_u16() {
                // RAM-41: what is known before the first byte is a plain error.
                502 => drop(told(&answer)),
                200 => drop(assert_failed(&checked_events(&answer), what)),
                status => panic!("{wire:?} {what}: {status} {}", answer.text()),
            }
            world.upstream(wire).enqueue(fine().reply(wire, Delivery::Stream));
            let next = ask(&world, wire, Delivery::Stream).await;
            let text = text_of(&last_response(&checked_events(&next)));
            assert_eq!(text, "All is well.", "{wire:?} after {what}");
        }
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn an_error_inside_a_stream_is_told_as_one() {
    let world = World::start().await;
    let cases = [
        (Wire::Chat, None, json!({"error": {"message": "Overloaded", "type": "server_error", "code": "overloaded"}})),
        (
            Wire::Responses,
            Some("error"),
            json!({"type": "error", "code": "server_error", "message": "Overloaded", "param": null}),
        ),
        (
            Wire::Anthropic,
            Some("error"),
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        ),
    ];
    for (wire, event, error) in cases {
        let reply = begun_then(wire, event, &error);
        world.upstream(wire).enqueue(reply);
        let answer = ask(&world, wire, Delivery::Stream).await;
        assert_failed(&checked_events(&answer), &format!("{wire:?}"));
        assert_eq!(world.upstream(wire).requests().len(), 1, "no further try");
    }
}

/// The beginning of a text, then this event.
pub(super) fn begun_then(wire: Wire, event: Option<&str>, value: &Value) -> Reply {
    let beginning: Vec<Value> = match wire {
        Wire::Chat => vec![
            json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "All"}, "finish_reason": null}]}),
        ],
        Wire::Responses => vec![
            json!({"type": "response.created", "response": {"id": "r", "object": "response", "status": "in_progress", "output": []}}),
            json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []}}),
            json!({"type": "response.content_part.added", "item_id": "m", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "", "annotations": []}}),
            json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "All"}),
        ],
        Wire::Anthropic => vec![
            json!({"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "All"}}),
        ],
    };
    let begun = match wire {
        Wire::Chat => beginning.iter().fold(Reply::stream(), |reply, value| reply.frame(None, &value.to_string())),
        _ => Reply::sse_typed(beginning),
    };
    begun.frame(event, &value.to_string())
}

#[tokio::test]
async fn a_turn_past_its_deadline_ends() {
    let world = World::with(Setup::new().extra("[limits]\nturn_deadline = \"500ms\""), &[]).await;
    for wire in WIRES {
        // Whole, or streamed without a first byte: a plain error.
        for delivery in crate::support::DELIVERIES {
            let index = world.upstream(wire).requests().len();
            world.upstream(wire).enqueue(Reply::hang());
            let started = Instant::now();
            let answer = ask(&world, wire, delivery).await;
            assert_eq!(told(&answer), (504, "request_timeout".to_owned()), "RAM-44 {wire:?} {delivery:?}");
            assert!(started.elapsed() < SOON);
            world.upstream(wire).wait_for_disconnect(index).await;
        }
        // Streamed and begun.
        let index = world.upstream(wire).requests().len();
        let reply = fine().reply(wire, Delivery::Stream).hang_after(frames_before_second_delta(wire));
        world.upstream(wire).enqueue(reply);
        let answer = ask(&world, wire, Delivery::Stream).await;
        let response = assert_failed(&checked_events(&answer), "deadline");
        assert_eq!(response["error"]["code"], "request_timeout", "RAM-40 {wire:?}");
        world.upstream(wire).wait_for_disconnect(index).await;
    }
    assert_healthy(&world.amalgam).await;
}

#[tokio::test]
async fn output_without_end_stops_at_the_deadline() {
    // Fault table: endless output. The upstream is never silent, so that only the clock can end it.
    let world = World::with(Setup::new().extra("[limits]\nturn_deadline = \"500ms\""), &[]).await;
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"content": "and on "}, "finish_reason": null}]});
    let piece = Bytes::from(format!("data: {chunk}\n\n").repeat(4));
    let pause = Duration::from_millis(2);
    let reply = (0..3000).fold(Reply::stream(), |reply, _| reply.send(piece.clone()).stall(pause));
    world.upstream(Wire::Chat).enqueue(reply);
    let started = Instant::now();
    let answer = ask(&world, Wire::Chat, Delivery::Stream).await;
    let took = started.elapsed();
    let events = sse::json_events(&answer.body);
    let response = assert_failed(&events, "endless");
    assert_eq!(response["error"]["code"], "request_timeout");
    assert!(took < SOON, "{took:?}");
    world.upstream(Wire::Chat).wait_for_disconnect(0).await;
}

#[tokio::test]
async fn silence_is_filled_with_signs_of_life_that_count_as_events() {
    // S7
    let world = World::with(Setup::new().extra("[limits]\nkeepalive = \"100ms\""), &[]).await;
    for wire in WIRES {
        let gate = Gate::new();
        let reply = fine().reply(wire, Delivery::Stream).hold_after(frames_before_second_delta(wire), &gate);
        world.upstream(wire).enqueue(reply);
        let request = asking(wire, Delivery::Stream, &hello());
        let mut stream = world.amalgam.client().post_stream("/v1/responses", &request).await;
        let mut events = Vec::new();
        while events.iter().filter(|event: &&Value| event["type"] == "keepalive").count() < 3 {
            events.push(stream.next_event().await.expect("the stream goes on").json());
        }
        gate.open();
        events.extend(stream.rest().await.iter().filter(|event| !event.is_done()).map(sse::SseEvent::json));
        let problems = amalgam_testkit::check::stream(&events);
        assert!(problems.is_empty(), "{wire:?}: {problems:?}");
        assert_eq!(text_of(&last_response(&events)), "All is well.", "{wire:?}");
        let keepalive = events.iter().find(|event| event["type"] == "keepalive").unwrap();
        assert!(keepalive["sequence_number"].is_u64(), "{keepalive}");
    }
}

#[tokio::test]
async fn a_lively_stream_has_no_signs_of_life() {
    let world = World::start().await;
    for wire in WIRES {
        let events = world.streamed(wire, &Script::text(&["a", "b", "c"]), &hello()).await;
        assert!(!types(&events).contains(&"keepalive"), "before ten seconds of silence nothing is sent");
    }
}

#[tokio::test]
async fn odd_framing_of_an_upstream_is_understood() {
    let world = World::start().await;
    for wire in WIRES {
        let reply = || fine().reply(wire, Delivery::Stream);
        let cases = [
            ("CRLF", reply().crlf()),
            ("no final newline", reply().without_final_newline()),
            ("one byte at a time", reply().split(1)),
            ("ended by closing", reply().until_close()),
            ("comments between", with_comments(wire)),
            ("an odd content type", reply().header("content-type", "text/plain; charset=utf-8")),
        ];
        for (what, reply) in cases {
            world.upstream(wire).enqueue(reply);
            let answer = ask(&world, wire, Delivery::Stream).await;
            let response = last_response(&checked_events(&answer));
            assert_eq!(text_of(&response), "All is well.", "{wire:?} {what}");
            assert_eq!(response["status"], "completed", "{wire:?} {what}");
        }
    }
}

/// Comments around every frame, as proxies send them while a model loads.
fn with_comments(wire: Wire) -> Reply {
    let reply = fine().frames(wire).iter().fold(Reply::stream().comment("loading"), |reply, value| {
        let event = value["type"].as_str().filter(|_| wire != Wire::Chat);
        reply.frame(event, &value.to_string()).comment("ping")
    });
    if wire == Wire::Chat { reply.done() } else { reply }
}
