//! What is in the store while tools run, and what happens to them when the caller has disconnected.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use amalgam_core::{Delivery, Policy, Rights, Scope, Store, TenantState, store::ToolRun};
use amalgam_protocol::Status;
use amalgam_testkit::{check, sse};
use futures_util::StreamExt;
use tokio::sync::Notify;

use super::bench::{Bench, echo, finish, saw};
use crate::{
    kept::scope,
    model::{Scripted, Step},
    tooled::{Does, Doing, Seen, tool},
};

fn one_call() -> Arc<Scripted> {
    Scripted::new(vec![
        Ok(vec![Step::Call("c1", "look", r#"{"n":1}"#), Step::Finish]),
        Ok(vec![Step::Say("done"), Step::Finish]),
    ])
}

#[expect(clippy::disallowed_methods, reason = "a caller of a test needs no credential")]
async fn journal(store: &dyn Store, id: &str) -> Vec<ToolRun> {
    let admin = Scope::authenticated(1, "boss", TenantState::Stored, Rights::ADMIN);
    let turn = store.turn(admin.admin().unwrap(), id).await.unwrap();
    turn.map(|turn| turn.tools).unwrap_or_default()
}

#[tokio::test]
async fn that_a_call_is_about_to_run_is_in_the_store_before_it_runs() {
    // S2
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let identity = bench.engine.identity();
        let found: Arc<Mutex<Vec<ToolRun>>> = Arc::default();
        let (store, id, keeps) = (Arc::clone(&bench.store), identity.response_id.clone(), Arc::clone(&found));
        let looks = move |seen: Seen| -> Doing {
            let (store, id, keeps) = (Arc::clone(&store), id.clone(), Arc::clone(&keeps));
            Box::pin(async move {
                let response = store.response(&scope(), &id).await.unwrap().unwrap();
                assert_eq!(response.status.status, Status::InProgress);
                *keeps.lock().unwrap() = journal(&*store, &id).await;
                saw(seen).await
            })
        };
        let model = one_call();
        let mut turn = bench.turn(&model, delivery, vec![tool("look", Policy::default(), Does(looks))]);
        turn.identity = identity;
        let response = bench.run(turn).await;
        let found = found.lock().unwrap();
        let [intent] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((intent.call_id.as_str(), intent.arguments.as_str()), ("c1", r#"{"n":1}"#));
        assert_eq!((&response["output"][0]["id"], &intent.outcome), (&intent.item_id.clone().into(), &None));
    }
}

#[tokio::test]
async fn how_a_call_went_is_in_the_store_before_its_end_is_shown() {
    // S2
    let bench = Bench::new();
    let model = one_call();
    let run = bench.turn(&model, Delivery::Stream, vec![echo("look")]).start(&bench.engine).await.unwrap();
    let id = run.response_id().to_owned();
    let mut frames = run.into_events();
    let (mut bytes, mut ends) = (Vec::new(), 0);
    while let Some(chunk) = frames.next().await {
        if String::from_utf8_lossy(chunk.frames()).contains("event: response.mcp_call.completed") {
            ends += 1;
            let outcome = journal(&*bench.store, &id).await.remove(0).outcome.unwrap();
            assert_eq!((outcome.output.raw().text(), outcome.error), (r#"{"saw":{"n":1}}"#, None));
        }
        bytes.extend_from_slice(chunk.frames());
    }
    assert_eq!((check::body(&bytes), ends), (Vec::new(), 1));
}

#[tokio::test]
async fn every_round_is_kept_with_its_whole_request() {
    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let model = one_call();
        let long = "said before ".repeat(300);
        let body = format!(r#"{{"model":"m","input":"{long}"}}"#);
        let mut turn = bench.turn(&model, delivery, vec![echo("look")]);
        turn.body = &body;
        let response = bench.run(turn).await;
        let calls = bench.calls(response["id"].as_str().unwrap()).await;
        let kept: Vec<_> = calls.iter().map(|call| (call.number, call.request.clone())).collect();
        let requests = model.requests.lock().unwrap();
        let sent = requests.iter().enumerate().map(|(at, asked)| (at as u32, asked.said.join("\n").into()));
        assert_eq!(kept, sent.collect::<Vec<_>>());
        assert!(kept[1].1.starts_with(&kept[0].1));
    }
}

#[tokio::test]
async fn a_caller_that_leaves_while_a_tool_runs_takes_the_tool_with_it() {
    /// Says when it is dropped.
    struct Guard(Arc<AtomicBool>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    for delivery in [Delivery::Stream, Delivery::Whole] {
        let bench = Bench::new();
        let (entered, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (enters, drops) = (Arc::clone(&entered), Arc::clone(&dropped));
        let hangs = move |_: Seen| -> Doing {
            let (enters, guard) = (Arc::clone(&enters), Guard(Arc::clone(&drops)));
            Box::pin(async move {
                enters.notify_one();
                let _guard = guard;
                std::future::pending().await
            })
        };
        let model = one_call();
        let turn = bench.turn(&model, delivery, vec![tool("look", Policy::default(), Does(hangs))]);
        let run = turn.start(&bench.engine).await.unwrap();
        let id = run.response_id().to_owned();
        tokio::select! {
            _ = finish(run, delivery) => panic!("a turn ended although its tool hangs"),
            () = entered.notified() => {}
        }
        assert!(dropped.load(Ordering::SeqCst));
        assert_eq!(bench.ended(&id).await.status.status, Status::Cancelled);
        // Its outcome is unknown.
        assert_eq!(bench.record(&id).await.tools[0].outcome, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_long_leaves_no_silence() {
    // S7
    let bench = Bench::new();
    let slow = |seen: Seen| -> Doing {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(25)).await;
            saw(seen).await
        })
    };
    let model = one_call();
    // Not stored: a store has threads of its own, which a paused clock does not wait for.
    let mut turn = bench.turn(&model, Delivery::Stream, vec![tool("look", Policy::default(), Does(slow))]);
    turn.keep = None;
    let run = turn.start(&bench.engine).await.unwrap();
    let chunks: Vec<bytes::Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
    let bytes = chunks.concat();
    assert_eq!(check::body(&bytes), Vec::<String>::new());
    let events = sse::json_events(&bytes);
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let runs = kinds.iter().position(|kind| *kind == "response.mcp_call.in_progress").unwrap();
    assert_eq!(kinds[runs + 1..runs + 4], ["keepalive", "keepalive", "response.mcp_call.completed"]);
}
