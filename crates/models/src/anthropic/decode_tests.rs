use amalgam_core::{AnswerContext, Delivery};
use amalgam_protocol::{Reader, ResponseParameters};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{super::convert::tests::PlainSeal, *};

fn decoder(tools: Value, own: Option<&str>, wants_sealed_reasoning: bool) -> Decoder {
    let request = json!({"tools": tools}).to_string();
    let parameters = request.parse::<ResponseParameters>().unwrap();
    let settings = parameters.view().unwrap();
    let toolset = amalgam_core::Toolset::plain(&settings, &amalgam_core::History::default()).unwrap();
    let prepared = PreparedRequest {
        body: Bytes::new(),
        losses: Vec::new(),
        delivery: Delivery::Stream,
        calls: toolset.call_map(),
        answer_context: AnswerContext {
            model: "m".to_owned(),
            seal_context: "t".to_owned(),
            wants_sealed_reasoning,
            own: own.map(str::to_owned),
            ..AnswerContext::default()
        },
    };
    Decoder::new(&prepared, "claude", Arc::new(PlainSeal))
}

fn plain() -> Decoder {
    decoder(json!([]), None, false)
}

fn try_streamed(mut decoder: Decoder, frames: &[Value]) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let mut events = Vec::new();
    for frame in frames {
        let frame = Frame { event: None, data: frame.to_string().into() };
        if let Err(error) = decoder.frame(frame, &mut events) {
            return (events, Err(error));
        }
    }
    let end = if decoder.done { Ok(()) } else { decoder.end(&mut events) };
    (counted_last(events), end)
}

/// The events without counts that a later one replaces: a stream counts its prompt at the beginning, too.
fn counted_last(mut events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let is_count = |event: &ModelEvent| matches!(event, ModelEvent::Usage(_));
    let last = events.iter().rposition(is_count);
    let mut place = 0;
    events.retain(|event| {
        place += 1;
        !is_count(event) || Some(place - 1) == last
    });
    events
}

fn streamed(decoder: Decoder, frames: &[Value]) -> Vec<ModelEvent> {
    let (events, end) = try_streamed(decoder, frames);
    end.unwrap();
    events
}

fn whole(mut decoder: Decoder, message: &Value) -> Vec<ModelEvent> {
    let mut events = Vec::new();
    decoder.whole(message.to_string().into(), &mut events).unwrap();
    events
}

/// The events with adjacent text deltas joined, so that only the text counts.
fn folded(events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let join = |one: &Literal, other: &Literal| Literal::from_text(&(one.decode() + &other.decode()));
    let mut folded: Vec<ModelEvent> = Vec::new();
    for event in events {
        let joined = match (folded.last(), &event) {
            (Some(ModelEvent::Text { delta: one, .. }), ModelEvent::Text { delta, .. }) => {
                Some(ModelEvent::Text { delta: join(one, delta), logprobs: None })
            }
            (Some(ModelEvent::ReasoningSummary(one)), ModelEvent::ReasoningSummary(delta)) => {
                Some(ModelEvent::ReasoningSummary(join(one, delta)))
            }
            (Some(ModelEvent::CallDelta { key: same, delta: one }), ModelEvent::CallDelta { key, delta })
                if same == key =>
            {
                Some(ModelEvent::CallDelta { key: *key, delta: join(one, delta) })
            }
            _ => None,
        };
        match joined {
            Some(joined) => *folded.last_mut().unwrap() = joined,
            None => folded.push(event),
        }
    }
    folded
}

fn message_start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
        "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 1}}})
}

fn start(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn ending(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ]
}

fn begun() -> ModelEvent {
    ModelEvent::Begun { id: Some("msg_1".into()), model: Some("claude-x".into()) }
}

fn usage() -> ModelEvent {
    ModelEvent::Usage(Usage {
        input_tokens: 330,
        cached_tokens: 300,
        cache_write_tokens: 20,
        output_tokens: 42,
        ..Usage::default()
    })
}

fn said(text: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(text), logprobs: None }
}

fn called(key: u64, kind: CallKind, id: &str, name: &str) -> ModelEvent {
    let call = CallHead { kind, call_id: Some(id.to_owned()), name: name.to_owned(), namespace: None };
    ModelEvent::CallStart { key, call }
}

fn argued(key: u64, text: &str) -> ModelEvent {
    ModelEvent::CallDelta { key, delta: Literal::from_text(text) }
}

fn seal(block: Value) -> Option<String> {
    let plain = format!(r#"{{"upstream":"claude","model":"m","blocks":[{block}]}}"#);
    Some(PlainSeal.seal("t", plain.as_bytes()))
}

/// Thinking, text, two calls and a block of an unknown kind.
fn rich_stream() -> Vec<Value> {
    let mut frames = vec![
        message_start(),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "let \"me\""})),
        delta(0, json!({"type": "thinking_delta", "thinking": " see"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig=="})),
        stop(0),
        start(1, json!({"type": "redacted_thinking", "data": "secret"})),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Grüße "})),
        delta(2, json!({"type": "text_delta", "text": "\u{1F600}\n"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"city\":"})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "\"Oslo\"}"})),
        stop(3),
        start(4, json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}})),
        delta(4, json!({"type": "input_json_delta", "partial_json": "{}"})),
        stop(4),
        start(5, json!({"type": "tool_use", "id": "toolu_2", "name": "patch", "input": {}})),
        delta(5, json!({"type": "input_json_delta", "partial_json": "{\"input\": \"*** Be"})),
        delta(5, json!({"type": "input_json_delta", "partial_json": "gin\\n\"}"})),
        stop(5),
        start(6, json!({"type": "tool_use", "id": "toolu_3", "name": "now", "input": {}})),
        stop(6),
    ];
    frames.extend(ending("tool_use"));
    frames
}

fn rich_message() -> Value {
    json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "content": [
        {"type": "thinking", "thinking": "let \"me\" see", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "text", "text": "Grüße \u{1F600}\n"},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "tool_use", "id": "toolu_2", "name": "patch", "input": {"input": "*** Begin\n"}},
        {"type": "tool_use", "id": "toolu_3", "name": "now", "input": {}}
    ], "stop_reason": "tool_use", "stop_sequence": null,
    "usage": {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 42}})
}

fn rich_tools() -> Value {
    json!([{"type": "function", "name": "weather"}, {"type": "custom", "name": "patch"}, {"type": "function", "name": "now"}])
}

fn rich_events() -> Vec<ModelEvent> {
    vec![
        begun(),
        ModelEvent::ReasoningSummary(Literal::from_text("let \"me\" see")),
        ModelEvent::ReasoningEnd {
            encrypted_content: seal(json!({"type": "thinking", "thinking": "let \"me\" see", "signature": "sig=="})),
        },
        ModelEvent::ReasoningEnd { encrypted_content: seal(json!({"type": "redacted_thinking", "data": "secret"})) },
        said("Grüße \u{1F600}\n"),
        ModelEvent::MessageEnd,
        called(3, CallKind::Function, "toolu_1", "weather"),
        argued(3, r#"{"city":"Oslo"}"#),
        ModelEvent::CallEnd { key: 3 },
        called(5, CallKind::Custom, "toolu_2", "patch"),
        argued(5, "*** Begin\n"),
        ModelEvent::CallEnd { key: 5 },
        called(6, CallKind::Function, "toolu_3", "now"),
        argued(6, "{}"),
        ModelEvent::CallEnd { key: 6 },
        usage(),
        ModelEvent::Finish(Finish::Stop),
    ]
}

/// Sealed JSON compared as values: the order of keys is the writer's own.
fn opened(events: Vec<ModelEvent>) -> Vec<ModelEvent> {
    let open = |sealed: String| {
        let plain = PlainSeal.open("t", &sealed).unwrap();
        serde_json::from_slice::<Value>(&plain).unwrap().to_string()
    };
    let map = |event| match event {
        ModelEvent::ReasoningEnd { encrypted_content } => {
            ModelEvent::ReasoningEnd { encrypted_content: encrypted_content.map(open) }
        }
        event => event,
    };
    events.into_iter().map(map).collect()
}

#[test]
fn a_stream_and_a_whole_answer_say_the_same() {
    let from_stream = folded(streamed(decoder(rich_tools(), None, true), &rich_stream()));
    let from_whole = folded(whole(decoder(rich_tools(), None, true), &rich_message()));
    assert_eq!(opened(from_stream), opened(rich_events()));
    assert_eq!(opened(from_whole), opened(rich_events()));
}

#[test]
fn reasoning_are_sealed_only_when_the_client_asked() {
    let events = streamed(decoder(rich_tools(), None, false), &rich_stream());
    let ends: Vec<&ModelEvent> =
        events.iter().filter(|event| matches!(event, ModelEvent::ReasoningEnd { .. })).collect();
    assert_eq!(ends, vec![&ModelEvent::ReasoningEnd { encrypted_content: None }]);
}

#[test]
fn every_stop_reason_is_understood() {
    let finish = |reason: &str| {
        let frames = [vec![message_start()], ending(reason).to_vec()].concat();
        match streamed(plain(), &frames).pop() {
            Some(ModelEvent::Finish(finish)) => finish,
            other => panic!("{other:?}"),
        }
    };
    for reason in ["end_turn", "stop_sequence", "tool_use", "something_new"] {
        assert_eq!(finish(reason), Finish::Stop, "{reason}");
    }
    assert_eq!(finish("max_tokens"), Finish::Length);
    assert_eq!(finish("model_context_window_exceeded"), Finish::Length);
    assert_eq!(finish("refusal"), Finish::ContentFilter);
    assert_eq!(finish("pause_turn"), Finish::Incomplete("pause_turn".into()));
}

#[test]
fn a_refusal_says_why_where_the_upstream_does() {
    let details = json!({"type": "refusal", "category": "bio", "explanation": "No."});
    let frames = [
        message_start(),
        json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}, "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ];
    let expected = vec![
        begun(),
        ModelEvent::Refusal(Literal::from_text("No.")),
        ModelEvent::MessageEnd,
        usage(),
        ModelEvent::Finish(Finish::ContentFilter),
    ];
    assert_eq!(streamed(plain(), &frames), expected);
}

#[test]
fn errors_inside_a_stream_have_the_status_they_have_outside() {
    let expected = [
        ("overloaded_error", 529),
        ("rate_limit_error", 429),
        ("invalid_request_error", 400),
        ("authentication_error", 401),
        ("api_error", 500),
        ("new_error", 500),
    ];
    for (kind, expected) in expected {
        let frames = [message_start(), json!({"type": "error", "error": {"type": kind, "message": "Sorry"}})];
        match try_streamed(plain(), &frames).1 {
            Err(ModelError::Refused { status, message, code, .. }) => {
                assert_eq!((status, message.as_deref(), code.as_deref()), (expected, Some("Sorry"), Some(kind)));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_that_ends_before_its_stop_is_cut_short() {
    let frames = rich_stream();
    for length in 0..frames.len() {
        let (events, end) = try_streamed(decoder(rich_tools(), None, true), &frames[..length]);
        assert!(matches!(end, Err(ModelError::CutShort)), "{length}");
        assert!(!events.iter().any(|event| matches!(event, ModelEvent::Finish(_))));
    }
}

#[test]
fn citations_of_pages_become_annotations_of_the_text_they_support() {
    let citation = json!({"type": "web_search_result_location", "url": "https://x.example/", "title": "X", "cited_text": "…", "encrypted_index": "e"});
    let mut frames = vec![
        message_start(),
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "Ü\n"})),
        stop(0),
        start(1, json!({"type": "text", "text": "", "citations": []})),
        delta(1, json!({"type": "citations_delta", "citation": citation})),
        delta(1, json!({"type": "citations_delta", "citation": {"type": "char_location", "document_index": 0}})),
        delta(1, json!({"type": "text_delta", "text": "fact"})),
        stop(1),
    ];
    frames.extend(ending("end_turn"));
    let annotations: Vec<Value> = streamed(plain(), &frames)
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Annotation(json) => Some(serde_json::from_slice(json.bytes()).unwrap()),
            _ => None,
        })
        .collect();
    assert_eq!(
        annotations,
        vec![
            json!({"type": "url_citation", "start_index": 2, "end_index": 6, "url": "https://x.example/", "title": "X"})
        ]
    );
}

fn answer_stream(chatter: &str, tool: &str, pieces: &[&str]) -> Vec<Value> {
    let mut frames = vec![message_start()];
    frames.extend([
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": chatter})),
        stop(0),
    ]);
    frames.push(start(1, json!({"type": "tool_use", "id": "toolu_9", "name": tool, "input": {}})));
    frames.extend(pieces.iter().map(|piece| delta(1, json!({"type": "input_json_delta", "partial_json": piece}))));
    frames.push(stop(1));
    frames.extend(ending("tool_use"));
    frames
}

fn spoken(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::Text { delta, .. } => Some(delta.decode()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

#[test]
fn the_input_of_the_answers_tool_is_the_text_and_chatter_is_not() {
    let frames = answer_stream("Here you go:", "amalgam_json", &["{\"n\"", ":1}"]);
    let events = folded(streamed(decoder(json!([]), Some("tool amalgam_json"), false), &frames));
    let expected = vec![begun(), said("{\"n\":1}"), ModelEvent::MessageEnd, usage(), ModelEvent::Finish(Finish::Stop)];
    assert_eq!(events, expected);

    let wrapped = answer_stream(" ", "amalgam_json", &["{\"answer\"", ": [1, 2]}"]);
    let events = streamed(decoder(json!([]), Some("wrapped amalgam_json"), false), &wrapped);
    assert_eq!(spoken(&events), "[1, 2]");
}

#[test]
fn text_beside_a_real_call_is_passed_on_before_the_call() {
    let frames = answer_stream("Let me look.", "weather", &["{}"]);
    let events = streamed(decoder(rich_tools(), Some("tool amalgam_json"), false), &frames);
    let expected = vec![
        begun(),
        said("Let me look."),
        ModelEvent::MessageEnd,
        called(1, CallKind::Function, "toolu_9", "weather"),
        argued(1, "{}"),
        ModelEvent::CallEnd { key: 1 },
        usage(),
        ModelEvent::Finish(Finish::Stop),
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_json_object_comes_out_without_its_fence() {
    let answer = |text: &str| {
        let mut frames = vec![message_start(), start(0, json!({"type": "text", "text": text})), stop(0)];
        frames.extend(ending("end_turn"));
        spoken(&streamed(decoder(json!([]), Some("object"), false), &frames))
    };
    assert_eq!(answer("```json\n{\"a\": {}}\n```\n"), "{\"a\": {}}");
    assert_eq!(answer("Sure! {\"a\":1} Bye"), "{\"a\":1}");
    assert_eq!(answer("no json here"), "no json here");
}

#[test]
fn dirty_streams_are_read_as_far_as_they_make_sense() {
    // No start of the block, no stop of it, a kind that only the event line names, a second wire's ending.
    let mut decoder = plain();
    let mut events = Vec::new();
    let frames = [
        (Some("message_start"), r#"{"message":{"id":"msg_1","model":"claude-x"}}"#),
        (None, r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#),
        (None, r#"{"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta","partial_json":"{"}}"#),
        (None, r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":null}}"#),
        (None, r#"{"type":"message_stop"}"#),
        (None, "[DONE]"),
    ];
    for (event, data) in frames {
        let frame = Frame {
            event: event.map(|event: &str| Bytes::copy_from_slice(event.as_bytes())),
            data: Bytes::from_static(data.as_bytes()),
        };
        decoder.frame(frame, &mut events).unwrap();
    }
    // The upstream reported no usage, so that it can be estimated.
    assert_eq!(events, vec![begun(), said("Hi"), ModelEvent::MessageEnd, ModelEvent::Finish(Finish::Stop)]);
}

#[test]
fn counts_past_every_number_stay_at_the_largest() {
    let mut events = Vec::new();
    let usage = json!({"input_tokens": u64::MAX, "cache_read_input_tokens": 1, "output_tokens": 1});
    let body = json!({"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage});
    plain().whole(body.to_string().into(), &mut events).unwrap();
    let usage = events.iter().find_map(|event| match event {
        ModelEvent::Usage(usage) => Some((usage.input_tokens, usage.total())),
        _ => None,
    });
    assert_eq!(usage, Some((u64::MAX, u64::MAX)));
}

#[test]
fn what_is_no_json_cannot_be_read() {
    let mut events = Vec::new();
    let frame = Frame { event: None, data: Bytes::from_static(b"{\"type\":") };
    assert!(matches!(plain().frame(frame, &mut events), Err(ModelError::Unreadable(_))));
    assert!(matches!(plain().whole(Bytes::from_static(b"<html>"), &mut events), Err(ModelError::Unreadable(_))));
    assert!(matches!(plain().whole(Bytes::from_static(b"{}"), &mut events), Err(ModelError::Unreadable(_))));
    let error = Bytes::from_static(br#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#);
    assert!(matches!(plain().whole(error, &mut events), Err(ModelError::Refused { status: 529, .. })));
    assert_eq!(events, Vec::new());
}

proptest! {
    #[test]
    fn any_cutting_of_the_bytes_gives_the_same_events(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let text: String = rich_stream().iter().map(|frame| format!("event: x\ndata: {frame}\n\n")).collect();
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.extend([0, text.len()]);
        places.sort_unstable();
        let mut reader = Reader::new(1 << 20);
        let mut decoder = decoder(rich_tools(), None, true);
        let mut events = Vec::new();
        for pair in places.windows(2) {
            reader.push(Bytes::copy_from_slice(&text.as_bytes()[pair[0]..pair[1]]));
            while let Some(frame) = reader.frame().unwrap() {
                decoder.frame(frame, &mut events).unwrap();
            }
        }
        prop_assert_eq!(opened(folded(counted_last(events))), opened(rich_events()));
    }

    #[test]
    fn any_order_of_frames_ends_in_an_error_or_in_one_finish(order in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let frames = rich_stream();
        let chosen: Vec<Value> = order.iter().map(|index| frames[index.index(frames.len())].clone()).collect();
        let (events, end) = try_streamed(decoder(rich_tools(), None, true), &chosen);
        let finishes = events.iter().filter(|event| matches!(event, ModelEvent::Finish(_))).count();
        prop_assert_eq!(finishes, usize::from(end.is_ok()));
    }
}
