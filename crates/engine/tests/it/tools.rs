//! Turns with server-run tools: the rounds, their failures, and what is stored of them.

mod approvals;
mod bench;
mod caps;
mod keeping;
mod running;

use amalgam_core::{Delivery, ModelEvent, Policy};
use amalgam_protocol::Literal;
use serde_json::json;

use crate::{
    model::{Scripted, Step, call},
    tooled::{self, tool},
};
use bench::{Bench, echo, kinds};

#[tokio::test]
async fn a_call_is_run_and_the_model_is_asked_again_with_the_call_and_its_output() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let model = Scripted::new(vec![
            Ok(vec![Step::Say("a"), Step::Call("c1", "look", r#"{"n":1}"#), Step::Cost(10, 2), Step::Finish]),
            Ok(vec![Step::Say("b"), Step::Cost(20, 3), Step::Finish]),
        ]);
        let response = Bench::new().play(&model, delivery, vec![echo("look")]).await;
        assert_eq!(kinds(&response), ["message", "mcp_call", "message"]);
        let mut shown = response["output"][1].clone();
        assert!(shown["id"].take().as_str().unwrap().starts_with("mcp_AM-"));
        let expected = json!({
            "type": "mcp_call", "id": null, "status": "completed", "server_label": "bank", "name": "look",
            "arguments": r#"{"n":1}"#, "approval_request_id": null, "output": r#"{"saw":{"n":1}}"#, "error": null,
        });
        assert_eq!((&shown, &response["status"]), (&expected, &"completed".into()));
        // The sum of all rounds.
        assert_eq!((&response["usage"]["input_tokens"], &response["usage"]["output_tokens"]), (&30.into(), &5.into()));
        let requests = model.requests.lock().unwrap();
        assert_eq!(requests[0].said, ["User: hi"]);
        let again = ["User: hi", "Assistant: a", r#"call 0: look {"n":1}"#, r#"output 0: {"saw":{"n":1}}"#];
        assert_eq!((requests[1].said.as_slice(), requests.len()), (again.map(String::from).as_slice(), 2));
    }
}

#[tokio::test]
async fn the_client_gets_only_its_own_calls_in_the_models_order_after_the_servers_have_run() {
    // C-15
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let model = Scripted::new(vec![Ok(vec![
            Step::Call("c0", "client", r#"{"n":0}"#),
            Step::Call("c1", "look", r#"{"n":1}"#),
            Step::Say("between"),
            Step::Call("c2", "client", r#"{"n":2}"#),
            Step::Call("c3", "look", r#"{"n":3}"#),
            Step::Finish,
        ])]);
        let response = Bench::new().play(&model, delivery, vec![echo("look")]).await;
        assert_eq!(kinds(&response), ["function_call", "mcp_call", "message", "function_call", "mcp_call"]);
        let output = response["output"].as_array().unwrap();
        let calls: Vec<_> = output.iter().filter(|item| item["type"] == "function_call").collect();
        assert_eq!((&calls[0]["call_id"], &calls[1]["call_id"]), (&"c0".into(), &"c2".into()));
        assert_eq!(output[4]["output"], r#"{"saw":{"n":3}}"#);
        // Control is the client's now.
        assert_eq!((&response["status"], model.requests.lock().unwrap().len()), (&"completed".into(), 1));
    }
}

#[tokio::test]
async fn calls_whose_pieces_come_mixed_are_told_apart() {
    // A client-run call that is in progress when the server-run call begins, and one that begins after it.
    let pieces: Vec<_> =
        [call("c0", "client", "{}"), call("c1", "look", r#"{"n":1}"#), call("c2", "client", r#"{"n":2}"#)].into();
    let piece = |call: usize, part: usize| Step::Event(pieces[call][part].clone());
    let mut steps: Vec<Step> = [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (0, 1), (2, 2), (1, 2), (0, 2)]
        .map(|(call, part)| piece(call, part))
        .into();
    steps.push(Step::Finish);
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let model = Scripted::new(vec![Ok(steps.clone())]);
        let response = Bench::new().play(&model, delivery, vec![echo("look")]).await;
        let told: Vec<_> = response["output"].as_array().unwrap().iter().map(|item| &item["arguments"]).collect();
        assert_eq!(told, [r"{}", r#"{"n":1}"#, r#"{"n":2}"#]);
        assert_eq!(kinds(&response), ["function_call", "mcp_call", "function_call"]);
    }
}

#[tokio::test]
async fn thoughts_and_what_is_said_after_a_tool_go_back_to_the_model_in_their_place() {
    let thought = Step::Event(ModelEvent::ReasoningSummary(Literal::from_text("hm")));
    let model = Scripted::new(vec![
        Ok(vec![thought, Step::Call("c1", "look", "{}"), Step::Finish]),
        Ok(vec![Step::Call("c1", "look", r#"{"n":2}"#), Step::Finish]),
        Ok(vec![Step::Say("done"), Step::Finish]),
    ]);
    let told = Policy { after_call_instruction: Some("Name the source.".to_owned()), ..Policy::default() };
    let tools = vec![tool("look", told, tooled::Does(bench::saw))];
    let response = Bench::new().play(&model, Delivery::Stream, tools).await;
    assert_eq!(kinds(&response), ["reasoning", "mcp_call", "mcp_call", "message"]);
    let requests = model.requests.lock().unwrap();
    // An upstream that uses an id twice still gets pairs, and the instruction comes once.
    let said = &requests[2].said;
    assert!(said[1].starts_with("Reasoning"), "{said:?}");
    let rest = [
        "call 0: look {}",
        r#"output 0: {"saw":{}}"#,
        r#"call 1: look {"n":2}"#,
        r#"output 1: {"saw":{"n":2}}"#,
        "Developer: Name the source.",
    ];
    assert_eq!(said[2..], rest.map(String::from));
}

#[tokio::test]
async fn a_servers_tools_are_listed_before_anything_is_said() {
    let model = Scripted::new(vec![Ok(vec![Step::Say("a"), Step::Finish])]);
    let bench = Bench::new();
    let mut turn = bench.turn(&model, Delivery::Stream, vec![echo("look")]);
    turn.listings = vec![("docs".to_owned(), tooled::json(r#"[{"name":"find","input_schema":{}}]"#))];
    let response = bench.run(turn).await;
    assert_eq!(kinds(&response), ["mcp_list_tools", "message"]);
    assert_eq!(response["output"][0]["tools"][0]["name"], "find");
}
