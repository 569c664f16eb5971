use amalgam_core::{AnswerContext, CallMap, Delivery};
use serde_json::{Value, json};

use super::*;
use crate::testing::PlainSeal;

/// The content of an answer, in order.
#[derive(Debug, Clone, PartialEq)]
enum Decoded {
    Text(String),
    Refusal(String),
    Thought(String),
    Call { id: Option<String>, name: String, arguments: String, ended: bool },
}

#[derive(Debug, Clone, PartialEq)]
struct Answer {
    said: Vec<Decoded>,
    usage: Option<Usage>,
    finish: Finish,
}

fn prepared() -> PreparedRequest {
    PreparedRequest {
        body: Bytes::new(),
        losses: Vec::new(),
        delivery: Delivery::Stream,
        calls: CallMap::default(),
        answer_context: AnswerContext { wants_logprobs: true, ..AnswerContext::default() },
    }
}

fn frame(data: &str) -> Frame {
    Frame { event: None, data: Bytes::copy_from_slice(data.as_bytes()) }
}

/// The events of a stream; `[DONE]` is a frame like any other.
fn streamed(frames: &[Value]) -> Result<Vec<ModelEvent>, ModelError> {
    let mut decoder = Decoder::new(&prepared(), "here", Arc::new(PlainSeal));
    let mut events = Vec::new();
    for value in frames {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        decoder.frame(frame(&text), &mut events)?;
    }
    if !matches!(events.last(), Some(ModelEvent::Finish(_))) {
        decoder.end(&mut events)?;
    }
    Ok(events)
}

fn whole(body: &Value) -> Result<Vec<ModelEvent>, ModelError> {
    let mut events = Vec::new();
    Decoder::new(&prepared(), "here", Arc::new(PlainSeal)).whole(body.to_string().into(), &mut events)?;
    Ok(events)
}

fn folded(events: Vec<ModelEvent>) -> Answer {
    let mut answer = Answer { said: Vec::new(), usage: None, finish: Finish::Stop };
    let mut places = Vec::new();
    let mut finished = false;
    for event in events {
        assert!(!finished, "nothing follows the end");
        match (event, answer.said.last_mut()) {
            (ModelEvent::Text { delta, .. }, Some(Decoded::Text(text))) => text.push_str(&delta.decode()),
            (ModelEvent::Text { delta, .. }, _) => answer.said.push(Decoded::Text(delta.decode())),
            (ModelEvent::Refusal(delta), Some(Decoded::Refusal(text))) => text.push_str(&delta.decode()),
            (ModelEvent::Refusal(delta), _) => answer.said.push(Decoded::Refusal(delta.decode())),
            (ModelEvent::ReasoningSummary(delta), Some(Decoded::Thought(text))) => text.push_str(&delta.decode()),
            (ModelEvent::ReasoningSummary(delta), _) => answer.said.push(Decoded::Thought(delta.decode())),
            (ModelEvent::CallStart { key, call }, _) => {
                assert_eq!(key as usize, places.len(), "calls begin in order");
                places.push(answer.said.len());
                answer.said.push(Decoded::Call {
                    id: call.call_id,
                    name: call.name,
                    arguments: String::new(),
                    ended: false,
                });
            }
            (ModelEvent::CallDelta { key, delta }, _) => match &mut answer.said[places[key as usize]] {
                Decoded::Call { arguments, ended: false, .. } => arguments.push_str(&delta.decode()),
                other => panic!("more of {other:?}"),
            },
            (ModelEvent::CallEnd { key }, _) => match &mut answer.said[places[key as usize]] {
                Decoded::Call { ended, .. } => assert!(!std::mem::replace(ended, true)),
                other => panic!("an end of {other:?}"),
            },
            (ModelEvent::Usage(usage), _) => answer.usage = Some(usage),
            (ModelEvent::Finish(finish), _) => (answer.finish, finished) = (finish, true),
            (ModelEvent::Begun { .. } | ModelEvent::ReasoningEnd { .. } | ModelEvent::Annotation(_), _) => {}
            (other, _) => panic!("unexpected {other:?}"),
        }
    }
    assert!(finished, "an answer has an end");
    answer
}

fn delta(delta: Value) -> Value {
    json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": null}], "usage": null})
}

fn end(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn text(text: &str) -> Decoded {
    Decoded::Text(text.to_owned())
}

fn called(id: Option<&str>, name: &str, arguments: &str) -> Decoded {
    Decoded::Call { id: id.map(str::to_owned), name: name.to_owned(), arguments: arguments.to_owned(), ended: true }
}

fn said(frames: &[Value]) -> Vec<Decoded> {
    folded(streamed(frames).unwrap()).said
}

#[test]
fn a_stream_gives_text_usage_and_one_end() {
    let events = streamed(&[
        json!({"id": "chatcmpl-1", "model": "m-1", "choices": []}),
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"content": "h\u{e9} \"q\""})),
        delta(json!({"content": "\n😀"})),
        end("stop"),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
        json!("[DONE]"),
        json!("[DONE]"),
    ])
    .unwrap();
    let piece = |text: &str| ModelEvent::Text { delta: Literal::from_text(text), logprobs: None };
    let usage = Usage {
        input_tokens: 9,
        cached_tokens: 4,
        output_tokens: 5,
        reasoning_tokens: 2,
        total_tokens: Some(14),
        ..Usage::default()
    };
    assert_eq!(
        events,
        [
            ModelEvent::Begun { id: Some("chatcmpl-1".into()), model: Some("m-1".into()) },
            piece("h\u{e9} \"q\""),
            piece("\n😀"),
            ModelEvent::Usage(usage),
            ModelEvent::Finish(Finish::Stop)
        ]
    );
}

#[test]
fn whole_and_streamed_answers_add_up_to_the_same() {
    // C-22
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 4, "prompt_cache_hit_tokens": 2});
    let from_stream = folded(
        streamed(&[
            delta(json!({"reasoning_content": "hm", "content": ""})),
            delta(json!({"reasoning_content": "m", "content": null})),
            delta(json!({"content": "Look"})),
            delta(json!({"content": "ing."})),
            delta(json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "a", "arguments": ""}}]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\":"}}]})),
            delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"é\"}"}}]})),
            delta(json!({"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "b", "arguments": ""}}]})),
            end("tool_calls"),
            json!({"choices": [], "usage": usage}),
            json!("[DONE]"),
        ])
        .unwrap(),
    );
    let from_whole = folded(
        whole(&json!({"id": "1", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": "Looking.", "reasoning_content": "hmm", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "a", "arguments": "{\"x\":\"é\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "b", "arguments": ""}}
            ]
        }}], "usage": usage}))
        .unwrap(),
    );
    assert_eq!(from_stream, from_whole);
    assert_eq!(
        from_whole.said,
        [
            Decoded::Thought("hmm".into()),
            text("Looking."),
            called(Some("c1"), "a", "{\"x\":\"é\"}"),
            called(Some("c2"), "b", "{}")
        ]
    );
    assert_eq!(from_whole.usage.map(|usage| usage.cached_tokens), Some(2));
}

#[test]
fn reasoning_come_under_many_names_and_end_where_the_answer_begins() {
    let thought = |text: &str| Decoded::Thought(text.to_owned());
    for thoughts in [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning": "hm", "reasoning_content": "hm"}),
        json!({"reasoning_content": "", "reasoning": "hm"}),
        json!({"reasoning": {"content": "hm"}}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]}),
    ] {
        let events = streamed(&[delta(thoughts.clone()), delta(json!({"content": "So."})), end("stop")]).unwrap();
        assert!(
            matches!(
                &events[1..4],
                [
                    ModelEvent::ReasoningSummary(_),
                    ModelEvent::ReasoningEnd { encrypted_content: None },
                    ModelEvent::Text { .. }
                ]
            ),
            "{thoughts}: {events:?}"
        );
        assert_eq!(folded(events).said, [thought("hm"), text("So.")], "{thoughts}");
    }
    // Tags inside the text are text.
    assert_eq!(said(&[delta(json!({"content": "<think>hm</think>"})), end("stop")]), [text("<think>hm</think>")]);
}

#[test]
fn refusals_parts_and_citations_are_read() {
    assert_eq!(
        said(&[delta(json!({"refusal": "I can"})), delta(json!({"refusal": "not."})), end("stop")]),
        [Decoded::Refusal("I cannot.".into())]
    );
    assert_eq!(
        said(&[
            delta(
                json!({"content": [{"type": "text", "text": "a"}, "b", {"type": "reference", "reference_ids": [1]}]})
            ),
            end("stop")
        ]),
        [text("ab")]
    );
    let citation = json!({"type": "url_citation", "url_citation": {"start_index": 0, "end_index": 1, "url": "https://e.org", "title": "E"}});
    let events = whole(&json!({"choices": [{"message": {"content": "a", "annotations": [citation, {"type": "file_citation", "file_id": "f"}]}}]})).unwrap();
    let annotations: Vec<Value> = events
        .iter()
        .filter_map(|event| match event {
            ModelEvent::Annotation(json) => serde_json::from_slice(json.bytes()).ok(),
            _ => None,
        })
        .collect();
    assert_eq!(
        annotations,
        [
            json!({"type": "url_citation", "start_index": 0, "end_index": 1, "url": "https://e.org", "title": "E"}),
            json!({"type": "file_citation", "file_id": "f"})
        ]
    );
}

#[test]
fn log_probabilities_have_all_fields_of_the_responses_wire() {
    let full = json!({"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []});
    let bare = json!({"token": "é", "logprob": -1, "top_logprobs": [{"token": "e", "logprob": -2, "bytes": null}]});
    let probabilities = |content: Value| {
        let chunk = json!({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": content}}]});
        match streamed(&[chunk, end("stop")]).unwrap().swap_remove(1) {
            ModelEvent::Text { logprobs, .. } => serde_json::from_slice::<Value>(logprobs.unwrap().bytes()).unwrap(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(probabilities(json!([full])), json!([full]));
    assert_eq!(
        probabilities(json!([full, bare])),
        json!([full, {"token": "é", "logprob": -1, "bytes": [195, 169], "top_logprobs": [{"token": "e", "logprob": -2, "bytes": [101]}]}])
    );
}

#[test]
fn every_finish_reason_means_something() {
    let finish = |reason: Value| {
        let last = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": reason}]});
        folded(streamed(&[last, json!("[DONE]")]).unwrap()).finish
    };
    for reason in ["stop", "tool_calls", "function_call", "eos", "stop_sequence", ""] {
        assert_eq!(finish(json!(reason)), Finish::Stop, "{reason}");
    }
    assert_eq!(finish(json!(null)), Finish::Stop, "[DONE] alone is an end once something was said");
    assert_eq!(finish(json!("length")), Finish::Length);
    assert_eq!(finish(json!("content_filter")), Finish::ContentFilter);
    for reason in ["insufficient_system_resource", "error", "abort"] {
        assert!(matches!(finish(json!(reason)), Finish::Failed(_)), "{reason}");
    }
    // A later `stop` takes nothing back.
    let frames = [delta(json!({"content": "a"})), end("length"), end("stop")];
    assert_eq!(folded(streamed(&frames).unwrap()).finish, Finish::Length);
}

#[test]
fn a_stream_without_its_final_event_is_cut_short() {
    let word = delta(json!({"content": "a"}));
    assert!(matches!(streamed(std::slice::from_ref(&word)), Err(ModelError::CutShort)));
    assert!(matches!(streamed(&[json!("[DONE]")]), Err(ModelError::CutShort)));
    assert!(matches!(streamed(&[delta(json!({"role": "assistant"})), json!("[DONE]")]), Err(ModelError::CutShort)));
    assert!(matches!(streamed(&[]), Err(ModelError::CutShort)));
    assert!(matches!(streamed(&[json!("{\"choices\":")]), Err(ModelError::Unreadable(_))));
    assert_eq!(folded(streamed(&[word, end("stop")]).unwrap()).said, [text("a")], "[DONE] may be missing");
    assert_eq!(folded(streamed(&[end("stop")]).unwrap()).said, [], "nothing to say is an answer");
    assert!(matches!(whole(&json!({"choices": []})), Err(ModelError::Unreadable(_))));
    assert_eq!(folded(whole(&json!({"choices": [{"message": {"content": null}}]})).unwrap()).said, []);
}

#[test]
fn an_error_in_place_of_an_answer_is_an_error_and_inside_one_a_failure() {
    let error = json!({"error": {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}});
    for refused in [
        streamed(std::slice::from_ref(&error)),
        whole(&error),
        streamed(&[delta(json!({"role": "assistant"})), error.clone()]),
    ] {
        assert!(matches!(refused, Err(ModelError::Refused { status: 429, .. })), "{refused:?}");
    }
    let flat = json!({"object": "error", "message": "no such model", "type": "NotFoundError", "code": 404});
    assert!(matches!(streamed(&[flat]), Err(ModelError::Refused { status: 404, .. })));
    assert!(matches!(whole(&json!({"error": "out of memory"})), Err(ModelError::Refused { status: 500, .. })));

    let answer = folded(streamed(&[delta(json!({"content": "Well"})), error]).unwrap());
    assert_eq!(answer.said, [text("Well")]);
    assert!(matches!(answer.finish, Finish::Failed(fault) if fault.kind == FaultKind::UpstreamBusy));
}

#[test]
fn usage_is_the_last_word_and_nothing_when_it_says_nothing() {
    let usage = |frames: &[Value]| {
        folded(streamed(frames).unwrap()).usage.map(|usage| (usage.input_tokens, usage.output_tokens))
    };
    let with = |usage: Value| {
        let mut chunk = delta(json!({"content": "a"}));
        chunk["usage"] = usage;
        chunk
    };
    let counted = |prompt: u64, completion: u64| json!({"prompt_tokens": prompt, "completion_tokens": completion});
    assert_eq!(usage(&[with(counted(5, 1)), with(counted(5, 2)), end("stop")]), Some((5, 2)));
    assert_eq!(usage(&[with(counted(5, 1)), with(json!(null)), end("stop")]), Some((5, 1)));
    assert_eq!(usage(&[with(counted(0, 0)), end("stop")]), None);
    assert_eq!(
        usage(&[with(json!({})), end("stop"), json!({"choices": [], "x_groq": {"usage": counted(7, 8)}})]),
        Some((7, 8))
    );
    let moonshot = json!({"choices": [{"delta": {}, "finish_reason": "stop", "usage": counted(3, 4)}]});
    assert_eq!(usage(&[with(json!(null)), moonshot]), Some((3, 4)));
}

#[test]
fn what_is_said_after_a_call_began_does_not_end_the_call() {
    let fragment = |arguments: &str| delta(json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}));
    let head = delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]}));
    assert_eq!(
        said(&[head.clone(), delta(json!({"content": "By the way"})), fragment("}"), end("tool_calls")]),
        [called(Some("c"), "f", "{}"), text("By the way")]
    );
    assert_eq!(
        said(&[head, delta(json!({"content": "\n"})), fragment("}"), end("tool_calls")]),
        [called(Some("c"), "f", "{}")]
    );
}

#[test]
fn a_call_that_was_cut_off_stays_open() {
    let head =
        delta(json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\":"}}]}));
    let answer = folded(streamed(&[head, end("length")]).unwrap());
    assert_eq!(
        answer.said,
        [Decoded::Call { id: Some("c".into()), name: "f".into(), arguments: "{\"a\":".into(), ended: false }]
    );
    assert_eq!(answer.finish, Finish::Length);
}

#[test]
fn reasoning_are_sealed_with_the_field_that_they_came_in() {
    let thought = |field: &str, text: &str| json!({"choices": [{"delta": {field: text}}]});
    let said = |text: &str| json!({"choices": [{"delta": {"content": text}}]});
    let call = json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}}]});
    let sealed = |field: &str, frames: &[Value]| {
        let mut prepared = prepared();
        prepared.answer_context = AnswerContext {
            model: "m".to_owned(),
            seal_context: "t".to_owned(),
            wants_sealed_reasoning: true,
            ..AnswerContext::default()
        };
        let mut decoder = Decoder::new(&prepared, "here", Arc::new(PlainSeal));
        let mut events = Vec::new();
        for value in frames {
            decoder.frame(frame(&value.to_string()), &mut events).unwrap();
        }
        decoder.frame(frame("[DONE]"), &mut events).unwrap();
        let ends = events.iter().filter_map(|event| match event {
            ModelEvent::ReasoningEnd { encrypted_content } => encrypted_content.clone(),
            _ => None,
        });
        let ends: Vec<String> = ends.collect();
        let expected = |text: &str| {
            let plain = format!(r#"{{"upstream":"here","model":"m","field":"{field}","text":"{text}"}}"#);
            PlainSeal.seal("t", plain.as_bytes())
        };
        (ends, expected("ab"), expected("late"))
    };
    for field in REASONING_FIELDS {
        let (ends, first, _) = sealed(field, &[thought(field, "a"), thought(field, "b"), said("x")]);
        assert_eq!(ends, [first]);
        let (ends, first, _) = sealed(field, &[thought(field, "ab"), call.clone()]);
        assert_eq!(ends, [first]);
        let (ends, first, late) = sealed(field, &[thought(field, "ab"), call.clone(), thought(field, "late")]);
        assert_eq!(ends, [first, late]);
    }
}
