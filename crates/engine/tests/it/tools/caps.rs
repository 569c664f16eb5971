//! What bounds a turn: rounds, calls, repairs, tokens, the same call again and again; and a choice that holds once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use amalgam_core::{Delivery, Finish, Policy, ServerTool, turn::Caps};
use amalgam_engine::ToolLimits;
use serde_json::Value;

use super::bench::{Bench, echo, kinds, saw};
use crate::{
    model::{Scripted, Step},
    tooled::{Does, Doing, Seen, tool},
};

fn bench(caps: Caps) -> Bench {
    Bench::with(ToolLimits { caps, ..ToolLimits::default() })
}

fn reason(response: &Value) -> (&str, &str) {
    (response["status"].as_str().unwrap(), response["incomplete_details"]["reason"].as_str().unwrap_or_default())
}

fn counted() -> (ServerTool, Arc<AtomicUsize>) {
    let ran: Arc<AtomicUsize> = Arc::default();
    let counter = Arc::clone(&ran);
    let count = move |seen: Seen| -> Doing {
        counter.fetch_add(1, Ordering::SeqCst);
        saw(seen)
    };
    (tool("look", Policy::default(), Does(count)), ran)
}

#[tokio::test]
async fn at_the_cap_of_rounds_the_model_is_asked_once_more_without_tools_and_the_response_is_incomplete() {
    // C-16, O-27
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let model = Scripted::new(vec![
            Ok(vec![Step::Call("c1", "look", r#"{"n":1}"#), Step::Finish]),
            Ok(vec![Step::Call("c2", "look", r#"{"n":2}"#), Step::Finish]),
            // It calls a tool all the same: that call does not run, so it is not shown.
            Ok(vec![Step::Say("enough"), Step::Call("c3", "look", r#"{"n":3}"#), Step::Finish]),
        ]);
        let response = bench(Caps { rounds: 2, ..Caps::default() }).play(&model, delivery, vec![echo("look")]).await;
        assert_eq!(reason(&response), ("incomplete", "max_tool_iterations"));
        assert_eq!(kinds(&response), ["mcp_call", "mcp_call", "message"]);
        let choices: Vec<_> = model.requests.lock().unwrap().iter().map(|asked| asked.choice.clone()).collect();
        assert_eq!(choices, [None, None, Some("None".to_owned())]);
    }
}

#[tokio::test]
async fn no_more_calls_run_than_the_caller_wants() {
    let (look, ran) = counted();
    let model = Scripted::new(vec![
        Ok(vec![Step::Call("c1", "look", r#"{"n":1}"#), Step::Call("c2", "look", r#"{"n":2}"#), Step::Finish]),
        Ok(vec![Step::Say("enough"), Step::Finish]),
    ]);
    let bench = Bench::new();
    let mut turn = bench.turn(&model, Delivery::Stream, vec![look]);
    turn.max_calls = Some(1);
    let response = bench.run(turn).await;
    assert_eq!(reason(&response), ("incomplete", "max_tool_calls"));
    assert_eq!((ran.load(Ordering::SeqCst), &response["output"][1]["status"]), (1, &"failed".into()));
    assert_eq!(model.requests.lock().unwrap()[1].choice.as_deref(), Some("None"));
}

#[tokio::test]
async fn a_flood_of_calls_in_one_answer_is_cut_and_every_one_is_answered() {
    let (look, ran) = counted();
    const ARGUMENTS: [&str; 4] = [r#"{"n":0}"#, r#"{"n":1}"#, r#"{"n":2}"#, r#"{"n":3}"#];
    let mut flood: Vec<Step> = (0..200).map(|call| Step::Call("c", "look", ARGUMENTS[call % 4])).collect();
    flood.push(Step::Finish);
    let model = Scripted::new(vec![Ok(flood), Ok(vec![Step::Say("done"), Step::Finish])]);
    let response = Bench::new().play(&model, Delivery::Stream, vec![look]).await;
    assert_eq!((ran.load(Ordering::SeqCst), kinds(&response).len()), (32, 201));
    let said = &model.requests.lock().unwrap()[1].said;
    assert_eq!(said.iter().filter(|line| line.starts_with("output")).count(), 200);
    assert!(said.last().unwrap().contains("too many calls in one answer"));
}

#[tokio::test]
async fn arguments_may_be_mended_a_bounded_number_of_times() {
    let bad = || Ok(vec![Step::Call("c", "look", r#"{"bad":1}"#), Step::Finish]);
    let model = Scripted::new(vec![bad(), bad(), Ok(vec![Step::Say("I cannot"), Step::Finish])]);
    let response =
        bench(Caps { repairs: 2, ..Caps::default() }).play(&model, Delivery::Whole, vec![echo("look")]).await;
    assert_eq!(reason(&response), ("incomplete", "max_tool_repairs"));
}

#[tokio::test]
async fn the_same_call_again_and_again_is_warned_of_and_then_answered_without_being_run() {
    // O-29
    let same = || Ok(vec![Step::Call("c", "look", r#"{"n":1}"#), Step::Finish]);
    let model = Scripted::new(vec![same(), same(), same(), Ok(vec![Step::Say("done"), Step::Finish])]);
    let (look, ran) = counted();
    let response = Bench::new().play(&model, Delivery::Stream, vec![look]).await;
    assert_eq!((ran.load(Ordering::SeqCst), reason(&response)), (2, ("completed", "")));
    let suppressed: Value = serde_json::from_str(response["output"][2]["output"].as_str().unwrap()).unwrap();
    assert_eq!((&suppressed["suppressed"], &suppressed["tool"]), (&true.into(), &"look".into()));
    let requests = model.requests.lock().unwrap();
    assert!(!requests[1].said.iter().any(|line| line.starts_with("Developer")));
    assert!(requests[2].said.last().unwrap().starts_with("Developer: The tool `look` was called again"));
}

#[tokio::test]
async fn the_callers_tokens_are_shared_by_all_rounds() {
    for (second, expected) in [(3, ("completed", "")), (4, ("incomplete", "max_output_tokens"))] {
        let model = Scripted::new(vec![
            Ok(vec![Step::Call("c1", "look", r#"{"n":1}"#), Step::Cost(5, 6), Step::Finish]),
            Ok(vec![Step::Call("c2", "look", r#"{"n":2}"#), Step::Cost(5, second), Step::Finish]),
            Ok(vec![Step::Say("done"), Step::Cost(5, 1), Step::Finish]),
        ]);
        let bench = Bench::new();
        let mut turn = bench.turn(&model, Delivery::Whole, vec![echo("look")]);
        turn.body = r#"{"model":"m","input":"hi","max_output_tokens":10}"#;
        let response = bench.run(turn).await;
        assert_eq!(reason(&response), expected);
        let left: Vec<_> = model.requests.lock().unwrap().iter().map(|asked| asked.output_tokens).collect();
        // Without tokens left, no model is called.
        let asked = if second == 3 { vec![Some(10), Some(4), Some(1)] } else { vec![Some(10), Some(4)] };
        assert_eq!(left, asked);
    }
}

#[tokio::test]
async fn an_answer_that_was_cut_ends_the_turn_and_its_calls_are_not_run() {
    let (look, ran) = counted();
    let model = Scripted::new(vec![Ok(vec![
        Step::Say("a"),
        Step::Call("c1", "look", r#"{"n":1}"#),
        Step::End(Finish::Length),
    ])]);
    let response = Bench::new().play(&model, Delivery::Stream, vec![look]).await;
    assert_eq!((reason(&response), kinds(&response)), (("incomplete", "max_output_tokens"), vec!["message"]));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_forced_choice_holds_for_the_first_call_of_a_turn_only() {
    // C-30
    let named = r#"{"type":"function","name":"look"}"#;
    for (choice, first) in [(r#""required""#, "Required".to_owned()), (named, format!(r#"Function("look", {named})"#))]
    {
        let model = Scripted::new(vec![
            Ok(vec![Step::Call("c1", "look", "{}"), Step::Finish]),
            Ok(vec![Step::Say("done"), Step::Finish]),
        ]);
        let bench = Bench::new();
        let body = format!(
            r#"{{"model":"m","input":"hi","tools":[{{"type":"function","name":"look"}}],"tool_choice":{choice}}}"#
        );
        let mut turn = bench.turn(&model, Delivery::Whole, vec![echo("look")]);
        turn.body = &body;
        assert_eq!(bench.run(turn).await["status"], "completed");
        let requests = model.requests.lock().unwrap();
        let choices: Vec<_> = requests.iter().map(|asked| (asked.choice.as_deref().unwrap(), asked.tools)).collect();
        assert_eq!(choices, [(&*first, 1), ("Auto", 1)]);
    }
}
