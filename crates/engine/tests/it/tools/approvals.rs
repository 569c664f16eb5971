//! Calls that need an approval.

use std::sync::{Arc, Mutex};

use amalgam_core::{
    Decider, Delivery, Policy, ServerTool,
    store::{Approval, Decision, DecisionOutcome},
};

use super::bench::{Bench, echo, kinds, saw};
use crate::{
    kept::scope,
    model::{Scripted, Step},
    tooled::{Does, Doing, Seen, tool},
};

/// A tool that needs a yes, and what it saw.
fn guarded() -> (ServerTool, Arc<Mutex<Vec<Seen>>>) {
    let ran: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let keeps = Arc::clone(&ran);
    let notes = move |seen: Seen| -> Doing {
        keeps.lock().unwrap().push(seen.clone());
        saw(seen)
    };
    let policy = Policy { requires_approval: Some(Decider::Caller), ..Policy::default() };
    (tool("buy", policy, Does(notes)), ran)
}

fn asks_to_buy() -> Arc<Scripted> {
    Scripted::new(vec![Ok(vec![
        Step::Call("c1", "buy", r#"{"n":1}"#),
        Step::Call("c2", "look", r#"{"n":2}"#),
        Step::Finish,
    ])])
}

/// A call that another turn has requested, and that its caller has approved.
async fn agreed(bench: &Bench, buy: &ServerTool, delivery: Delivery) -> Approval {
    let first = bench.play(&asks_to_buy(), delivery, vec![buy.clone(), echo("look")]).await;
    let asked = first["output"][0]["id"].as_str().unwrap();
    let decision = Decision { approve: true, reason: None, by: "user".to_owned(), at_ms: 1_700_000_000_001 };
    match bench.store.decide(&scope(), asked, decision).await.unwrap().unwrap() {
        DecisionOutcome::Stands(approval) => *approval,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_call_that_needs_a_yes_ends_the_response_and_waits_in_the_store() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let (buy, ran) = guarded();
        let response = bench.play(&asks_to_buy(), delivery, vec![buy, echo("look")]).await;
        // Those that need none have run.
        assert_eq!(kinds(&response), ["mcp_approval_request", "mcp_call"]);
        assert_eq!((&response["status"], ran.lock().unwrap().len()), (&"completed".into(), 0));
        let asked = &response["output"][0];
        let approval = bench.store.approval(&scope(), asked["id"].as_str().unwrap()).await.unwrap().unwrap();
        assert_eq!(approval.arguments, asked["arguments"].as_str().unwrap());
        assert_eq!((approval.name.as_str(), approval.call_id.as_str()), ("buy", "c1"));
        assert_eq!((approval.decider, approval.decision), (Decider::Caller, None));
        assert_eq!(approval.expires_at_ms - approval.asked_at_ms, 24 * 3600 * 1000);
    }
}

#[tokio::test]
async fn what_was_approved_comes_first_in_the_next_turn() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let (buy, ran) = guarded();
        let approval = agreed(&bench, &buy, delivery).await;
        let asked = approval.id.clone();
        let model = Scripted::new(vec![Ok(vec![Step::Say("done"), Step::Finish])]);
        let mut turn = bench.turn(&model, delivery, vec![buy, echo("look")]);
        turn.decided = vec![approval];
        let response = bench.run(turn).await;
        assert_eq!(kinds(&response), ["mcp_call", "message"]);
        let call = &response["output"][0];
        assert_eq!(call["approval_request_id"], asked.as_str());
        let output = r#"{"saw":{"n":1}}"#;
        assert_eq!(call["output"], output);
        let record = bench.record(response["id"].as_str().unwrap()).await;
        assert_eq!(record.tools[0].outcome.as_ref().unwrap().output.raw().text(), output);
        let ran = ran.lock().unwrap();
        // Even if this turn is repeated, the service can recognise the same call.
        assert!(ran.len() == 1 && ran.iter().all(|seen| seen.key == asked && seen.call_id == "c1"));
        let requests = model.requests.lock().unwrap();
        let said = [r#"call 0: buy {"n":1}"#.to_owned(), format!("output 0: {output}")];
        assert_eq!((requests.len(), &requests[0].said[1..]), (1, said.as_slice()));
    }
}

#[tokio::test]
async fn a_tool_that_is_gone_when_it_was_agreed_to_is_not_run() {
    let bench = Bench::new();
    let (buy, ran) = guarded();
    let approval = agreed(&bench, &buy, Delivery::Whole).await;
    let model = Scripted::new(vec![Ok(vec![Step::Say("done"), Step::Finish])]);
    let mut turn = bench.turn(&model, Delivery::Whole, vec![echo("look")]);
    turn.decided = vec![approval];
    let response = bench.run(turn).await;
    assert_eq!((&response["output"][0]["status"], ran.lock().unwrap().len()), (&"failed".into(), 0));
    assert!(response["output"][0]["error"]["content"][0]["text"].as_str().unwrap().contains("not offered any more"));
}

#[tokio::test]
async fn one_approval_is_one_call_however_often_it_is_used() {
    let bench = Bench::new();
    let (buy, ran) = guarded();
    let approval = agreed(&bench, &buy, Delivery::Whole).await;
    let mut statuses = Vec::new();
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let model = Scripted::new(vec![Ok(vec![Step::Say("done"), Step::Finish])]);
        let mut turn = bench.turn(&model, delivery, vec![buy.clone()]);
        turn.decided = vec![approval.clone()];
        let response = bench.run(turn).await;
        statuses.push(response["output"][0]["status"].as_str().unwrap().to_owned());
    }
    assert_eq!((statuses, ran.lock().unwrap().len()), (vec!["completed".to_owned(), "failed".to_owned()], 1));
}

#[tokio::test]
async fn where_no_approval_can_be_given_the_call_is_denied() {
    let bench = Bench::new();
    let (buy, ran) = guarded();
    let model = Scripted::new(vec![
        Ok(vec![Step::Call("c1", "buy", r#"{"n":1}"#), Step::Finish]),
        Ok(vec![Step::Say("I could not"), Step::Finish]),
    ]);
    let mut turn = bench.turn(&model, Delivery::Stream, vec![buy]);
    turn.keep = None;
    let response = bench.run(turn).await;
    assert_eq!(kinds(&response), ["mcp_call", "message"]);
    assert!(
        response["output"][0]["error"]["content"][0]["text"].as_str().unwrap().contains("the response is not stored")
    );
    assert_eq!(ran.lock().unwrap().len(), 0);
}
