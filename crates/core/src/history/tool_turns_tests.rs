//! right A1: the order for upstreams that require outputs directly after their calls.

use amalgam_protocol::ResponseParameters;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{
    normalise,
    normalise::tests::{items, short, strictly_paired},
};

fn arranged(items: Value) -> Vec<String> {
    let body = json!({ "input": items }).to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    strictly_paired(&history.in_tool_turns()).unwrap();
    history.in_tool_turns().iter().map(short).collect()
}

fn call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
}

fn output(id: &str) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": "out"})
}

fn said(role: &str) -> Value {
    json!({"role": role, "content": "hm"})
}

#[test]
fn a_message_between_a_call_and_its_output_goes_behind_the_output() {
    for role in ["user", "developer", "system"] {
        let expected = ["call a f".to_owned(), "output a out".into(), format!("{role}: hm")];
        assert_eq!(arranged(json!([call("a"), said(role), output("a")])), expected);
    }
}

#[test]
fn words_of_the_assistant_stay_in_the_answer_that_they_belong_to() {
    let expected = ["assistant: hm", "call a f", "call b f", "output a out", "output b out"];
    assert_eq!(
        arranged(json!([call("a"), said("assistant"), call("b"), output("b"), output("a")])),
        expected,
        "both orders of outputs become the order of the calls"
    );
    assert_eq!(
        arranged(json!([call("a"), said("assistant"), output("a"), said("assistant")])),
        ["assistant: hm", "call a f", "output a out", "assistant: hm"]
    );
}

#[test]
fn calls_on_both_sides_of_a_user_message_are_two_answers() {
    let items = json!([call("a"), said("user"), call("b"), output("a"), output("b")]);
    assert_eq!(arranged(items), ["call a f", "output a out", "user: hm", "call b f", "output b out"]);
}

#[test]
fn reasoning_stays_with_the_call_behind_it() {
    let thought = json!({"type": "reasoning", "summary": []});
    let items = json!([thought, call("a"), thought, call("b"), said("user"), output("a"), output("b")]);
    assert_eq!(
        arranged(items),
        ["reasoning", "call a f", "reasoning", "call b f", "output a out", "output b out", "user: hm"]
    );
    let items = json!([call("a"), thought, said("assistant"), output("a")]);
    assert_eq!(arranged(items), ["reasoning", "assistant: hm", "call a f", "output a out"]);
    let items = json!([call("a"), thought, output("a")]);
    assert_eq!(arranged(items), ["reasoning", "call a f", "output a out"]);
}

#[test]
fn a_history_in_order_is_borrowed() {
    let items = json!([
        said("user"),
        call("a"),
        call("b"),
        output("b"),
        output("a"),
        said("assistant"),
        call("c"),
        output("c")
    ]);
    let body = json!({ "input": items }).to_string();
    let parameters = body.parse::<ResponseParameters>().unwrap();
    let request = parameters.view().unwrap();
    let history = normalise(None, request.input.as_ref());
    assert!(matches!(history.in_tool_turns(), std::borrow::Cow::Borrowed(_)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_list_can_be_brought_in_order_without_losing_an_entry(items in items()) {
        let body = json!({ "input": items }).to_string();
        let parameters = body.parse::<ResponseParameters>().unwrap();
        let request = parameters.view().unwrap();
        let history = normalise(None, request.input.as_ref());
        let turns = history.in_tool_turns();
        prop_assert_eq!(strictly_paired(&turns), Ok(()));
        let sorted = |entries: &[super::Entry<'_>]| {
            let mut told: Vec<String> = entries.iter().map(short).collect();
            told.sort();
            told
        };
        prop_assert_eq!(sorted(&turns), sorted(&history.entries));
    }
}
