//! Every order of a model's events gives a correct stream, and the stream adds up to the whole response.

use amalgam_protocol::{ClientTool, CreateResponse, Effective};
use amalgam_testkit::{check, sse};
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use amalgam_core::{CallHead, CallKind, Finish, ItemExtra, PartOwner};

fn emitter(delivery: Delivery) -> Emitter {
    let request = CreateResponse::default();
    let settings = ResponseSettings::new(&request, Effective { model: "m", stored: false, background: false });
    Emitter::new(ResponseStart {
        response_id: "resp_AM-1700000000000-abcdefghijklmnopqrstuvwx".into(),
        created_at: 1_700_000_000,
        settings,
        delivery,
        ids: Ids::seeded(1),
        call_ids: false,
    })
}

fn text(delta: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(delta), logprobs: None }
}

fn start(key: u64, kind: CallKind, name: &str) -> ModelEvent {
    let call = CallHead { kind, call_id: Some(format!("call_{key}")), name: name.into(), namespace: None };
    ModelEvent::CallStart { key, call }
}

fn delta(key: u64, delta: &str) -> ModelEvent {
    ModelEvent::CallDelta { key, delta: Literal::from_text(delta) }
}

/// The events of a stream and its final response; the stream is checked on the way.
fn stream(events: &[ModelEvent]) -> (Vec<Value>, Value) {
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    for event in events {
        emitter.on(event.clone()).unwrap();
    }
    emitter.conclude(1_700_000_001);
    let bytes = emitter.take_frames();
    assert_eq!(check::body(&bytes), Vec::<String>::new(), "{}", String::from_utf8_lossy(&bytes));
    let response = serde_json::from_slice(&emitter.response()).unwrap();
    (sse::json_events(&bytes), response)
}

// right A4
#[test]
fn what_was_said_of_an_answer_that_is_not_complete_can_be_counted() {
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    let said = |events: Vec<ModelEvent>, emitter: &mut Emitter| {
        events.into_iter().for_each(|event| emitter.on(event).unwrap());
        let PartialAnswer { words, reasoning } = emitter.partial_answer();
        (words, reasoning)
    };
    let expected = |words: &str, reasoning: &str| (words.to_owned(), reasoning.to_owned());
    assert_eq!(emitter.partial_answer(), PartialAnswer::default());
    let thought = ModelEvent::ReasoningSummary(Literal::from_text("Hm \"so\""));
    assert_eq!(said(vec![thought], &mut emitter), expected("", "Hm \"so\""));
    assert_eq!(said(vec![text("One\n"), text("two")], &mut emitter), expected("One\ntwo", "Hm \"so\""));
    let calls = vec![
        start(1, CallKind::Function, "look"),
        delta(1, "{\"a\":"),
        start(2, CallKind::Function, "find"),
        delta(2, "{}"),
    ];
    assert_eq!(said(calls, &mut emitter), expected("One\ntwolook{\"a\":find{}", "Hm \"so\""));
    emitter.end_round();
    assert_eq!(emitter.partial_answer(), PartialAnswer::default(), "the next answer has not begun");
    assert_eq!(said(vec![text("Three")], &mut emitter), expected("Three", ""));
}

fn whole(events: &[ModelEvent]) -> Value {
    let mut emitter = emitter(Delivery::Whole);
    emitter.begin();
    for event in events {
        emitter.on(event.clone()).unwrap();
    }
    emitter.conclude(1_700_000_001);
    assert!(!emitter.has_frames());
    serde_json::from_slice(&emitter.response()).unwrap()
}

fn output(events: &[ModelEvent]) -> Value {
    stream(events).1["output"].clone()
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn a_text_answer_has_all_life_cycle_events_in_order() {
    // RAM-33, RAM-34, RAM-35, RAM-37
    let (events, response) = stream(&[text("Hel"), text("lo"), ModelEvent::Finish(Finish::Stop)]);
    assert_eq!(
        names(&events),
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    assert_eq!(response["output"][0]["content"][0]["text"], "Hello");
    assert_eq!(response["status"], "completed");
}

#[test]
fn a_call_closes_an_open_text_and_text_after_it_opens_a_new_message() {
    // RAM-38
    let output = output(&[
        text("a"),
        start(0, CallKind::Function, "f"),
        delta(0, "{}"),
        text("b"),
        ModelEvent::Finish(Finish::Stop),
    ]);
    let kinds: Vec<_> = output.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "function_call", "message"]);
    assert_ne!(output[0]["id"], output[2]["id"]);
}

#[test]
fn interleaved_calls_come_out_one_after_the_other() {
    let output = output(&[
        start(0, CallKind::Function, "f"),
        delta(0, "{\"a\":"),
        start(1, CallKind::Function, "g"),
        delta(1, "{\"b\""),
        delta(0, "1}"),
        delta(1, ":2}"),
        ModelEvent::Finish(Finish::Stop),
    ]);
    assert_eq!(
        json!([output[0]["arguments"], output[1]["arguments"], output[0]["name"], output[1]["call_id"]]),
        json!(["{\"a\":1}", "{\"b\":2}", "f", "call_1"])
    );
}

#[test]
fn a_call_without_arguments_has_an_empty_object() {
    // RAM-28
    let output = output(&[start(0, CallKind::Function, "f"), ModelEvent::Finish(Finish::Stop)]);
    assert_eq!(output[0]["arguments"], "{}");
}

#[test]
fn a_custom_call_has_events_and_items_of_its_own() {
    let (events, response) = stream(&[
        start(0, CallKind::Custom, "apply_patch"),
        delta(0, "*** Begin"),
        ModelEvent::CallEnd { key: 0 },
        ModelEvent::Finish(Finish::Stop),
    ]);
    assert!(names(&events).contains(&"response.custom_tool_call_input.delta"));
    assert_eq!(response["output"][0]["type"], "custom_tool_call");
    assert_eq!(response["output"][0]["input"], "*** Begin");
}

#[test]
fn a_shell_call_comes_out_as_its_own_item() {
    let output = output(&[
        start(0, CallKind::Client(ClientTool::LocalShell), "local_shell"),
        delta(0, "{\"command\":[\"ls\"]}"),
        ModelEvent::Finish(Finish::Stop),
    ]);
    assert_eq!(output[0]["type"], "local_shell_call");
    assert_eq!(output[0]["action"], json!({"type": "exec", "env": {}, "command": ["ls"]}));
}

#[test]
fn reasoning_are_summary_events_and_sealed_content_is_kept() {
    let (events, response) = stream(&[
        ModelEvent::ReasoningSummary(Literal::from_text("hm")),
        ModelEvent::ReasoningSummaryEnd,
        ModelEvent::ReasoningSummary(Literal::from_text("ah")),
        ModelEvent::ReasoningEnd { encrypted_content: Some("sealed".into()) },
        text("yes"),
        ModelEvent::Finish(Finish::Stop),
    ]);
    assert!(names(&events).contains(&"response.reasoning_summary_text.delta"));
    let reasoning = &response["output"][0];
    assert_eq!(
        reasoning["summary"],
        json!([{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "ah"}])
    );
    assert_eq!(reasoning["encrypted_content"], "sealed");
}

#[test]
fn an_answer_cut_at_its_length_is_incomplete_and_so_is_its_last_item() {
    let response = whole(&[text("a"), ModelEvent::Finish(Finish::Length)]);
    assert_eq!(response["status"], "incomplete");
    assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
    assert_eq!(response["output"][0]["status"], "incomplete");
    assert_eq!(response["completed_at"], Value::Null);
}

#[test]
fn an_item_that_ends_just_before_the_answer_is_cut_was_cut_itself() {
    let message = output(&[text("a"), ModelEvent::MessageEnd, ModelEvent::Finish(Finish::Length)]);
    assert_eq!(message[0]["status"], "incomplete");
    let calls = output(&[
        start(0, CallKind::Function, "f"),
        delta(0, "{}"),
        ModelEvent::CallEnd { key: 0 },
        start(1, CallKind::Function, "f"),
        delta(1, "{\"a\":"),
        ModelEvent::CallEnd { key: 1 },
        ModelEvent::Finish(Finish::Length),
    ]);
    assert_eq!(json!([calls[0]["status"], calls[1]["status"]]), json!(["completed", "incomplete"]));
    let whole = output(&[start(0, CallKind::Function, "f"), delta(0, "{}"), ModelEvent::Finish(Finish::Length)]);
    assert_eq!(whole[0]["status"], "completed");
}

#[test]
fn a_response_that_was_cut_and_then_failed_has_no_reason_of_the_cut() {
    // P5: the end could not be kept as it was.
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.on(ModelEvent::Finish(Finish::Length)).unwrap();
    let code = Some("server_error".into());
    emitter.fail(ErrorObject { message: "gone".into(), kind: "server_error".into(), param: None, code });
    assert_eq!(check::body(&emitter.take_frames()), Vec::<String>::new());
}

#[test]
fn a_failure_is_told_twice_and_then_nothing_follows() {
    // RAM-40
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.on(text("half")).unwrap();
    emitter.fail(ErrorObject {
        message: "gone".into(),
        kind: "server_error".into(),
        param: None,
        code: Some("server_error".into()),
    });
    let bytes = emitter.take_frames();
    assert_eq!(check::body(&bytes), Vec::<String>::new());
    let events = sse::json_events(&bytes);
    let (error, failed) = (&events[events.len() - 2], &events[events.len() - 1]);
    assert_eq!(json!([error["type"], error["message"], error["error"]["message"]]), json!(["error", "gone", "gone"]));
    assert_eq!(
        json!([failed["type"], failed["response"]["output"], failed["response"]["usage"]]),
        json!(["response.failed", [], null])
    );
    assert!(bytes.ends_with(b"data: [DONE]\n\n"));
}

#[test]
fn an_unknown_item_passes_along_with_its_events_renumbered() {
    let item = |status: &str| {
        Json::parse(&Bytes::from(json!({"type":"acme:thing","id":"x1","status":status,"more":[1]}).to_string()))
            .unwrap()
    };
    let event = Json::parse(&Bytes::from_static(
        br#"{"type":"acme:thing.went","sequence_number":99,"output_index":7,"item_id":"x1","z":1}"#,
    ))
    .unwrap();
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.on(text("a")).unwrap();
    emitter.on(ModelEvent::ItemStart { key: 4, item: item("in_progress") }).unwrap();
    emitter.on(ModelEvent::ItemProgress { key: Some(4), event }).unwrap();
    emitter.on(ModelEvent::ItemEnd { key: 4, item: item("completed") }).unwrap();
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1);
    let events = sse::json_events(&emitter.take_frames());
    let went = events.iter().position(|event| event["type"] == "acme:thing.went").unwrap();
    assert_eq!(
        events[went],
        json!({"type":"acme:thing.went","sequence_number":went,"output_index":1,"item_id":"x1","z":1})
    );
    assert_eq!(emitter.output()[1], item("completed"));
}

#[test]
fn items_that_pass_along_interleaved_are_told_once_each() {
    let item = |id: &str, status: &str| {
        let item = json!({"type": "web_search_call", "id": id, "status": status});
        Json::parse(&Bytes::from(item.to_string())).unwrap()
    };
    let went = |id: &str| {
        let event = json!({"type": "response.web_search_call.searching", "output_index": 7, "item_id": id});
        Json::parse(&Bytes::from(event.to_string())).unwrap()
    };
    let events = [
        ModelEvent::ItemStart { key: 0, item: item("a", "in_progress") },
        ModelEvent::ItemStart { key: 1, item: item("b", "in_progress") },
        ModelEvent::ItemProgress { key: Some(0), event: went("a") },
        text("Hi"),
        ModelEvent::ItemEnd { key: 1, item: item("b", "completed") },
        text(" there"),
        ModelEvent::ItemEnd { key: 0, item: item("a", "completed") },
        ModelEvent::Finish(Finish::Stop),
    ];
    let play = |delivery| {
        let mut emitter = emitter(delivery);
        emitter.begin();
        events.iter().for_each(|event| emitter.on(event.clone()).unwrap());
        emitter.conclude(1_700_000_001);
        emitter
    };
    let mut streamed = play(Delivery::Stream);
    assert_eq!(check::body(&streamed.take_frames()), Vec::<String>::new());
    assert_eq!(streamed.output(), play(Delivery::Whole).output());
    let [a, b, message] = streamed.output() else { panic!("{:?}", streamed.output()) };
    assert_eq!([a, b], [&item("a", "completed"), &item("b", "completed")]);
    assert_eq!(message.raw().get("content").unwrap().elements().next().unwrap().get_str("text").unwrap(), "Hi there");
}

#[test]
fn an_item_that_never_ends_is_told_as_far_as_it_came() {
    let item = Json::parse(&Bytes::from_static(br#"{"type":"acme:thing","id":"x"}"#)).unwrap();
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.on(ModelEvent::ItemStart { key: 0, item: item.clone() }).unwrap();
    emitter.on(text("a")).unwrap();
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1);
    let events = sse::json_events(&emitter.take_frames());
    let ends = events.iter().filter(|event| event["type"] == "response.output_item.done");
    assert_eq!(ends.map(|event| &event["output_index"]).collect::<Vec<_>>(), [&json!(1), &json!(0)]);
    assert_eq!(emitter.output()[0], item);
}

#[test]
fn arguments_that_come_after_a_calls_end_are_a_fault() {
    let mut emitter = emitter(Delivery::Whole);
    emitter.on(start(0, CallKind::Function, "f")).unwrap();
    emitter.on(delta(0, "{}")).unwrap();
    emitter.on(text("x")).unwrap();
    assert!(emitter.on(delta(0, "{}")).is_err());
}

fn any_event() -> impl Strategy<Value = ModelEvent> {
    let piece = "[a-zé\"\\\\\n😀]{0,4}";
    prop_oneof![
        4 => piece.prop_map(|piece| text(&piece)),
        1 => piece.prop_map(|piece| ModelEvent::Refusal(Literal::from_text(&piece))),
        1 => Just(ModelEvent::PartEnd),
        1 => prop::sample::select(vec![PartOwner::Message, PartOwner::Reasoning]).prop_map(|of| {
            let fields = Json::parse(&Bytes::from_static(br#"{"acme":1.50}"#)).unwrap();
            ModelEvent::Extra(ItemExtra::Item { of, fields })
        }),
        1 => Just(ModelEvent::MessageEnd),
        1 => Just(ModelEvent::MessageStart { phase: Some("commentary".into()) }),
        2 => piece.prop_map(|piece| ModelEvent::ReasoningSummary(Literal::from_text(&piece))),
        1 => Just(ModelEvent::ReasoningSummaryEnd),
        1 => prop::option::of(Just("sealed".to_owned())).prop_map(|encrypted_content| ModelEvent::ReasoningEnd { encrypted_content }),
    ]
}

/// Calls whose pieces are interleaved at will, between other events.
fn any_answer() -> impl Strategy<Value = Vec<ModelEvent>> {
    let call = (prop::bool::ANY, prop::collection::vec("[a-z\"\\\\é]{0,5}", 1..4));
    let finish = prop::sample::select(vec![Finish::Stop, Finish::Length, Finish::ContentFilter]);
    (
        prop::collection::vec(any_event(), 0..12),
        prop::collection::vec(call, 0..4),
        prop::collection::vec(0..4_usize, 12),
        finish,
    )
        .prop_map(|(mut events, calls, order, finish)| {
            let mut scripts: Vec<VecDeque<ModelEvent>> = calls
                .iter()
                .enumerate()
                .map(|(index, (custom, pieces))| {
                    let key = index as u64;
                    let kind = if *custom { CallKind::Custom } else { CallKind::Function };
                    let mut script = VecDeque::from([start(key, kind, "f")]);
                    script.extend(pieces.iter().map(|piece| delta(key, piece)));
                    script
                })
                .collect();
            for turn in order {
                if let Some(event) = scripts.get_mut(turn).and_then(VecDeque::pop_front) {
                    events.push(event);
                }
            }
            // A delta whose call has not begun cannot come from an adapter: the rest follows call by call.
            events.extend(scripts.into_iter().flatten());
            events.push(ModelEvent::Usage(Usage { input_tokens: 1, output_tokens: 2, ..Usage::default() }));
            events.push(ModelEvent::Finish(finish));
            events
        })
}

proptest! {
    #[test]
    fn any_answer_gives_a_correct_stream_that_adds_up_to_the_whole(events in any_answer()) {
        let (streamed, response) = stream(&events);
        prop_assert_eq!(&streamed.last().unwrap()["response"], &response);
        prop_assert_eq!(&whole(&events), &response);
    }
}
