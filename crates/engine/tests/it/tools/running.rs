//! How calls run: at the same time or not, once or twice, and what becomes of those that go wrong.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use amalgam_core::{Delivery, FaultKind, OnError, Policy, ServerTool, ToolError, ToolOutput};
use amalgam_engine::ToolLimits;
use amalgam_protocol::Status;
use tokio::sync::{Barrier, watch};

use super::bench::{Bench, echo, finish, saw};
use crate::{
    model::{Scripted, Step},
    tooled::{Does, Doing, Seen, json, tool},
};

fn policy(idempotent: bool) -> Policy {
    Policy { idempotent, ..Policy::default() }
}

fn three_calls() -> Arc<Scripted> {
    Scripted::new(vec![
        Ok(vec![
            Step::Call("c1", "look", r#"{"n":1}"#),
            Step::Call("c2", "look", r#"{"n":2}"#),
            Step::Call("c3", "look", r#"{"n":3}"#),
            Step::Finish,
        ]),
        Ok(vec![Step::Say("done"), Step::Finish]),
    ])
}

fn outputs(response: &serde_json::Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap().iter();
    items.filter(|item| item["type"] == "mcp_call").map(|item| item["output"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn calls_of_one_answer_run_at_the_same_time_and_come_out_in_call_order() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let (all_there, (over, _)) = (Arc::new(Barrier::new(3)), watch::channel(4));
        let over = Arc::new(over);
        // All of them have begun before one ends, and the last one ends first.
        let backwards = move |seen: Seen| -> Doing {
            let (all_there, over) = (Arc::clone(&all_there), Arc::clone(&over));
            Box::pin(async move {
                all_there.wait().await;
                let own: u32 = seen.call_id.trim_start_matches('c').parse().unwrap();
                over.subscribe().wait_for(|last| *last == own + 1).await.unwrap();
                over.send_replace(own);
                saw(seen).await
            })
        };
        let model = three_calls();
        let response =
            Bench::new().play(&model, delivery, vec![tool("look", Policy::default(), Does(backwards))]).await;
        assert_eq!(outputs(&response), [r#"{"saw":{"n":1}}"#, r#"{"saw":{"n":2}}"#, r#"{"saw":{"n":3}}"#]);
        let said = &model.requests.lock().unwrap()[1].said;
        let order: Vec<&str> = said[1..].iter().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(order, ["call 0", "call 1", "call 2", "output 0", "output 1", "output 2"]);
    }
}

/// Counts how many of its calls run at once, and gives others every chance to begin.
fn counting(most: &Arc<AtomicUsize>, order: &Arc<Mutex<Vec<String>>>) -> ServerTool {
    let (now, most, order) = (Arc::new(AtomicUsize::new(0)), Arc::clone(most), Arc::clone(order));
    let count = move |seen: Seen| -> Doing {
        let (now, most, order) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&order));
        Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            order.lock().unwrap().push(seen.call_id.clone());
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            saw(seen).await
        })
    };
    tool("look", Policy::default(), Does(count))
}

#[tokio::test]
async fn no_more_calls_run_at_the_same_time_than_are_allowed() {
    for (parallel, sequential, expected) in [(2, false, 2), (8, true, 1), (8, false, 3)] {
        let (most, order) = (Arc::default(), Arc::default());
        let bench = Bench::with(ToolLimits { parallel, ..ToolLimits::default() });
        let model = three_calls();
        let mut turn = bench.turn(&model, Delivery::Whole, vec![counting(&most, &order)]);
        turn.sequential = sequential;
        bench.run(turn).await;
        assert_eq!(most.load(Ordering::SeqCst), expected);
        assert_eq!(*order.lock().unwrap(), ["c1", "c2", "c3"]);
    }
}

#[tokio::test]
async fn what_goes_wrong_with_a_call_is_told_to_the_model_and_harms_no_other() {
    // RNCC-32
    let does = |name: &str, how: fn(Seen) -> Doing| {
        tool(name, Policy { timeout: Duration::from_millis(20), ..Policy::default() }, Does(how))
    };
    let tools = || {
        vec![
            echo("look"),
            does("falls", |_| Box::pin(async { std::panic::resume_unwind(Box::new("fell over")) })),
            does("hangs", |_| Box::pin(std::future::pending())),
            does("floods", |_| {
                Box::pin(async { Ok(ToolOutput { output: json(&format!("{:?}", "x".repeat(300 * 1024))) }) })
            }),
            does("refuses", |_| Box::pin(async { Err(ToolError::Refused("sold out".to_owned())) })),
        ]
    };
    let wrong = [
        ("look", r#"{"bad":1}"#, "invalid_arguments", "Not run: /bad: is not allowed."),
        ("look", r#"{"n":"#, "invalid_arguments", "Not run: the arguments are not JSON"),
        ("unknown", "{}", "unknown_tool", "There is no tool named `unknown`."),
        ("falls", "{}", "broken", "the tool could not be run"),
        ("hangs", "{}", "timed_out", "the tool did not answer in time"),
        ("floods", "{}", "too_large", "the tool's output is too large"),
        ("refuses", "{}", "refused", "sold out"),
    ];
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let mut calls: Vec<Step> = wrong.iter().map(|(name, arguments, ..)| Step::Call("c", name, arguments)).collect();
        // Every call of this answer has the same id and key, as bad upstreams have it; arguments belong to the
        // call that began last.
        calls.extend([Step::Call("d", "look", r#"{"n":1}"#), Step::Finish]);
        let model = Scripted::new(vec![Ok(calls), Ok(vec![Step::Say("done"), Step::Finish])]);
        let response = bench.play(&model, delivery, tools()).await;
        assert_eq!(response["status"], "completed");
        let record = bench.record(response["id"].as_str().unwrap()).await;
        let requests = model.requests.lock().unwrap();
        let said: Vec<&String> = requests[1].said.iter().filter(|line| line.starts_with("output")).collect();
        for (index, (name, _, mishap, text)) in wrong.iter().enumerate() {
            let item = &response["output"][index];
            assert_eq!((&item["name"], &item["status"]), (&(*name).into(), &"failed".into()));
            assert!(item["error"]["content"][0]["text"].as_str().unwrap().starts_with(text), "{item}");
            assert!(said[index].starts_with(&format!(r#"output {index}: {{"error":"{text}"#)), "{}", said[index]);
            let outcome = record.tools[index].outcome.as_ref().unwrap();
            assert_eq!((record.tools[index].name.as_str(), outcome.error.as_deref()), (*name, Some(*mishap)));
        }
        assert_eq!(response["output"][wrong.len()]["output"], r#"{"saw":{"n":1}}"#);
        assert_eq!(record.tools[wrong.len()].outcome.as_ref().unwrap().error, None);
    }
}

#[tokio::test]
async fn a_tool_that_must_not_fail_fails_its_turn_by_name() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let fatal = Policy { on_error: OnError::FailTurn, ..Policy::default() };
        let refuses = |_: Seen| -> Doing { Box::pin(async { Err(ToolError::Refused("no".to_owned())) }) };
        let model = Scripted::new(vec![Ok(vec![Step::Call("c1", "look", "{}"), Step::Finish])]);
        let turn = bench.turn(&model, delivery, vec![tool("look", fatal, Does(refuses))]);
        let id = turn.identity.response_id.clone();
        let message = match finish(turn.start(&bench.engine).await.unwrap(), delivery).await {
            Ok(failed) => failed["error"]["message"].as_str().unwrap().to_owned(),
            Err(fault) => {
                assert_eq!(fault.kind, FaultKind::ToolFailed);
                fault.into_parts().message.into_owned()
            }
        };
        assert_eq!(message, "The tool `look` failed, and the response with it.");
        assert_eq!(bench.ended(&id).await.status.status, Status::Failed);
        assert_eq!(bench.record(&id).await.tools[0].outcome.as_ref().unwrap().error.as_deref(), Some("refused"));
    }
}

#[tokio::test]
async fn only_what_may_be_done_twice_is_tried_again_and_under_the_same_key() {
    // S3
    for (idempotent, expected) in [(true, 2), (false, 1)] {
        let keys: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen_keys = Arc::clone(&keys);
        let breaks_once = move |seen: Seen| -> Doing {
            let mut keys = seen_keys.lock().unwrap();
            keys.push(seen.key.clone());
            match keys.len() {
                1 => Box::pin(async { Err(ToolError::Broken { detail: "reset".to_owned() }) }),
                _ => saw(seen),
            }
        };
        let model = Scripted::new(vec![
            Ok(vec![Step::Call("c1", "look", "{}"), Step::Finish]),
            Ok(vec![Step::Say("done"), Step::Finish]),
        ]);
        let response =
            Bench::new().play(&model, Delivery::Whole, vec![tool("look", policy(idempotent), Does(breaks_once))]).await;
        let keys = keys.lock().unwrap();
        assert_eq!((keys.len(), keys.iter().all(|key| response["output"][0]["id"] == key.as_str())), (expected, true));
        assert_eq!(response["output"][0]["status"], if idempotent { "completed" } else { "failed" });
    }
}
