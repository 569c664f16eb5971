//! Every answer of a model gives a valid stream of messages, which adds up to the whole message.

use amalgam_core::{CallHead, CallKind, Delivery, Finish, Ids, ModelEvent};
use amalgam_emitter::{Emitter, ResponseStart};
use amalgam_protocol::{CreateResponse, Effective, EventBatch, Literal, ResponseSettings, Usage};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::answer::message;

const DISPLAYS: [ThinkingDisplay; 3] = [ThinkingDisplay::Shown, ThinkingDisplay::Omitted, ThinkingDisplay::Hidden];

fn rendering(thinking: ThinkingDisplay) -> MessagesRendering {
    MessagesRendering { thinking, streamed: true }
}

fn emitter() -> Emitter {
    let request = CreateResponse::default();
    let settings = ResponseSettings::new(&request, Effective { model: "m", stored: false, background: false });
    Emitter::new(ResponseStart {
        response_id: "resp_AM-1700000000000-abcdefghijklmnopqrstuvwx".into(),
        created_at: 1_700_000_000,
        settings,
        delivery: Delivery::Stream,
        ids: Ids::seeded(1),
        call_ids: false,
    })
}

fn text(delta: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(delta), logprobs: None }
}

/// The events of the stream, and the whole message.
fn both(events: &[ModelEvent], thinking: ThinkingDisplay, prompt: Option<u64>) -> (Vec<Value>, Value) {
    let mut emitter = emitter();
    if let Some(tokens) = prompt {
        emitter.expect_prompt(tokens);
    }
    emitter.begin();
    for event in events {
        emitter.on(event.clone()).unwrap();
    }
    emitter.conclude(1_700_000_001);
    let batch = EventBatch::from_frames(emitter.take_frames());
    let mut stream = MessageStream::new(rendering(thinking));
    let mut frames = Writer::default();
    batch.events().for_each(|event| stream.on(&event, &mut frames));
    let response = emitter.response();
    let whole = message(Raw::parse(&response).unwrap(), rendering(thinking));
    (read(frames.bytes()), serde_json::from_slice(&whole).unwrap())
}

/// The data of each frame, whose `event:` line must have the same name.
fn read(frames: &[u8]) -> Vec<Value> {
    let frames = std::str::from_utf8(frames).unwrap();
    let frame = |frame: &str| {
        let (event, data) = frame.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(event.strip_prefix("event: "), data["type"].as_str());
        data
    };
    frames.split_terminator("\n\n").map(frame).collect()
}

/// Adds a stream up as the official clients do, and checks the order of its events.
fn fold(events: &[Value]) -> Value {
    let events: Vec<&Value> = events.iter().filter(|event| event["type"] != "ping").collect();
    assert_eq!(events[0]["type"], "message_start");
    let mut message = events[0]["message"].clone();
    assert_eq!(message["content"], json!([]));
    let mut open: Option<String> = None;
    for (place, event) in events.iter().enumerate().skip(1) {
        let content = message["content"].as_array_mut().unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(open, None, "one block at a time");
                assert_eq!(event["index"], content.len());
                content.push(event["content_block"].clone());
                open = Some(String::new());
            }
            "content_block_delta" => {
                assert_eq!(event["index"], content.len() - 1);
                let block = content.last_mut().unwrap();
                let delta = &event["delta"];
                let mut append = |field: &str| {
                    let joined = format!("{}{}", block[field].as_str().unwrap(), delta[field].as_str().unwrap());
                    block[field] = json!(joined);
                };
                match (delta["type"].as_str().unwrap(), open.as_mut().unwrap()) {
                    ("text_delta", _) => append("text"),
                    ("thinking_delta", _) => append("thinking"),
                    ("signature_delta", _) => append("signature"),
                    ("input_json_delta", json) => json.push_str(delta["partial_json"].as_str().unwrap()),
                    other => panic!("{other:?}"),
                }
            }
            "content_block_stop" => {
                assert_eq!(event["index"], content.len() - 1);
                let input = open.take().unwrap();
                if !input.is_empty() {
                    content.last_mut().unwrap()["input"] = serde_json::from_str(&input).unwrap();
                }
            }
            "message_delta" => {
                assert_eq!(open, None, "blocks end before the message");
                for field in ["stop_reason", "stop_sequence"] {
                    message[field] = event["delta"][field].clone();
                }
                message["usage"] = event["usage"].clone();
            }
            "message_stop" => assert_eq!(place, events.len() - 1),
            other => panic!("{other}"),
        }
    }
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    message
}

/// One item of an answer.
fn item() -> impl Strategy<Value = Vec<ModelEvent>> {
    let word = "[a-z\"\\\\\n ü]{0,6}";
    let words = prop::collection::vec(word, 0..4);
    let said = words.clone().prop_map(|words| {
        let deltas = words.iter().map(|word| text(word));
        deltas.chain([ModelEvent::MessageEnd]).collect()
    });
    let refused = word.prop_map(|word| vec![ModelEvent::Refusal(Literal::from_text(&word)), ModelEvent::MessageEnd]);
    let sealed = prop::option::of("[a-z.]{1,8}");
    let thought = (prop::collection::vec(words, 0..3), sealed).prop_map(|(parts, encrypted_content)| {
        let mut events = Vec::new();
        for words in parts {
            events.extend(words.iter().map(|word| ModelEvent::ReasoningSummary(Literal::from_text(word))));
            events.push(ModelEvent::ReasoningSummaryEnd);
        }
        events.push(ModelEvent::ReasoningEnd { encrypted_content });
        events
    });
    let called = (word, any::<bool>()).prop_map(|(word, is_empty)| {
        let head = CallHead { kind: CallKind::Function, call_id: None, name: "f".into(), namespace: None };
        let arguments = if is_empty { String::new() } else { json!({"word": word}).to_string() };
        let (one, other) = arguments.split_at(arguments.len().min(3));
        let delta = |piece: &str| ModelEvent::CallDelta { key: 1, delta: Literal::from_text(piece) };
        vec![ModelEvent::CallStart { key: 1, call: head }, delta(one), delta(other), ModelEvent::CallEnd { key: 1 }]
    });
    let block = Just(vec![ModelEvent::ItemEnd {
        key: 9,
        item: Json::from(
            Raw::parse(br#"{"type":"messages_block","anthropic":{"block":{"type":"server_tool_use","input":{}}}}"#)
                .unwrap(),
        ),
    }]);
    let search = Just(vec![ModelEvent::ItemEnd {
        key: 8,
        item: Json::from(
            Raw::parse(br#"{"type":"web_search_call","id":"ws","action":{"query":"q","sources":[{"url":"u"}]}}"#)
                .unwrap(),
        ),
    }]);
    prop_oneof![3 => said, 1 => refused, 3 => thought, 3 => called, 1 => block, 1 => search]
}

fn finish() -> impl Strategy<Value = Finish> {
    prop_oneof![
        4 => Just(Finish::Stop),
        1 => Just(Finish::Length),
        1 => Just(Finish::ContentFilter),
        1 => Just(Finish::Incomplete("pause_turn".to_owned())),
    ]
}

proptest! {
    #[test]
    fn every_answer_gives_a_valid_stream_that_adds_up_to_the_whole_message(
        items in prop::collection::vec(item(), 0..6),
        finish in finish(),
        display in prop::sample::select(&DISPLAYS[..]),
        prompt in prop::option::of(1..100_u64),
    ) {
        let usage = Usage { input_tokens: 12, cached_tokens: 5, output_tokens: 7, ..Usage::default() };
        let mut events: Vec<ModelEvent> = items.concat();
        events.push(ModelEvent::Usage(usage));
        events.push(ModelEvent::Finish(finish));
        let (stream, whole) = both(&events, display, prompt);
        if let Some(tokens) = prompt {
            prop_assert_eq!(&stream[0]["message"]["usage"]["input_tokens"], &json!(tokens));
        }
        prop_assert_eq!(fold(&stream), whole);
    }
}

#[test]
fn a_stream_begins_with_the_counted_prompt_and_ends_with_the_upstreams_usage() {
    let usage = Usage { input_tokens: 12, cached_tokens: 5, output_tokens: 7, ..Usage::default() };
    let events = [text("Hi"), ModelEvent::Usage(usage), ModelEvent::Finish(Finish::Stop)];
    let (stream, _) = both(&events, ThinkingDisplay::Shown, Some(10));
    let types: Vec<&str> = stream.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types, expected);
    assert_eq!(
        stream[0]["message"],
        json!({
            "id": "msg_AM-1700000000000-abcdefghijklmnopqrstuvwx", "type": "message", "role": "assistant", "model": "m",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {
                "input_tokens": 10, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0
            },
        })
    );
    assert_eq!(
        stream[5],
        json!({
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": null},
            "usage": {
                "input_tokens": 7, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 5, "output_tokens": 7
            },
        })
    );
}

#[test]
fn reasoning_that_is_omitted_has_only_its_signature() {
    let events = [
        ModelEvent::ReasoningSummary(Literal::from_text("Hm.")),
        ModelEvent::ReasoningEnd { encrypted_content: Some("ams2.x".to_owned()) },
        text("Hi"),
        ModelEvent::Finish(Finish::Stop),
    ];
    let content = |display| both(&events, display, None).1["content"].clone();
    let thinking = |text: &str| json!({"type": "thinking", "thinking": text, "signature": "ams2.x"});
    let said = json!({"type": "text", "text": "Hi"});
    assert_eq!(content(ThinkingDisplay::Shown), json!([thinking("Hm."), said]));
    assert_eq!(content(ThinkingDisplay::Omitted), json!([thinking(""), said]));
    assert_eq!(content(ThinkingDisplay::Hidden), json!([said]));
}

#[test]
fn a_failure_ends_the_stream_with_one_error() {
    let mut emitter = emitter();
    emitter.begin();
    emitter.on(text("Hi")).unwrap();
    emitter.fail(amalgam_core::Fault::new(amalgam_core::FaultKind::Overloaded, "later").response_error());
    let batch = EventBatch::from_frames(emitter.take_frames());
    let mut stream = MessageStream::new(rendering(ThinkingDisplay::Shown));
    let mut frames = Writer::default();
    batch.events().for_each(|event| stream.on(&event, &mut frames));
    let events = read(frames.bytes());
    let expected = json!({"type": "error", "error": {"type": "overloaded_error", "message": "later"}});
    assert_eq!(events.last(), Some(&expected));
    assert_eq!(events.iter().filter(|event| event["type"] == "error").count(), 1);
}

#[test]
fn a_sign_of_life_is_a_ping() {
    let mut emitter = emitter();
    emitter.begin();
    emitter.keepalive();
    let batch = EventBatch::from_frames(emitter.take_frames());
    let mut stream = MessageStream::new(rendering(ThinkingDisplay::Shown));
    let mut frames = Writer::default();
    batch.events().for_each(|event| stream.on(&event, &mut frames));
    assert_eq!(read(frames.bytes()), [json!({"type": "ping"})], "the message begins when its prompt is counted");
}
