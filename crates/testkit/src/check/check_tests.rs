//! A correct stream has no violation, and the checker finds each broken rule.

use serde_json::{Value, json};

use super::*;

/// A response object in the given state.
fn object(status: &str, output: Value) -> Value {
    let finished = status == "completed";
    json!({
        "id": "resp_1", "object": "response", "created_at": 100, "status": status, "model": "m", "output": output,
        "completed_at": if finished { json!(101) } else { Value::Null },
        "incomplete_details": if status == "incomplete" { json!({"reason": "max_output_tokens"}) } else { Value::Null },
        "error": if status == "failed" {
            json!({"type": "server_error", "code": "server_error", "message": "cut", "param": null})
        } else {
            Value::Null
        },
        "previous_response_id": null, "instructions": null, "reasoning": {"effort": null, "summary": null},
        "tools": [{"type": "function", "name": "f", "description": null, "parameters": null, "strict": null}],
        "tool_choice": "auto", "truncation": "disabled", "parallel_tool_calls": true,
        "text": {"format": {"type": "text"}}, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "top_logprobs": 0, "temperature": 1.0, "max_output_tokens": null, "max_tool_calls": null, "store": true,
        "background": false, "service_tier": "default", "metadata": {}, "safety_identifier": null,
        "prompt_cache_key": null,
        "usage": if finished {
            json!({
                "input_tokens": 3, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 4, "output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 7,
            })
        } else {
            Value::Null
        },
    })
}

fn items() -> Value {
    json!([
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Think"}]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
            {"type": "output_text", "text": "Hello", "annotations": [{"type": "url_citation"}], "logprobs": []},
            {"type": "refusal", "refusal": "No"},
        ]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "g", "input": "x", "status": "completed"},
    ])
}

/// A stream that uses every event that is checked in detail.
fn good() -> Vec<Value> {
    let items = items();
    let text_part = &items[1]["content"][0];
    let empty_text = json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []});
    let message =
        json!({"type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": []});
    let mut function = items[2].clone();
    function["status"] = json!("in_progress");
    function["arguments"] = json!("");
    let mut custom = items[3].clone();
    custom["status"] = json!("in_progress");
    custom["input"] = json!("");
    number(vec![
        json!({"type": "response.created", "response": object("in_progress", json!([]))}),
        json!({"type": "response.in_progress", "response": object("in_progress", json!([]))}),
        json!({"type": "keepalive"}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": []}}),
        json!({"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "output_index": 0, "summary_index": 0,
               "part": {"type": "summary_text", "text": ""}}),
        json!({"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "Think"}),
        json!({"type": "response.reasoning_summary_text.done", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "text": "Think"}),
        json!({"type": "response.reasoning_summary_part.done", "item_id": "rs_1", "output_index": 0, "summary_index": 0,
               "part": items[0]["summary"][0]}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": items[0]}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": message}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1, "content_index": 0, "part": empty_text}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "Hel", "logprobs": []}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1, "content_index": 0, "delta": "lo", "logprobs": []}),
        json!({"type": "response.output_text.annotation.added", "item_id": "msg_1", "output_index": 1, "content_index": 0,
               "annotation_index": 0, "annotation": {"type": "url_citation"}}),
        json!({"type": "response.output_text.done", "item_id": "msg_1", "output_index": 1, "content_index": 0, "text": "Hello", "logprobs": []}),
        json!({"type": "response.content_part.done", "item_id": "msg_1", "output_index": 1, "content_index": 0, "part": text_part}),
        json!({"type": "response.content_part.added", "item_id": "msg_1", "output_index": 1, "content_index": 1,
               "part": {"type": "refusal", "refusal": ""}}),
        json!({"type": "response.refusal.delta", "item_id": "msg_1", "output_index": 1, "content_index": 1, "delta": "No"}),
        json!({"type": "response.refusal.done", "item_id": "msg_1", "output_index": 1, "content_index": 1, "refusal": "No"}),
        json!({"type": "response.content_part.done", "item_id": "msg_1", "output_index": 1, "content_index": 1,
               "part": {"type": "refusal", "refusal": "No"}}),
        json!({"type": "response.output_item.done", "output_index": 1, "item": items[1]}),
        json!({"type": "response.output_item.added", "output_index": 2, "item": function}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 2, "delta": "{}"}),
        json!({"type": "response.function_call_arguments.done", "item_id": "fc_1", "output_index": 2, "name": "f", "arguments": "{}"}),
        json!({"type": "response.output_item.done", "output_index": 2, "item": items[2]}),
        json!({"type": "response.output_item.added", "output_index": 3, "item": custom}),
        json!({"type": "response.custom_tool_call_input.delta", "item_id": "ct_1", "output_index": 3, "delta": "x"}),
        json!({"type": "response.custom_tool_call_input.done", "item_id": "ct_1", "output_index": 3, "input": "x"}),
        json!({"type": "response.output_item.done", "output_index": 3, "item": items[3]}),
        json!({"type": "response.completed", "response": object("completed", items)}),
    ])
}

/// A stream that is cut after its first delta.
fn failed() -> Vec<Value> {
    let mut events = good();
    events.drain(4..);
    let error = json!({"type": "server_error", "code": "server_error", "message": "cut", "param": null});
    events.push(json!({"type": "error", "error": error, "code": "server_error", "message": "cut", "param": null}));
    events.push(json!({"type": "response.failed", "response": object("failed", json!([]))}));
    number(events)
}

fn number(mut events: Vec<Value>) -> Vec<Value> {
    for (index, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(index);
    }
    events
}

/// The first event of a type.
fn find<'a>(events: &'a mut [Value], kind: &str) -> &'a mut Value {
    events.iter_mut().find(|event| event["type"] == kind).expect("the stream has such an event")
}

fn position(events: &[Value], kind: &str) -> usize {
    events.iter().position(|event| event["type"] == kind).expect("the stream has such an event")
}

/// Asserts that one broken rule is found.
fn assert_found(violations: &[String], expected: &str) {
    assert!(violations.iter().any(|violation| violation.contains(expected)), "{expected:?} is not in {violations:#?}");
}

#[test]
fn correct_streams_have_no_violation() {
    assert_eq!(stream(&good()), [""; 0]);
    assert_eq!(stream(&failed()), [""; 0]);
    let queued = number(vec![
        json!({"type": "response.created", "response": object("queued", json!([]))}),
        json!({"type": "response.queued", "response": object("queued", json!([]))}),
        json!({"type": "response.in_progress", "response": object("in_progress", json!([]))}),
        json!({"type": "response.incomplete", "response": object("incomplete", json!([]))}),
    ]);
    assert_eq!(stream(&queued), [""; 0]);
}

#[test]
fn events_that_are_missing_repeated_or_moved_are_found() {
    let cases: [(&str, &str); 14] = [
        ("response.created", "is out of order"),
        ("response.in_progress", "comes before response.in_progress"),
        ("response.output_item.added", "was never added"),
        ("response.output_item.done", "output item 0 is not done"),
        ("response.content_part.added", "part 0 was never added"),
        ("response.content_part.done", "the part before it is not done"),
        ("response.output_text.delta", "deltas add up to \"lo\""),
        ("response.output_text.done", "the text of the part is not done"),
        ("response.output_text.annotation.added", "`annotations` are not those"),
        ("response.refusal.delta", "deltas add up to \"\""),
        ("response.reasoning_summary_part.added", "part 0 was never added"),
        ("response.function_call_arguments.done", "`arguments` were never done"),
        ("response.custom_tool_call_input.done", "`input` were never done"),
        ("response.completed", "ends without a terminal event"),
    ];
    for (kind, expected) in cases {
        let mut events = good();
        events.remove(position(&events, kind));
        assert_found(&stream(&number(events)), expected);
    }
    let repeated: [(&str, &str); 9] = [
        ("response.created", "is out of order"),
        ("response.in_progress", "is out of order"),
        ("response.output_item.added", "output_index is 0 and not 1"),
        ("response.output_item.done", "the item is done twice"),
        ("response.content_part.added", "content_index is 0 and not 1"),
        ("response.content_part.done", "part 0 is done"),
        ("response.output_text.delta", "deltas add up to \"HelHello\""),
        ("response.function_call_arguments.done", "the text is done twice"),
        ("response.completed", "an event after the terminal one"),
    ];
    for (kind, expected) in repeated {
        let mut events = good();
        let index = position(&events, kind);
        events.insert(index, events[index].clone());
        assert_found(&stream(&number(events)), expected);
    }
    for (kind, expected) in [
        ("response.output_text.delta", "a delta after the text was done"),
        ("response.reasoning_summary_text.delta", "comes after the item was done"),
    ] {
        let mut events = good();
        let moved = events.remove(position(&events, kind));
        let after =
            if kind.contains("output_text") { "response.output_text.done" } else { "response.output_item.done" };
        let index = position(&events, after);
        events.insert(index + 1, moved);
        assert_found(&stream(&number(events)), expected);
    }
    assert_found(&stream(&[]), "ends without a terminal event");
}

#[test]
fn fields_of_events_that_are_wrong_are_found() {
    let cases: [(&str, &str, Value, &str); 25] = [
        ("response.in_progress", "/sequence_number", json!(7), "sequence_number is 7 and not 1"),
        ("keepalive", "/sequence_number", Value::Null, "sequence_number is null and not 2"),
        ("keepalive", "/type", json!("response.ping"), "`output_index` is missing"),
        ("keepalive", "/type", json!("heartbeat"), "not an event that clients know"),
        ("response.output_text.delta", "/type", json!("response.reasoning.delta"), "not an event that clients know"),
        ("response.output_text.delta", "/item_id", json!("msg_2"), "item_id is \"msg_2\""),
        ("response.output_text.delta", "/output_index", json!(9), "output item 9 was never added"),
        ("response.output_text.delta", "/content_index", json!(3), "part 3 was never added"),
        ("response.output_text.delta", "/delta", Value::Null, "`delta` is not a text"),
        ("response.output_text.delta", "/logprobs", Value::Null, "`logprobs` is not a list"),
        ("response.output_text.done", "/text", json!("Hullo"), "deltas add up to \"Hello\""),
        ("response.content_part.added", "/part/text", json!("H"), "the part is not empty yet"),
        ("response.content_part.added", "/part/type", json!("text"), "has the type \"text\""),
        ("response.content_part.added", "/part/annotations", Value::Null, "no list of annotations"),
        ("response.content_part.done", "/part/text", json!("Hullo"), "deltas add up to \"Hello\""),
        ("response.output_text.annotation.added", "/annotation_index", json!(1), "annotation_index is 1 and not 0"),
        ("response.function_call_arguments.done", "/name", json!(""), "`name` is missing"),
        ("response.function_call_arguments.done", "/arguments", json!("{"), "deltas add up to \"{}\""),
        (
            "response.function_call_arguments.delta",
            "/type",
            json!("response.custom_tool_call_input.delta"),
            "not a custom_tool_call",
        ),
        ("response.refusal.delta", "/type", json!("response.reasoning_text.delta"), "not a reasoning_text"),
        ("response.in_progress", "/response/id", json!("resp_2"), "`id` is not what response.created said"),
        ("response.in_progress", "/response/output", items(), "has output before any item"),
        ("response.created", "/response/status", json!("completed"), "the response is \"completed\""),
        ("response.completed", "/response/status", json!("incomplete"), "the response is \"incomplete\""),
        ("response.completed", "/response/output", json!([]), "`output` is not the list"),
    ];
    for (kind, pointer, value, expected) in cases {
        let mut events = good();
        *find(&mut events, kind).pointer_mut(pointer).expect("the event has such a field") = value;
        assert_found(&stream(&events), expected);
    }
}

#[test]
fn items_that_change_between_added_and_done_are_found() {
    let cases: [(&str, usize, &str, Value, &str); 9] = [
        ("response.output_item.added", 1, "/item/status", json!("completed"), "the item starts as \"completed\""),
        ("response.output_item.added", 1, "/item/id", json!("rs_1"), "the item id \"rs_1\" was used before"),
        ("response.output_item.added", 2, "/item/arguments", json!("{}"), "`item.arguments` is not empty yet"),
        ("response.output_item.added", 2, "/item/call_id", json!("call_9"), "id, type or call_id"),
        ("response.output_item.done", 1, "/item/status", json!("in_progress"), "done and in progress"),
        ("response.output_item.done", 1, "/item/id", json!("msg_9"), "id, type or call_id"),
        ("response.output_item.done", 1, "/item/content", json!([]), "`content` has 0 parts and 2 were added"),
        ("response.output_item.done", 0, "/item/summary/0/text", json!("?"), "deltas add up to \"Think\""),
        ("response.output_item.done", 2, "/item/arguments", json!("[]"), "deltas add up to \"{}\""),
    ];
    for (kind, nth, pointer, value, expected) in cases {
        let mut events = good();
        let event = events.iter_mut().filter(|event| event["type"] == kind).nth(nth).expect("there are four items");
        *event.pointer_mut(pointer).expect("the event has such a field") = value;
        assert_found(&stream(&events), expected);
    }
}

#[test]
fn a_failure_is_announced_by_an_error_that_is_nested_and_flat() {
    let mut silent = failed();
    silent.remove(position(&silent, "error"));
    assert_found(&stream(&number(silent)), "no error event comes right before it");

    let mut interrupted = failed();
    let error = position(&interrupted, "error");
    interrupted.insert(error + 1, json!({"type": "keepalive"}));
    assert_found(&stream(&number(interrupted)), "an error is not followed by response.failed");

    let mut twice = failed();
    twice.insert(error, twice[error].clone());
    assert_found(&stream(&number(twice)), "has more than one error event");

    for (key, expected) in [("error", "`error.message` is missing"), ("message", "`message` is not beside `error`")] {
        let mut events = failed();
        find(&mut events, "error").as_object_mut().expect("an event is an object").remove(key);
        assert_found(&stream(&events), expected);
    }

    let mut invented = failed();
    find(&mut invented, "response.failed")["response"]["output"] = json!([items()[2]]);
    assert_found(&stream(&invented), "was never added");
}

#[test]
fn a_response_has_all_31_keys_and_nulls_only_where_they_belong() {
    let whole = object("completed", items());
    assert_eq!(response(&whole), [""; 0]);
    let keys: Vec<String> = whole.as_object().expect("a response is an object").keys().cloned().collect();
    assert_eq!(keys.len(), 31);
    for key in keys {
        let mut broken = whole.clone();
        broken.as_object_mut().expect("a response is an object").remove(&key);
        assert_found(&response(&broken), &format!("`{key}` is missing"));
    }
    for key in ["temperature", "top_p", "tools", "text", "store", "service_tier", "metadata", "tool_choice"] {
        let mut broken = whole.clone();
        broken[key] = Value::Null;
        assert_found(&response(&broken), &format!("`{key}` is null"));
    }
    assert_found(&response(&json!([])), "is not an object");
}

#[test]
fn fields_of_a_response_that_are_wrong_are_found() {
    let cases: [(&str, Value, &str); 22] = [
        ("/object", json!("thing"), "`object` is"),
        ("/created_at", json!(1.5), "`created_at` is 1.5"),
        ("/completed_at", json!(99), "before `created_at`"),
        ("/completed_at", Value::Null, "`completed_at` is null although"),
        ("/status", json!("done"), "`status` is \"done\""),
        ("/error", json!({"code": "x"}), "`error` is"),
        ("/incomplete_details", json!({"reason": "x"}), "`incomplete_details` is"),
        ("/text", json!({}), "`text.format` is missing"),
        ("/text/format", json!({"type": "json_schema"}), "`text.format.schema` is missing"),
        ("/reasoning", json!({"effort": null}), "`reasoning.summary` is missing"),
        ("/tools/0", json!({"type": "function", "name": "f"}), "`tools[0].strict` is missing"),
        ("/usage/total_tokens", json!(8), "not the sum"),
        ("/usage/input_tokens_details", json!({}), "`usage/input_tokens_details/cached_tokens` is missing"),
        ("/output/1/content/0/annotations", Value::Null, "no list of annotations"),
        ("/output/1/role", json!("user"), "not assistant"),
        ("/output/1/status", json!("incomplete"), "is not the last one"),
        ("/output/3/status", json!("incomplete"), "incomplete although the response is completed"),
        ("/output/3/status", json!("in_progress"), "in progress although the response is completed"),
        ("/output/2/arguments", json!({}), "`arguments` is not a string"),
        ("/output/2/call_id", json!("fc_1"), "`call_id` and `id` are the same"),
        ("/output/3/call_id", json!("call_1"), "the call_id \"call_1\" occurs twice"),
        ("/output/3/id", json!("fc_1"), "the id \"fc_1\" occurs twice"),
    ];
    for (pointer, value, expected) in cases {
        let mut broken = object("completed", items());
        *broken.pointer_mut(pointer).expect("the response has such a field") = value;
        assert_found(&response(&broken), expected);
    }
    for (item, key) in [(1, "phase"), (0, "content"), (0, "encrypted_content")] {
        let mut broken = object("completed", items());
        broken["output"][item][key] = Value::Null;
        assert_found(&response(&broken), &format!("`{key}` is null instead of absent"));
    }
    let mut failed = object("failed", json!([]));
    failed["error"] = json!({"code": "x", "message": "m"});
    assert_found(&response(&failed), "`error.type` is missing");
}

#[test]
fn a_body_ends_in_done_and_names_its_events() {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", text(event, "type"));
    let frames: String = good().iter().map(frame).collect();
    assert_eq!(body(format!("{frames}data: [DONE]\n\n").as_bytes()), [""; 0]);
    assert_found(&body(frames.as_bytes()), "the last frame is not");
    assert_found(&body(b""), "the stream is empty");
    assert_found(&body(b"data: {}\n\ndata: {\n\ndata: [DONE]\n\n"), "frame 1: the data is not JSON");
    assert_found(&body(frames.replacen("response.created", "created", 1).as_bytes()), "is not the type");
    assert_found(&body(b"data: x"), "ends inside a frame");
}

#[test]
fn an_error_envelope_has_four_fields() {
    let envelope = json!({"error": {"message": "no", "type": "invalid_request_error", "param": null, "code": null}});
    assert_eq!(error(&envelope), [""; 0]);
    assert_eq!(error(&json!({"error": "no"})).len(), 4);
    assert_found(&error(&json!({"error": {"message": null}})), "error.message is null");
}

#[test]
fn what_is_correct_here_is_valid_by_the_specification_too() {
    // The citation of the fixture is a stub, which only the specification's schemas check.
    let found: Vec<String> = crate::spec::stream_violations(&good())
        .into_iter()
        .filter(|violation| !violation.contains("annotation"))
        .collect();
    assert_eq!(found, [""; 0]);
    assert_eq!(crate::spec::stream_violations(&failed()), [""; 0]);
}
