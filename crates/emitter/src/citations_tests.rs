//! Searches as they are shown and kept, and what the model cites of them.

use amalgam_protocol::{CreateResponse, Effective, ResponseSettings};
use amalgam_testkit::{check, sse};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{HostedCall, HostedCallResult, ResponseStart};
use amalgam_core::{CallDisplay, Delivery, Finish, Ids, ModelEvent, file_search, file_search::Results};

fn emitter(delivery: Delivery) -> Emitter {
    let settings =
        ResponseSettings::new(&CreateResponse::default(), Effective { model: "m", stored: false, background: false });
    Emitter::new(ResponseStart {
        response_id: "resp_AM-1700000000000-abcdefghijklmnopqrstuvwx".into(),
        created_at: 1_700_000_000,
        settings,
        delivery,
        ids: Ids::seeded(1),
        call_ids: false,
    })
}

fn say(text: &str) -> ModelEvent {
    ModelEvent::Text { delta: Literal::from_text(text), logprobs: None }
}

fn call(results: bool) -> HostedCall {
    HostedCall {
        id: "fs_1".to_owned(),
        shown: CallDisplay::FileSearch { results },
        call_id: "call_1".to_owned(),
        label: "bank".to_owned(),
        name: "file_search".to_owned(),
        arguments: r#"{"queries":["how often","retry"]}"#.to_owned(),
        approval_request_id: None,
    }
}

fn found() -> Value {
    let result = |id: &str, path: &str| {
        json!({"file_id": format!("docs/{path}"), "filename": path, "score": 0.5,
               "attributes": {"marker": format!("[kb:{id}]"), "lines": "1-2"}, "text": "t"})
    };
    json!([result("7", "guide.md"), result("a-8", "käse.md")])
}

/// A search, and then these pieces of text, each of them a delta.
fn play(emitter: &mut Emitter, results: bool, said: &[&str]) {
    emitter.begin();
    emitter.begin_hosted(&call(results));
    emitter.end_hosted(&call(results), &HostedCallResult { output: found().to_string(), error: None });
    emitter.end_round();
    said.iter().for_each(|text| emitter.on(say(text)).unwrap());
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1_700_000_001);
}

/// The response, streamed and whole, which are the same.
fn response(results: bool, said: &[&str]) -> (Value, Vec<Value>) {
    let mut streamed = emitter(Delivery::Stream);
    play(&mut streamed, results, said);
    let bytes = streamed.take_frames();
    assert_eq!(check::body(&bytes), Vec::<String>::new(), "{}", String::from_utf8_lossy(&bytes));
    let mut whole = emitter(Delivery::Whole);
    play(&mut whole, results, said);
    let response: Value = serde_json::from_slice(&whole.response()).unwrap();
    let events = sse::json_events(&bytes);
    assert_eq!(events.last().unwrap()["response"], response);
    (response, events)
}

fn text_of(response: &Value) -> (&str, &Value) {
    let part = &response["output"][1]["content"][0];
    (part["text"].as_str().unwrap(), &part["annotations"])
}

fn citation(index: usize, path: &str) -> Value {
    json!({"type": "file_citation", "index": index, "file_id": format!("docs/{path}"), "filename": path})
}

#[test]
fn markers_of_what_was_found_become_annotations_where_they_stand() {
    for (said, text, annotations) in [
        ("Twice[kb:7].", "Twice.", json!([citation(5, "guide.md")])),
        ("Grüße[kb:a-8][kb:7]!", "Grüße!", json!([citation(5, "käse.md"), citation(5, "guide.md")])),
        ("[kb:7]", "", json!([citation(0, "guide.md")])),
        // Of an unknown id, of another form, or never finished: text.
        ("[kb:9] [kb:] [kb:7 ] [x] a[0] [kb:7", "[kb:9] [kb:] [kb:7 ] [x] a[0] [kb:7", json!([])),
        ("[[kb:7]]", "[]", json!([citation(1, "guide.md")])),
        ("[kb:[kb:7]", "[kb:", json!([citation(4, "guide.md")])),
    ] {
        let (response, _) = response(false, &[said]);
        assert_eq!(text_of(&response), (text, &annotations), "{said}");
    }
}

#[test]
fn a_marker_in_pieces_is_never_half_shown() {
    let (response, events) = response(false, &["It is", " so [", "k", "b:7", "]. And [kb", "!"]);
    assert_eq!(text_of(&response), ("It is so . And [kb!", &json!([citation(9, "guide.md")])));
    let told: Vec<String> = events
        .iter()
        .filter_map(|event| match event["type"].as_str()? {
            "response.output_text.delta" => Some(event["delta"].as_str()?.to_owned()),
            "response.output_text.annotation.added" => Some(format!("{}", event["annotation"]["index"])),
            _ => None,
        })
        .collect();
    assert_eq!(told, ["It is", " so ", "9", ". And ", "[kb!"]);
}

#[test]
fn without_a_search_nothing_is_kept_back_and_nothing_is_cited() {
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.on(say("See [")).unwrap();
    assert!(emitter.citations.is_none());
    let frames = String::from_utf8(emitter.take_frames()).unwrap();
    assert!(frames.contains(r#""delta":"See [""#), "{frames}");
}

#[test]
fn log_probabilities_come_with_the_text_that_was_kept_back() {
    let mut emitter = emitter(Delivery::Whole);
    emitter.begin_hosted(&call(false));
    emitter.end_hosted(&call(false), &HostedCallResult { output: found().to_string(), error: None });
    for token in ["a", "[k", "x]"] {
        let logprobs = Json::parse(&json!([{"token": token}]).to_string().into()).unwrap();
        emitter.on(ModelEvent::Text { delta: Literal::from_text(token), logprobs: Some(logprobs) }).unwrap();
    }
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    let response: Value = serde_json::from_slice(&emitter.response()).unwrap();
    let part = &response["output"][1]["content"][0];
    assert_eq!(part["text"], "a[kx]");
    assert_eq!(part["logprobs"], json!([{"token": "a"}, {"token": "[k"}, {"token": "x]"}]));
}

#[test]
fn a_search_is_told_step_by_step_and_kept_with_what_it_found() {
    let (response, events) = response(false, &["Done."]);
    let of_search: Vec<&str> = events
        .iter()
        .filter(|event| event["item_id"] == "fs_1" || event["item"]["id"] == "fs_1")
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let expected = [
        "response.output_item.added",
        "response.file_search_call.in_progress",
        "response.file_search_call.searching",
        "response.file_search_call.completed",
        "response.output_item.done",
    ];
    assert_eq!(of_search, expected);
    let shown = json!({"type": "file_search_call", "id": "fs_1", "status": "completed",
                       "queries": ["how often", "retry"], "results": null});
    assert_eq!(response["output"][0], shown);

    let mut emitter = emitter(Delivery::Whole);
    play(&mut emitter, false, &["Done."]);
    let kept: Value = serde_json::from_slice(emitter.kept_output()[0].bytes()).unwrap();
    let mut expected = shown;
    expected["kept_output"] = found();
    expected["kept_call_id"] = json!("call_1");
    expected["kept_round"] = json!(0);
    assert_eq!(kept, expected);
}

#[test]
fn results_are_returned_to_callers_that_include_them() {
    let (response, _) = response(true, &["Done."]);
    assert_eq!(response["output"][0]["results"], found());
    let mut emitter = emitter(Delivery::Whole);
    play(&mut emitter, true, &["Done."]);
    let kept = emitter.kept_output().into_owned().into_iter();
    let again: Vec<_> = kept.map(|item| file_search::shown(item, Results::Hidden)).collect();
    assert_eq!(again, emitter.output());
}

#[test]
fn a_search_that_failed_says_so_in_its_item() {
    let mut emitter = emitter(Delivery::Stream);
    emitter.begin();
    emitter.begin_hosted(&call(true));
    let output = r#"{"error":"the tool could not be run"}"#.to_owned();
    emitter.end_hosted(&call(true), &HostedCallResult { output, error: Some("the tool could not be run".to_owned()) });
    emitter.on(ModelEvent::Finish(Finish::Stop)).unwrap();
    emitter.conclude(1_700_000_001);
    let events = sse::json_events(&emitter.take_frames());
    let item = &events.last().unwrap()["response"]["output"][0];
    assert_eq!((&item["status"], &item["results"]), (&json!("failed"), &Value::Null));
    assert!(!events.iter().any(|event| event["type"] == "response.file_search_call.completed"));
    let kept: Value = serde_json::from_slice(emitter.kept_output()[0].bytes()).unwrap();
    assert_eq!(kept["kept_output"]["error"], "the tool could not be run");
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_answer(
        words in prop::collection::vec(
            prop::sample::select(vec!["[kb:7]", "[kb:9]", "[", "kb", ":", "7", "]", "ü", " x ", "[kb:a-8]"]), 1..12),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let said = words.concat();
        let places: Vec<usize> = said.char_indices().map(|(place, _)| place).collect();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).collect();
        ends.extend([0, said.len()]);
        ends.sort_unstable();
        let pieces: Vec<&str> = ends.windows(2).map(|pair| said.get(pair[0]..pair[1]).unwrap()).collect();
        prop_assert_eq!(response(false, &pieces).0, response(false, &[&said]).0);
    }
}
