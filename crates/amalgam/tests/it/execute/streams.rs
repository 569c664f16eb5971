//! Turns that are streamed, and streams that break off and are resumed.

#![expect(clippy::panic, reason = "the helpers of a test fail by panicking, as the test does")]

use amalgam_testkit::{Gate, HttpAnswer, Reply, check};
use serde_json::{Value, json};

use super::desk::{
    Desk, EXECUTE, KEY, assert_envelope, both, execute, execute_with, open, refusal, results, standing, status, taken,
    turn,
};
use crate::support::{Delivery, Event, Events, FINAL, Script, WIRES, Wire, beside, eventually, stores};

const SSE: (&str, &str) = ("accept", "text/event-stream");
const LINES: (&str, &str) = ("accept", "application/x-ndjson");

fn streaming(body: &Value) -> Value {
    let mut body = body.clone();
    body["Streaming"] = json!(true);
    body
}

/// What a stream contained.
struct Told {
    /// The events of the Responses API.
    events: Vec<Value>,
    /// The envelope at its end.
    result: Value,
}

/// Reads a stream that came to its end, and fails unless it keeps every rule.
fn read(answer: &HttpAnswer, session: &str, turn_id: &str) -> Told {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let objects: Vec<Value> = match answer.header("content-type") {
        Some(kind) if kind.starts_with("text/event-stream") => {
            answer.text().split_terminator("\n\n").filter_map(Event::read).map(frame).collect()
        }
        Some(kind) if kind.starts_with("application/x-ndjson") => answer.text().lines().map(line).collect(),
        other => panic!("{other:?}: {}", answer.text()),
    };
    checked(objects, session, turn_id)
}

/// A frame as the object that a line of the other form would be.
fn frame(event: Event) -> Value {
    let Event { name, id, mut data } = event;
    assert_eq!(data["Index"], id, "{data}");
    data["Type"] = json!(name);
    data
}

fn line(text: &str) -> Value {
    assert!(text.starts_with("{\"Type\":"), "the type comes first: {text}");
    serde_json::from_str(text).expect("a line is JSON")
}

fn checked(mut objects: Vec<Value>, session: &str, turn_id: &str) -> Told {
    let indices: Vec<u64> = objects.iter().filter_map(|object| object["Index"].as_u64()).collect();
    assert!(indices.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{indices:?}");
    assert_eq!(indices.len(), objects.len());
    for object in &objects {
        assert_eq!((&object["SessionId"], &object["TurnId"]), (&json!(session), &json!(turn_id)), "{object}");
    }
    let mut last = objects.pop().expect("a stream has an end");
    assert_eq!((&last["Type"], &last["Final"]), (&json!("turn.result"), &json!(true)), "{last}");
    let result = last["Result"].take();
    assert_envelope(&result);
    let events: Vec<Value> = objects
        .into_iter()
        .map(|mut object| {
            let event = object["Event"].take();
            assert_eq!((&object["Type"], object.get("Final")), (&event["type"], None), "{object}");
            event
        })
        .collect();
    Told { events, result }
}

#[tokio::test]
async fn a_streamed_turn_lives_while_the_upstream_is_silent() {
    // right A2, right C9
    for store in stores() {
        let desk = Desk::on(&store).await;
        let client = desk.user("ana");
        let session = open(&client, Wire::Chat).await;
        let gate = Gate::new();
        desk.replies(Wire::Chat, Script::text(&["I ", "am."]).reply(Wire::Chat, Delivery::Stream).behind(&gate));
        let events = begin(&desk, &[SSE], &streaming(&turn(&session, "t1", "Are you there?"))).await;
        assert!(events.header("amalgam-response-id").is_some_and(|id| id.starts_with("resp_AM-")));
        gate.open();
        let names: Vec<String> = events.rest().await.into_iter().map(|event| event.name).collect();
        assert_eq!(names[..2], ["response.created", "response.in_progress"], "{}", store.name);
        assert!(names.ends_with(&["response.completed".to_owned(), "turn.result".to_owned()]), "{names:?}");
        // What fails behind the head is in the envelope at the end.
        let gate = Gate::new();
        desk.replies(Wire::Chat, Reply::status(400).behind(&gate));
        let events = begin(&desk, &[SSE], &streaming(&turn(&session, "t2", "And now?"))).await;
        gate.open();
        let told = checked(events.rest().await.into_iter().map(frame).collect(), &session, "t2");
        let kinds: Vec<&str> = told.events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["response.created", "response.in_progress", "error", "response.failed"], "{}", store.name);
        assert_eq!(told.result["Kind"], "error", "{}", told.result);
        // Whole answers name their response too.
        desk.says(Wire::Chat, [Script::text(&["Yes."])]);
        let whole = execute(&client, &turn(&session, "t3", "Whole")).await;
        assert!(whole.header("amalgam-response-id").is_some_and(|id| id.starts_with("resp_AM-")), "{}", whole.text());
    }
}

#[tokio::test]
async fn a_streamed_turn_tells_responses_events_and_ends_with_the_whole_envelope() {
    // R004-33, R034-13
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            desk.says(wire, [Script::text(&["One ", "two ", "three."])]);
            let body = turn(&id, "t1", "Count");
            let streamed = read(&execute(&ana, &streaming(&body)).await, &id, "t1");
            assert_eq!(check::stream(&streamed.events), Vec::<String>::new(), "{wire:?}");
            let deltas = streamed.events.iter().filter(|event| event["type"] == "response.output_text.delta");
            let text: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
            assert_eq!((text.as_str(), &streamed.result["Text"]), ("One two three.", &json!("One two three.")));
            // The delivery is not part of the submission: without a stream it is the same.
            let whole = execute(&ana, &body).await;
            assert_eq!(
                (whole.header("idempotent-replayed"), whole.json()),
                (Some("true"), streamed.result),
                "{wire:?}"
            );
            desk.assert_asked(wire, 1, store.name);
        }
    }
}

#[tokio::test]
async fn lines_tell_the_same_as_events() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let scripts = || [Script::text(&["One ", "two."])];
            let mut told = Vec::new();
            for accept in [SSE, LINES] {
                let id = open(&ana, wire).await;
                desk.says(wire, scripts());
                let answer = execute_with(&ana, accept, &streaming(&turn(&id, "t1", "Count"))).await;
                assert_eq!(answer.header("content-type").map(|kind| kind.starts_with(accept.1)), Some(true));
                told.push(read(&answer, &id, "t1"));
            }
            let kinds = |told: &Told| told.events.iter().map(|event| event["type"].clone()).collect::<Vec<_>>();
            assert_eq!(kinds(&told[0]), kinds(&told[1]), "{wire:?}");
            assert_eq!(told[0].result["Text"], told[1].result["Text"], "{wire:?}");
        }
    }
}

#[tokio::test]
async fn a_continuation_is_delivered_as_its_accept_header_says() {
    // C-29
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            for (number, accept) in
                [SSE, LINES, ("accept", "application/json"), ("accept", "*/*")].into_iter().enumerate()
            {
                let id = open(&ana, wire).await;
                desk.says(wire, [both(), Script::text(&["All ", "fine."])]);
                let waiting = read(&execute(&ana, &streaming(&turn(&id, "t1", "Check"))).await, &id, "t1");
                assert_eq!(waiting.result["Kind"], "tool-only");
                let body = results(&id, "t1", &[("call_a", "1"), ("call_b", "2")]);
                let answer = execute_with(&ana, accept, &body).await;
                let result = match number {
                    0 | 1 => read(&answer, &id, "t1").result,
                    _ => answer.json(),
                };
                assert_eq!(result["Text"], "All fine.", "{wire:?} {accept:?}");
                assert_eq!(standing(&ana, &id, "t1").await["Result"], result, "{wire:?} {accept:?}");
            }
        }
    }
}

/// Begins a stream as Ana.
async fn begin(desk: &Desk, more: &[(&str, &str)], body: &Value) -> Events {
    let key = format!("Bearer {KEY}");
    let mut headers = vec![("authorization", &*key), ("x-amalgam-user", "ana"), ("content-type", "application/json")];
    headers.extend(more);
    let events = Events::open(&desk.user("ana"), "POST", EXECUTE, &headers, &body.to_string()).await;
    assert!(events.head.starts_with("HTTP/1.1 200"), "{}", events.head);
    events
}

/// Everything up to the first word.
async fn to_a_word(events: &mut Events) -> Vec<Value> {
    let mut objects = Vec::new();
    while objects.last().is_none_or(|object: &Value| object["Type"] != "response.output_text.delta") {
        objects.push(frame(events.next().await.expect("the model speaks")));
    }
    objects
}

#[tokio::test]
async fn a_dropped_stream_is_followed_from_its_beginning_while_the_turn_goes_on() {
    // R034-13, C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            let id = open(&ana, wire).await;
            let gate = Gate::new();
            desk.says_behind(wire, Script::text(&["One ", "two ", "three."]), &gate);
            let body = streaming(&turn(&id, "t1", "Count"));
            let mut first = begin(&desk, &[], &body).await;
            to_a_word(&mut first).await;
            drop(first);
            assert_eq!(status(&ana, &id, "t1").await.0, "running", "{wire:?}");

            let mut second = begin(&desk, &[], &body).await;
            let mut objects = to_a_word(&mut second).await;
            gate.open();
            objects.extend(second.rest().await.into_iter().map(frame));
            let told = checked(objects, &id, "t1");
            assert_eq!(check::stream(&told.events), Vec::<String>::new(), "{wire:?}");
            assert_eq!(told.result["Text"], "One two three.", "{wire:?}");
            assert_eq!(standing(&ana, &id, "t1").await["Result"], told.result);
            desk.assert_asked(wire, 1, store.name);
        }
    }
}

#[tokio::test]
async fn a_caller_that_names_the_last_event_gets_the_events_after_it() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Responses).await;
        let gate = Gate::new();
        desk.says_behind(Wire::Responses, Script::text(&["One ", "two."]), &gate);
        let body = streaming(&turn(&id, "t1", "Count"));
        let mut first = begin(&desk, &[], &body).await;
        let mut seen = to_a_word(&mut first).await;
        drop(first);
        let last = seen.last().expect("something was told")["Index"].to_string();
        let second = begin(&desk, &[("last-event-id", &last)], &body).await;
        gate.open();
        seen.extend(second.rest().await.into_iter().map(frame));
        let told = checked(seen, &id, "t1");
        assert_eq!(check::stream(&told.events), Vec::<String>::new(), "{}", store.name);
        assert_eq!(told.result["Text"], "One two.");
        desk.assert_asked(Wire::Responses, 1, store.name);
    }
}

#[tokio::test]
async fn a_turn_goes_on_when_its_caller_leaves() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            for streams in [false, true] {
                let id = open(&ana, wire).await;
                let (gate, asked) = (Gate::new(), desk.asked(wire).len());
                desk.says_behind(wire, Script::text(&["Still ", "here."]), &gate);
                let mut body = turn(&id, "t1", "Hello");
                if streams {
                    body = streaming(&body);
                }
                let (client, sent) = (ana.clone(), body.clone());
                let caller = beside(async move { execute(&client, &sent).await });
                desk.world.upstream(wire).wait_for_requests(asked + 1).await;
                caller.leave().await;
                gate.open();
                let turn = eventually("the end of the turn", FINAL, async || {
                    let turn = standing(&ana, &id, "t1").await;
                    (turn["Status"] != "running").then_some(turn)
                })
                .await;
                assert_eq!(
                    (&turn["Status"], &turn["Result"]["Text"]),
                    (&json!("completed"), &json!("Still here.")),
                    "{wire:?}"
                );
                assert_eq!(taken(&ana, &super::desk::turn(&id, "t1", "Hello")).await, turn["Result"]);
                desk.assert_asked(wire, asked + 1, store.name);
            }
        }
    }
}

#[tokio::test]
async fn the_same_turn_at_once_is_one_turn_and_another_one_has_to_wait() {
    // C-11
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        let gate = Gate::new();
        desk.says_behind(Wire::Chat, Script::text(&["Only ", "once."]), &gate);
        let body = turn(&id, "t1", "Hello");
        let callers: Vec<_> = (0..6)
            .map(|number| {
                let (client, body) = (ana.clone(), if number % 2 == 0 { body.clone() } else { streaming(&body) });
                beside(async move { execute(&client, &body).await })
            })
            .collect();
        desk.world.upstream(Wire::Chat).wait_for_requests(1).await;
        let busy = execute(&ana, &turn(&id, "t2", "Me too")).await;
        let (found, code, _) = refusal(&busy);
        assert_eq!((found, code.as_str()), (409, "session_busy"), "{}", busy.text());
        assert!(busy.header("retry-after").is_some_and(|seconds| seconds.parse::<u32>().is_ok()));
        // A different body under the same `TurnId` does not disturb the turn.
        assert_eq!(refusal(&execute(&ana, &turn(&id, "t1", "Other")).await).1, "turn_id_reused");
        gate.open();
        for (number, caller) in callers.into_iter().enumerate() {
            let answer = caller.end().await;
            let result = if number % 2 == 0 { answer.json() } else { read(&answer, &id, "t1").result };
            assert_eq!(result["Text"], "Only once.", "{} {number}", store.name);
        }
        desk.assert_asked(Wire::Chat, 1, store.name);
        desk.says(Wire::Chat, [Script::text(&["Now."])]);
        assert_eq!(taken(&ana, &turn(&id, "t2", "Me too")).await["Text"], "Now.");
    }
}

#[tokio::test]
async fn what_is_refused_is_no_stream() {
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        let id = open(&ana, Wire::Chat).await;
        for (accept, body) in [
            (SSE, streaming(&turn(&id, "t1", " "))),
            (LINES, streaming(&turn("sess_absent", "t1", "Hello"))),
            (SSE, results(&id, "t1", &[("call_a", "1")])),
        ] {
            let answer = execute_with(&ana, accept, &body).await;
            let (status, _, _) = refusal(&answer);
            assert!((400..500).contains(&status), "{}", answer.text());
            assert_eq!(answer.header("content-type"), Some("application/json"));
        }
        desk.assert_silent(store.name);
    }
}

#[tokio::test]
async fn a_streamed_turn_that_fails_ends_with_an_envelope_that_says_so() {
    // R004-28, R004-33, P5
    for store in stores() {
        let desk = Desk::on(&store).await;
        let ana = desk.user("ana");
        for wire in WIRES {
            for (number, failure) in [
                Reply::status(500).with_json(json!({"error": {"message": "no"}})),
                Script::text(&["One ", "two."]).reply(wire, Delivery::Stream).cut_after(5),
            ]
            .into_iter()
            .enumerate()
            {
                let id = open(&ana, wire).await;
                desk.replies(wire, failure);
                let body = streaming(&turn(&id, "t1", "Hello"));
                let told = read(&execute(&ana, &body).await, &id, "t1");
                assert_eq!(
                    (&told.result["Kind"], &told.result["ToolCalls"]),
                    (&json!("error"), &json!([])),
                    "{wire:?}"
                );
                assert_eq!(told.result["Text"], Value::Null, "{wire:?} {number}: half an answer is none");
                assert_eq!(standing(&ana, &id, "t1").await["Result"], told.result, "{wire:?} {number}");
                desk.says(wire, [Script::text(&["Well."])]);
                assert_eq!(read(&execute(&ana, &body).await, &id, "t1").result["Text"], "Well.", "{wire:?} {number}");
            }
        }
    }
}
