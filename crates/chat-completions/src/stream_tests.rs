use amalgam_core::{CallHead, CallKind, Delivery, Finish, Ids, ModelEvent};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{CreateResponse, Effective, EventBatch, Literal, ResponseSettings};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::answer::completion;

const WITH_USAGE: AnswerOptions = AnswerOptions { include_usage: true, calls: CallStyle::Tools };
const FUNCTION: AnswerOptions = AnswerOptions { include_usage: false, calls: CallStyle::Function };

/// The frames of a turn with these events, and the response object.
fn turn(events: &[ModelEvent]) -> (Vec<u8>, Vec<u8>) {
    let request = CreateResponse::default();
    let settings = ResponseSettings::new(&request, Effective { model: "m", stored: false, background: false });
    let mut emitter = Emitter::new(ResponseStart {
        response_id: "resp_AM-1700000000000-abcdefghijklmnopqrstuvwx".into(),
        created_at: 1_700_000_000,
        settings,
        delivery: Delivery::Stream,
        ids: Ids::seeded(1),
        call_ids: false,
    });
    emitter.begin();
    events.iter().for_each(|event| emitter.on(event.clone()).unwrap());
    emitter.conclude(1_700_000_001);
    (emitter.take_frames(), emitter.response())
}

/// The chunks of a stream, which ends with `[DONE]`.
fn chunks(frames: Vec<u8>, options: AnswerOptions) -> Vec<Value> {
    let mut stream = ChunkStream::new(options);
    let mut written = Vec::new();
    EventBatch::from_frames(frames).events().for_each(|event| stream.on(&event, &mut written));
    let text = String::from_utf8(written).unwrap();
    let mut data: Vec<&str> =
        text.split_terminator("\n\n").map(|frame| frame.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Adds chunks up like the published clients, and checks what they rely on.
fn folded(chunks: &[Value]) -> Value {
    let mut message = json!({"content": null, "refusal": null, "reasoning_content": null, "tool_calls": []});
    let mut finish = Value::Null;
    let add = |target: &mut Value, piece: &Value| {
        if let Some(piece) = piece.as_str() {
            *target = json!(format!("{}{piece}", target.as_str().unwrap_or_default()));
        }
    };
    for (place, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["id"], "chatcmpl-AM-1700000000000-abcdefghijklmnopqrstuvwx");
        let Some(choice) = chunk["choices"].get(0) else { continue };
        assert!(finish.is_null(), "nothing follows the finish reason");
        let delta = &choice["delta"];
        assert_eq!(delta.get("role").is_some(), place == 0, "the first chunk names the role");
        for field in ["content", "refusal", "reasoning_content"] {
            add(&mut message[field], &delta[field]);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            let calls = message["tool_calls"].as_array_mut().unwrap();
            match call.get("id") {
                Some(_) => {
                    assert_eq!(index, calls.len(), "a call begins once, in order");
                    let mut call = call.clone();
                    call.as_object_mut().unwrap().remove("index");
                    calls.push(call);
                }
                None => {
                    let kind = calls[index]["type"].as_str().unwrap().to_owned();
                    let payload = if kind == "custom" { "input" } else { "arguments" };
                    let target = &mut calls[index][&kind][payload];
                    add(target, &call[&kind][payload]);
                }
            }
        }
        finish = choice["finish_reason"].clone();
    }
    json!({"message": message, "finish_reason": finish})
}

fn text(delta: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(delta), logprobs: None }
}

fn start(key: u64, kind: CallKind) -> ModelEvent {
    let call = CallHead { kind, call_id: Some(format!("call_{key}")), name: "look".into(), namespace: None };
    ModelEvent::CallStart { key, call }
}

fn delta(key: u64, delta: &str) -> ModelEvent {
    ModelEvent::CallDelta { key, delta: Literal::from_text(delta) }
}

#[test]
fn a_text_is_streamed_with_role_finish_reason_and_usage() {
    let usage = Usage { input_tokens: 3, output_tokens: 2, reasoning_tokens: 1, ..Usage::default() };
    let events = [text("Hel"), text("lo"), ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)];
    let chunks = chunks(turn(&events).0, WITH_USAGE);
    let deltas: Vec<&Value> =
        chunks.iter().filter_map(|chunk| chunk["choices"].get(0)).map(|one| &one["delta"]).collect();
    let first = json!({"role": "assistant", "content": "", "refusal": null});
    assert_eq!(deltas, [&first, &json!({"content": "Hel"}), &json!({"content": "lo"}), &json!({})]);
    let finish = &chunks[chunks.len() - 2];
    assert_eq!((&finish["choices"][0]["finish_reason"], &finish["usage"]), (&json!("stop"), &Value::Null));
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["total_tokens"], 5);
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
}

#[test]
fn a_request_with_functions_gets_its_call_in_the_older_form() {
    let events = [start(0, CallKind::Function), delta(0, "{\"a\""), delta(0, ":1}"), ModelEvent::Finish(Finish::Stop)];
    let (frames, response) = turn(&events);
    let chunks = chunks(frames, FUNCTION);
    let calls: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["function_call"]).collect();
    assert_eq!(
        calls,
        [
            &Value::Null,
            &json!({"name": "look", "arguments": ""}),
            &json!({"arguments": "{\"a\""}),
            &json!({"arguments": ":1}"}),
            &Value::Null,
        ]
    );
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "function_call");
    let whole: Value = serde_json::from_slice(&completion(Raw::parse(&response).unwrap(), FUNCTION)).unwrap();
    assert_eq!(whole["choices"][0]["message"]["function_call"], json!({"name": "look", "arguments": "{\"a\":1}"}));
    assert_eq!(whole["choices"][0]["finish_reason"], "function_call");
}

#[test]
fn a_failure_in_the_stream_is_an_error_that_clients_raise() {
    let frames = b"event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"resp_x\",\"created_at\":1,\
        \"model\":\"m\",\"error\":{\"code\":\"server_error\",\"message\":\"gone\"}}}\n\n";
    let mut stream = ChunkStream::new(AnswerOptions::default());
    let mut written = Vec::new();
    EventBatch::from_frames(frames.to_vec()).events().for_each(|event| stream.on(&event, &mut written));
    let text = String::from_utf8(written).unwrap();
    let error = r#"data: {"error":{"message":"gone","type":"server_error","param":null,"code":"server_error"}}"#;
    assert!(text.ends_with(&format!("{error}\n\ndata: [DONE]\n\n")), "{text}");
}

#[test]
fn items_of_server_run_tools_are_not_shown_and_texts_around_them_are_apart() {
    let item = |text: &str| json!({"type": "message", "content": [{"type": "output_text", "text": text}]});
    let response = json!({"id": "resp_1", "output": [
        item("I look."), {"type": "mcp_call", "name": "look", "arguments": "{}"}, item("Found."),
    ]});
    let response = response.to_string();
    let whole: Value =
        serde_json::from_slice(&completion(Raw::parse(response.as_bytes()).unwrap(), WITH_USAGE)).unwrap();
    let message = &whole["choices"][0]["message"];
    assert_eq!((&message["content"], message.get("tool_calls")), (&json!("I look.\n\nFound."), None));
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
}

fn any_event() -> impl Strategy<Value = ModelEvent> {
    let piece = "[a-zé\"\\\\\n😀]{0,4}";
    prop_oneof![
        4 => piece.prop_map(|piece| text(&piece)),
        1 => piece.prop_map(|piece| ModelEvent::Refusal(Literal::from_text(&piece))),
        1 => Just(ModelEvent::PartEnd),
        1 => Just(ModelEvent::MessageEnd),
        2 => piece.prop_map(|piece| ModelEvent::ReasoningSummary(Literal::from_text(&piece))),
        2 => piece.prop_map(|piece| ModelEvent::ReasoningText(Literal::from_text(&piece))),
        1 => Just(ModelEvent::ReasoningSummaryEnd),
        1 => Just(ModelEvent::ReasoningEnd { encrypted_content: None }),
    ]
}

fn any_answer() -> impl Strategy<Value = Vec<ModelEvent>> {
    let call = (any::<bool>(), prop::collection::vec("[a-z\"\\\\é]{0,5}", 1..4));
    let finish = prop::sample::select(vec![Finish::Stop, Finish::Length, Finish::ContentFilter]);
    (prop::collection::vec(any_event(), 0..12), prop::collection::vec(call, 0..4), finish, 0..100_u64).prop_map(
        |(mut events, calls, finish, tokens)| {
            for (key, (custom, pieces)) in (0..).zip(&calls) {
                events.push(start(key, if *custom { CallKind::Custom } else { CallKind::Function }));
                events.extend(pieces.iter().map(|piece| delta(key, piece)));
            }
            events.push(ModelEvent::Usage(Usage { input_tokens: tokens, output_tokens: 2, ..Usage::default() }));
            events.push(ModelEvent::Finish(finish));
            events
        },
    )
}

/// A choice whose absent and empty texts are equal.
fn comparable(choice: &Value) -> Value {
    let message = &choice["message"];
    let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
    let calls = message.get("tool_calls").cloned().unwrap_or_else(|| json!([]));
    json!({
        "content": text("content"), "refusal": text("refusal"), "reasoning": text("reasoning_content"),
        "calls": calls, "finish_reason": choice["finish_reason"],
    })
}

proptest! {
    #[test]
    fn any_answer_gives_chunks_that_add_up_to_the_completion(events in any_answer()) {
        let (frames, response) = turn(&events);
        let chunks = chunks(frames, WITH_USAGE);
        let whole: Value = serde_json::from_slice(&completion(Raw::parse(&response).unwrap(), WITH_USAGE)).unwrap();
        prop_assert_eq!(comparable(&folded(&chunks)), comparable(&whole["choices"][0]));
        prop_assert_eq!(&chunks.last().unwrap()["usage"], &whole["usage"]);
    }

    #[test]
    fn the_events_of_a_stored_stream_without_deltas_add_up_to_the_completion(events in any_answer()) {
        let (frames, response) = turn(&events);
        let batch = EventBatch::from_frames(frames);
        let kept: Vec<_> = batch.events().filter(|event| !event.name.ends_with(".delta")).map(|event| event.to_json()).collect();
        let frames: Vec<u8> = kept.iter().flat_map(|event| [b"data: ".as_slice(), event.bytes(), b"\n\n"].concat()).collect();
        let chunks = chunks(frames, WITH_USAGE);
        let whole: Value = serde_json::from_slice(&completion(Raw::parse(&response).unwrap(), WITH_USAGE)).unwrap();
        prop_assert_eq!(comparable(&folded(&chunks)), comparable(&whole["choices"][0]));
    }
}
