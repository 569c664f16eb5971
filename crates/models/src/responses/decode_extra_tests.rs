//! Fields of an upstream's item that this version does not have are passed on with it.

use proptest::prelude::*;

use super::*;

fn streaming() -> Emitter {
    let effective = Effective { model: "m", stored: false, background: false };
    let mut emitter = Emitter::new(ResponseStart {
        response_id: "resp_1".to_owned(),
        created_at: 0,
        settings: ResponseSettings::new(&CreateResponse::default(), effective),
        delivery: Delivery::Stream,
        ids: Ids::seeded(1),
        call_ids: false,
    });
    emitter.begin();
    emitter
}

/// The events that a client receives in a stream.
fn frames(events: Vec<ModelEvent>) -> Vec<Value> {
    let mut emitter = streaming();
    events.into_iter().for_each(|event| emitter.on(event).unwrap());
    if emitter.is_finished() {
        emitter.conclude(1);
    }
    let frames = String::from_utf8(emitter.take_frames()).unwrap();
    frames.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect()
}

/// The items of a streamed response, from the events that end them and from the response; ids are made equal, and the
/// sealed form of reasoning is left out.
fn told(events: Vec<ModelEvent>) -> (Vec<Value>, Vec<Value>) {
    let same_id = |item: &Value| {
        let mut item = item.clone();
        item["id"] = json!("id");
        item.as_object_mut().unwrap().remove("encrypted_content");
        item
    };
    let events = frames(events);
    let ends = events.iter().filter(|event| event["type"] == "response.output_item.done");
    let response = &events.last().unwrap()["response"];
    (
        ends.map(|event| same_id(&event["item"])).collect(),
        response["output"].as_array().unwrap().iter().map(same_id).collect(),
    )
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            fields_of(inner).prop_map(Value::Object),
        ]
    })
}

fn fields_of(value: impl Strategy<Value = Value>) -> impl Strategy<Value = serde_json::Map<String, Value>> {
    prop::collection::btree_map("x_[a-zé\"]{0,4}", value, 0..4).prop_map(|fields| fields.into_iter().collect())
}

fn with(mut object: Value, fields: serde_json::Map<String, Value>) -> Value {
    object.as_object_mut().unwrap().extend(fields);
    object
}

/// Items of all kinds that are decoded, each with fields of its own, as this program writes them.
fn items() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(fields_of(value()), 8).prop_map(|fields| {
        let mut fields = fields.into_iter();
        let mut with = |object: Value| with(object, fields.next().unwrap());
        let content = json!([
            with(json!({"type": "output_text", "text": "Grüße, gern", "annotations": [], "logprobs": []})),
            with(json!({"type": "acme:blob", "data": [1, null]})),
            with(json!({"type": "refusal", "refusal": "No."})),
            json!({"type": "output_text", "text": "Bye", "annotations": [], "logprobs": []}),
        ]);
        let summary = json!([with(json!({"type": "summary_text", "text": "One"})), {"type": "summary_text", "text": "Two"}]);
        vec![
            with(json!({"type": "reasoning", "id": "id", "summary": summary})),
            with(json!({"type": "message", "id": "id", "status": "completed", "role": "assistant", "phase": "final_answer", "content": content})),
            with(json!({"type": "function_call", "id": "id", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"})),
            with(json!({"type": "custom_tool_call", "id": "id", "status": "completed", "call_id": "c2", "name": "g", "input": "x"})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_an_item_has_beyond_its_kind_arrives_with_it(items in items()) {
        let (ends, output) = told(whole(&json!({"status": "completed", "output": items})).unwrap());
        prop_assert_eq!(&output, &items);
        prop_assert_eq!(&ends, &items);

        let (events, ended) = streamed(&clean(&items, &Value::Null));
        ended.unwrap();
        let (ends, output) = told(events);
        prop_assert_eq!(&output, &items);
        prop_assert_eq!(&ends, &items);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn unknown_events_pass_with_their_fields(name in "[a-z]{1,6}\\.[a-z_]{1,8}", fields in fields_of(value())) {
        let event = with(json!({"type": name}), fields);
        let (events, _) = streamed(std::slice::from_ref(&event));
        let [ModelEvent::ItemProgress { key: None, event: passed }] = &events[..] else { panic!("{events:?}") };
        prop_assert_eq!(passed.raw().text(), event.to_string());

        let mut frames = frames(events);
        frames.remove(0);
        frames.remove(0);
        frames[0].as_object_mut().unwrap().remove("sequence_number");
        prop_assert_eq!(&frames[0], &event);
    }
}

#[test]
fn unknown_values_stay_as_they_were_written() {
    let body = r#"{"status":"completed","output":[{"type":"function_call","id":"x","call_id":"c","name":"f","arguments":"{}","extra_content": { "a" : 1.50e2, "b":"\u00e9" }}]}"#;
    let mut events = Vec::new();
    decoder().whole(body.into(), &mut events).unwrap();
    let fields = events.iter().find_map(|event| match event {
        ModelEvent::Extra(ItemExtra::Call { fields, .. }) => Some(fields.raw().text().to_owned()),
        _ => None,
    });
    assert_eq!(fields.as_deref(), Some(r#"{"extra_content":{ "a" : 1.50e2, "b":"\u00e9" }}"#));
}

#[test]
fn ids_and_the_status_stay_ours() {
    let item = json!({"type": "function_call", "id": "theirs", "status": "odd", "call_id": "c", "name": "f", "arguments": "{}", "acme": 1});
    let (ends, output) = told(whole(&json!({"status": "completed", "output": [item]})).unwrap());
    let expected = json!({"type": "function_call", "id": "id", "status": "completed", "call_id": "c", "name": "f", "arguments": "{}", "acme": 1});
    assert_eq!((ends, output), (vec![expected.clone()], vec![expected]));
}

#[test]
fn parts_of_unknown_kinds_stay_where_they_stood() {
    let content = json!([
        {"type": "text", "text": "a"},
        {"type": "acme:text", "text": "b"},
        {"type": "reasoning_text", "text": "c"},
        {"type": "output_text", "text": "", "acme": 1},
        {"type": "output_text", "text": "d"},
        {"type": "input_file", "file_id": 7},
    ]);
    let item = json!({"type": "message", "role": "assistant", "content": content});
    let (_, output) = told(whole(&json!({"status": "completed", "output": [item]})).unwrap());
    let text = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let empty = with(text(""), serde_json::Map::from_iter([("acme".to_owned(), json!(1))]));
    let expected = json!([text("a"), content[1], content[2], empty, text("d")]);
    assert_eq!(output[0]["content"], expected);
}

#[test]
fn fields_that_come_when_the_next_call_has_begun_are_in_the_response() {
    let call = |id: &str, more: Value| {
        let mut call = json!({"type": "function_call", "id": id, "call_id": id, "name": "f", "arguments": "{}"});
        call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        call
    };
    let added = |index: u64, id: &str| json!({"type": "response.output_item.added", "output_index": index, "item": call(id, json!({"arguments": ""}))});
    let delta =
        |index: u64| json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": "{}"});
    let done = |index: u64, id: &str| json!({"type": "response.output_item.done", "output_index": index, "item": call(id, json!({"acme": index}))});
    let (events, ended) = streamed(&[
        added(0, "a"),
        delta(0),
        added(1, "b"),
        delta(1),
        done(0, "a"),
        done(1, "b"),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ]);
    ended.unwrap();
    let (_, output) = told(events);
    assert_eq!(
        output.iter().map(|item| (&item["call_id"], &item["acme"])).collect::<Vec<_>>(),
        [(&json!("a"), &json!(0)), (&json!("b"), &json!(1))]
    );
}
