use amalgam_core::{CallHead, Delivery, Fault, FaultKind, Ids, ItemExtra};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{CreateResponse, Effective, Literal, ResponseSettings};
use serde_json::{Value, json};

use super::*;
use crate::testing::PlainSeal;

#[path = "decode_extra_tests.rs"]
mod extra;
#[path = "decode_final_object_tests.rs"]
mod final_object;

fn decoder() -> Decoder {
    let answer_context = AnswerContext {
        model: "m".to_owned(),
        seal_context: "tenant 1".to_owned(),
        wants_sealed_reasoning: true,
        wants_logprobs: true,
        ..AnswerContext::default()
    };
    Decoder::new("here", Arc::new(PlainSeal), answer_context)
}

fn frame(text: impl Into<Bytes>) -> Frame {
    Frame { event: None, data: text.into() }
}

/// The events of a stream, and the error that it ended with, if any.
fn streamed(values: &[Value]) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    fed(values.iter().map(|value| frame(value.to_string())))
}

fn fed(frames: impl IntoIterator<Item = Frame>) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let (mut decoder, mut events) = (decoder(), Vec::new());
    for frame in frames {
        if let Err(error) = decoder.frame(frame, &mut events) {
            return (events, Err(error));
        }
        if matches!(events.last(), Some(ModelEvent::Finish(_))) {
            return (events, Ok(()));
        }
    }
    let ended = decoder.end(&mut events);
    (events, ended)
}

fn whole(value: &Value) -> Result<Vec<ModelEvent>, ModelError> {
    let mut events = Vec::new();
    decoder().whole(value.to_string().into(), &mut events)?;
    Ok(events)
}

/// The response that a client receives, with ids made equal.
fn response(events: Vec<ModelEvent>) -> Result<Value, Fault> {
    let effective = Effective { model: "m", stored: false, background: false };
    let mut emitter = Emitter::new(ResponseStart {
        response_id: "resp_1".to_owned(),
        created_at: 0,
        settings: ResponseSettings::new(&CreateResponse::default(), effective),
        delivery: Delivery::Whole,
        ids: Ids::seeded(1),
        call_ids: false,
    });
    events.into_iter().try_for_each(|event| emitter.on(event))?;
    emitter.conclude(1);
    let mut response: Value = serde_json::from_slice(&emitter.response()).unwrap();
    for item in response["output"].as_array_mut().unwrap() {
        // The ids of the generator differ; the test checks only that there is an id.
        assert!(item["id"].is_string(), "{item}");
        item["id"] = json!("id");
    }
    Ok(response)
}

fn text(delta: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(delta), logprobs: None }
}

/// The stream that a clean upstream sends for these items.
fn clean(items: &[Value], usage: &Value) -> Vec<Value> {
    let mut events =
        vec![json!({"type": "response.created", "response": {"id": "resp_up", "model": "up", "output": []}})];
    for (index, item) in items.iter().enumerate() {
        let at = |kind: &str, more: Value| {
            let mut event = json!({"type": kind, "output_index": index, "item_id": item["id"], "sequence_number": 0});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        let mut added = item.clone();
        for (field, empty) in
            [("content", json!([])), ("summary", json!([])), ("arguments", json!("")), ("input", json!(""))]
        {
            if item.get(field).is_some() {
                added[field] = empty;
            }
        }
        added.as_object_mut().unwrap().remove("encrypted_content");
        events.push(json!({"type": "response.output_item.added", "output_index": index, "item": added}));
        let pieces = |text: &str| -> Vec<String> {
            text.chars().collect::<Vec<_>>().chunks(3).map(|chunk| chunk.iter().collect()).collect()
        };
        for (place, part) in item["content"].as_array().into_iter().flatten().enumerate() {
            let at = |kind: &str, more: Value| {
                let mut event = at(kind, more);
                event["content_index"] = json!(place);
                event
            };
            let (name, field) = match part["type"].as_str().unwrap() {
                "refusal" => ("response.refusal", "refusal"),
                "reasoning_text" => ("response.reasoning_text", "text"),
                _ => ("response.output_text", "text"),
            };
            events.push(at("response.content_part.added", json!({"part": {"type": part["type"], field: ""}})));
            // An unknown kind is passed on unchanged.
            let Some(text) = part[field].as_str() else {
                events.push(at("response.content_part.done", json!({"part": part})));
                continue;
            };
            for piece in pieces(text) {
                events.push(at(&format!("{name}.delta"), json!({"delta": piece, "logprobs": []})));
            }
            for annotation in part["annotations"].as_array().into_iter().flatten() {
                events.push(at("response.output_text.annotation.added", json!({"annotation": annotation})));
            }
            events.push(at(&format!("{name}.done"), json!({field: part[field]})));
            events.push(at("response.content_part.done", json!({"part": part})));
        }
        for (place, part) in item["summary"].as_array().into_iter().flatten().enumerate() {
            for piece in pieces(part["text"].as_str().unwrap()) {
                events
                    .push(at("response.reasoning_summary_text.delta", json!({"delta": piece, "summary_index": place})));
            }
            events.push(at(
                "response.reasoning_summary_text.done",
                json!({"text": part["text"], "summary_index": place}),
            ));
            events.push(at("response.reasoning_summary_part.done", json!({"part": part, "summary_index": place})));
        }
        for (name, field) in
            [("response.function_call_arguments", "arguments"), ("response.custom_tool_call_input", "input")]
        {
            if let Some(text) = item[field].as_str() {
                for piece in pieces(text) {
                    events.push(at(&format!("{name}.delta"), json!({"delta": piece})));
                }
                events.push(at(&format!("{name}.done"), json!({field: text})));
            }
        }
        if item["type"] == "web_search_call" {
            events.push(at("response.web_search_call.searching", json!({})));
        }
        events.push(json!({"type": "response.output_item.done", "output_index": index, "item": item}));
    }
    events.push(json!({"type": "response.completed", "response": {"id": "resp_up", "status": "completed", "output": items, "usage": usage}}));
    events
}

fn payloads() -> Vec<Vec<Value>> {
    let message = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "final_answer", "content": [
        {"type": "output_text", "text": "Grüße \"aus\" 😀\n", "annotations": [{"type": "url_citation", "url": "https://x"}]},
        {"type": "output_text", "text": "Two", "annotations": []},
        {"type": "refusal", "refusal": "No."}]});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "namespace": "n", "arguments": "{ \"a\": 1.0 }", "status": "completed"});
    let bare = json!({"type": "function_call", "id": "fc_2", "call_id": "c2", "name": "g", "arguments": "", "status": "completed"});
    let custom = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c3", "name": "patch", "input": "*** Begin\n", "status": "completed"});
    let summary = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "One"}, {"type": "summary_text", "text": "Two"}], "encrypted_content": "gAAA"});
    let thoughts = json!({"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "Hmm"}]});
    let sealed = json!({"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gBBB"});
    let search =
        json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q", "n": 1.50}});
    let other = json!({"type": "acme:thing", "id": "x_1", "deep": {"list": [1, null]}});
    vec![
        vec![],
        vec![message.clone()],
        vec![summary.clone(), message.clone()],
        vec![thoughts, call.clone(), bare.clone(), custom.clone()],
        vec![sealed, search.clone(), message.clone(), other.clone(), call.clone()],
        vec![summary, custom, search, message.clone(), message, bare, other],
    ]
}

#[test]
fn streamed_and_whole_give_the_same_response() {
    // C-22
    let usage = json!({"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 2}});
    for items in payloads() {
        let answer = json!({"id": "resp_up", "object": "response", "status": "completed", "model": "up", "output": items, "usage": usage});
        let expected = response(whole(&answer).unwrap()).unwrap();
        assert_eq!(expected["output"].as_array().unwrap().len(), items.len());
        assert_eq!((&expected["usage"]["total_tokens"], &expected["status"]), (&json!(7), &json!("completed")));

        let stream = clean(&items, &usage);
        let (events, ended) = streamed(&stream);
        ended.unwrap();
        assert_eq!(response(events).unwrap(), expected, "clean");

        // Dirty dialects lose what can be found elsewhere.
        let without = |names: &[&str]| -> Vec<Value> {
            let named = |event: &Value| names.iter().any(|name| event["type"].as_str().unwrap().ends_with(name));
            stream.iter().filter(|event| !named(event)).cloned().collect()
        };
        let bare = |fields: &[&str]| -> Vec<Value> {
            let mut stream = stream.clone();
            for event in &mut stream {
                fields.iter().for_each(|field| {
                    event.as_object_mut().unwrap().remove(*field);
                });
            }
            stream
        };
        for (dialect, stream) in [
            ("without numbers", bare(&["sequence_number"])),
            ("without places", bare(&["output_index", "sequence_number"])),
            ("without ids", bare(&["item_id"])),
            ("without deltas", without(&[".delta"])),
            (
                "without deltas and their ends",
                without(&[
                    ".delta",
                    "_text.done",
                    "refusal.done",
                    "arguments.done",
                    "input.done",
                    "part.done",
                    "annotation.added",
                ]),
            ),
            ("without announcements", without(&["output_item.added", "part.added", "created"])),
            (
                "with items at their end only",
                without(&[
                    ".delta",
                    "text.done",
                    "refusal.done",
                    "arguments.done",
                    "input.done",
                    "part.done",
                    ".added",
                    "searching",
                    "created",
                ]),
            ),
            ("with the final object only", stream.last().cloned().into_iter().collect()),
        ] {
            let (events, ended) = streamed(&stream);
            ended.unwrap();
            assert_eq!(response(events).unwrap(), expected, "{dialect}");
        }
    }
}

#[test]
fn a_three_field_beginning_is_enough() {
    let (events, ended) = streamed(&[
        json!({"type": "response.created", "response": {"id": "r", "object": "response", "created_at": 1}}),
        json!({"type": "response.output_text.delta", "delta": "Hi"}),
        json!({"type": "response.completed", "response": {"id": "r"}}),
    ]);
    ended.unwrap();
    let begun = ModelEvent::Begun { id: Some("r".to_owned()), model: None };
    assert_eq!(events, [begun, text("Hi"), ModelEvent::MessageEnd, ModelEvent::Finish(Finish::Stop)]);
}

#[test]
fn deltas_share_the_memory_they_arrived_in() {
    let data = Bytes::from(json!({"type": "response.output_text.delta", "delta": "a\"b"}).to_string());
    let (mut decoder, mut events) = (decoder(), Vec::new());
    decoder.frame(frame(data.clone()), &mut events).unwrap();
    let [ModelEvent::Text { delta, .. }] = &events[..] else { panic!("{events:?}") };
    assert!(data.as_ptr_range().contains(&delta.escaped().as_ptr()));
}

#[test]
fn truncation_is_told_although_it_says_completed() {
    let message = |status: &str| json!({"type": "message", "role": "assistant", "status": status, "content": [{"type": "output_text", "text": "Hi"}]});
    for (response, finish) in [
        (
            json!({"status": "completed", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}),
            Finish::Length,
        ),
        (json!({"status": "completed", "output": [message("incomplete")]}), Finish::Length),
        (json!({"status": "completed", "incomplete_details": null, "output": [message("completed")]}), Finish::Stop),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": []}),
            Finish::ContentFilter,
        ),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "tired"}, "output": []}),
            Finish::Incomplete("tired".to_owned()),
        ),
        (json!({"status": "incomplete", "output": []}), Finish::Length),
    ] {
        assert_eq!(whole(&response).unwrap().last(), Some(&ModelEvent::Finish(finish.clone())), "{response}");
        let kind = if response["status"] == "incomplete" { "response.incomplete" } else { "response.completed" };
        let (events, _) = streamed(&[json!({"type": kind, "response": response})]);
        assert_eq!(events.last(), Some(&ModelEvent::Finish(finish)), "{response}");
    }
}

#[test]
fn failures_of_every_shape_are_failures() {
    // O-24, P5
    let error = json!({"code": "context_length_exceeded", "message": "Too long."});
    for event in [
        json!({"type": "response.failed", "response": {"status": "failed", "error": error}}),
        json!({"type": "error", "error": error}),
        json!({"type": "error", "code": "context_length_exceeded", "message": "Too long.", "param": null}),
        json!({"error": error}),
        json!({"type": "response.completed", "response": {"status": "failed", "error": error}}),
    ] {
        let (events, _) = streamed(&[json!({"type": "response.output_text.delta", "delta": "Hi"}), event.clone()]);
        let Some(ModelEvent::Finish(Finish::Failed(fault))) = events.last() else { panic!("{event}: {events:?}") };
        assert_eq!(
            (fault.kind, &*fault.message, fault.code.as_deref()),
            (FaultKind::ContextLength, "Too long.", Some("context_length_exceeded"))
        );
    }
    let events = whole(&json!({"status": "failed", "error": error, "output": []})).unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Finish(Finish::Failed(_)))));
    let events = whole(&json!({"status": "failed", "error": null, "output": []})).unwrap();
    assert!(matches!(events.last(), Some(ModelEvent::Finish(Finish::Failed(_)))));
}

#[test]
fn an_end_without_a_last_event_is_cut_short() {
    // O-22
    let delta = json!({"type": "response.output_text.delta", "delta": "Hi"});
    let (events, ended) = fed([frame(delta.to_string()), frame("[DONE]")]);
    assert_eq!(events, [text("Hi")]);
    assert!(matches!(ended, Err(ModelError::CutShort)), "{ended:?}");
    let (_, ended) = fed([]);
    assert!(matches!(ended, Err(ModelError::CutShort)), "{ended:?}");
}

#[test]
fn one_event_that_cannot_be_read_does_not_spoil_the_others() {
    // O-20
    let done = json!({"type": "response.completed", "response": {"status": "completed"}}).to_string();
    let delta = |text: &str| json!({"type": "response.output_text.delta", "delta": text}).to_string();
    let (events, ended) = fed([frame("{\"type\": \"response.in_pro"), frame(delta("Hi")), frame(done.clone())]);
    ended.unwrap();
    assert_eq!(events[0], text("Hi"));

    let (_, ended) = fed([frame(delta("Hi")), frame(&b"{\"type\":\"response.completed\xff"[..])]);
    assert!(matches!(ended, Err(ModelError::Unreadable(_))), "nothing follows it: {ended:?}");

    let end = json!({"type": "response.output_text.done", "text": "one two three"}).to_string();
    let (_, ended) = fed([frame(delta("one")), frame("broken"), frame(delta(" three")), frame(end), frame(done)]);
    assert!(matches!(ended, Err(ModelError::Unreadable(_))), "text is missing: {ended:?}");
}

#[test]
fn the_end_adds_what_the_deltas_left_out() {
    let (events, _) = streamed(&[
        json!({"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": "Grü"}),
        json!({"type": "response.output_text.done", "item_id": "m", "output_index": 0, "content_index": 0, "text": "Grüße"}),
        json!({"type": "response.completed", "response": {"output": [{"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Grüße!"}]}]}}),
    ]);
    let begun = ModelEvent::Begun { id: None, model: None };
    assert_eq!(
        events,
        [text("Grü"), text("ße"), begun, text("!"), ModelEvent::MessageEnd, ModelEvent::Finish(Finish::Stop)]
    );
}

#[test]
fn text_that_is_escaped_in_another_way_at_the_end_is_not_doubled() {
    let (events, ended) = fed([
        frame(r#"{"type":"response.output_text.delta","delta":"\u00e9\/x"}"#),
        frame(r#"{"type":"response.output_text.done","text":"é/x"}"#),
        frame(r#"{"type":"response.completed","response":{}}"#),
    ]);
    ended.unwrap();
    assert_eq!(events.iter().filter(|event| matches!(event, ModelEvent::Text { .. })).count(), 1);
}

#[test]
fn calls_of_one_answer_are_told_apart_by_place_and_by_id() {
    let added = |index: u64, id: &str, name: &str| json!({"type": "response.output_item.added", "output_index": index, "item": {"type": "function_call", "id": id, "call_id": id, "name": name, "arguments": ""}});
    let (events, ended) = streamed(&[
        added(0, "a", "f"),
        added(1, "b", "g"),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "{\"b\""}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "a", "delta": "{}"}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1, "delta": ":1}"}),
        json!({"type": "response.completed", "response": {"status": "completed", "output": []}}),
    ]);
    ended.unwrap();
    let response = response(events).unwrap();
    let calls: Vec<(&str, &str)> = response["output"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["name"].as_str().unwrap(), item["arguments"].as_str().unwrap()))
        .collect();
    assert_eq!(calls, [("f", "{}"), ("g", "{\"b\":1}")]);
}

#[test]
fn a_call_whose_name_comes_last_is_still_whole() {
    let (events, ended) = streamed(&[
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": "{\"a\""}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc", "delta": ":1}"}),
        json!({"type": "response.output_item.done", "item": {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"}}),
        json!({"type": "response.completed", "response": {}}),
    ]);
    ended.unwrap();
    let head =
        CallHead { kind: CallKind::Function, call_id: Some("c".to_owned()), name: "f".to_owned(), namespace: None };
    let expected = [
        ModelEvent::CallStart { key: 0, call: head },
        ModelEvent::CallDelta { key: 0, delta: Literal::from_text("{\"a\":1}") },
        ModelEvent::CallEnd { key: 0 },
    ];
    assert_eq!(events[..3], expected);
}

#[test]
fn encrypted_reasoning_are_sealed_and_only_where_they_were_asked_for() {
    let item = json!({"type": "reasoning", "id": "rs_real", "summary": [], "encrypted_content": "gAAA"});
    let body = json!({"status": "completed", "output": [item]});
    let sealed = |events: &[ModelEvent]| {
        events.iter().find_map(|event| match event {
            ModelEvent::ReasoningEnd { encrypted_content } => Some(encrypted_content.clone()),
            _ => None,
        })
    };
    let events = whole(&body).unwrap();
    let expected = r#"ams1.tenant 1|{"upstream":"here","model":"m","id":"rs_real","encrypted_content":"gAAA"}"#;
    assert_eq!(sealed(&events), Some(Some(expected.to_owned())));

    let mut events = Vec::new();
    let mut unasked = Decoder::new("here", Arc::new(PlainSeal), AnswerContext::default());
    unasked.whole(body.to_string().into(), &mut events).unwrap();
    assert_eq!(sealed(&events), Some(None));
}

#[test]
fn other_items_and_events_pass_along_as_they_are() {
    let item = json!({"type": "web_search_call", "id": "ws", "n": 1.5});
    let progress = json!({"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws"});
    let news = json!({"type": "acme.news", "x": 1});
    let (events, _) = streamed(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        progress.clone(),
        news.clone(),
        json!({"type": "acme.lost", "output_index": 9}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "keepalive", "sequence_number": 3}),
        json!({"type": "response.completed", "response": {}}),
    ]);
    let json = |value: &Value| Json::parse(&value.to_string().into()).unwrap();
    let expected = [
        ModelEvent::ItemStart { key: 0, item: json(&item) },
        ModelEvent::ItemProgress { key: Some(0), event: json(&progress) },
        ModelEvent::ItemProgress { key: None, event: json(&news) },
        ModelEvent::ItemEnd { key: 0, item: json(&item) },
        ModelEvent::Begun { id: None, model: None },
        ModelEvent::Finish(Finish::Stop),
    ];
    assert_eq!(events, expected);
}

#[test]
fn log_probabilities_are_passed_on() {
    let logprobs = json!([{"token": "Hi", "logprob": -0.5}]);
    let (events, _) = streamed(&[json!({"type": "response.output_text.delta", "delta": "Hi", "logprobs": logprobs})]);
    let logprobs = Json::parse(&logprobs.to_string().into()).unwrap();
    assert_eq!(events, [ModelEvent::Text { delta: Literal::from_text("Hi"), logprobs: Some(logprobs) }]);
}

#[test]
fn what_is_no_response_is_unreadable() {
    for body in [json!({"choices": []}), json!([]), json!("text"), json!({"output": [], "status": "in_progress"})] {
        assert!(matches!(whole(&body), Err(ModelError::Unreadable(_))), "{body}");
    }
    let mut events = Vec::new();
    assert!(matches!(decoder().whole("<html>".into(), &mut events), Err(ModelError::Unreadable(_))));
    let cancelled = whole(&json!({"output": [], "status": "cancelled"}));
    assert!(matches!(cancelled, Err(ModelError::CutShort)));
}
