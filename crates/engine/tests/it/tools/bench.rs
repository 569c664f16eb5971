//! A store, an engine and tools to try turns with.

use std::{sync::Arc, time::Duration};

use amalgam_core::{
    Delivery, Fault, Policy, Rights, Scope, ServerTool, Store, TenantState, ToolOutput,
    store::{CallBodies, StoredResponse, Transcript, TurnRecord},
};
use amalgam_engine::{Admission, AdmissionSettings, Engine, Run, ToolLimits};
use amalgam_store_sqlite::{Sqlite, SqliteOptions};
use amalgam_testkit::{check, sse};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kept::{keep, scope},
    model::{Scripted, candidate, engine_with},
    tooled::{Does, Doing, Seen, Tooled, json, tool},
};

const BODY: &str = r#"{"model":"m","input":"hi","tools":[{"type":"function","name":"look","parameters":{}},
    {"type":"function","name":"client","parameters":{}}]}"#;

pub(super) struct Bench {
    pub(super) store: Arc<dyn Store>,
    pub(super) engine: Engine,
    #[expect(dead_code, reason = "the folder lives as long as the store in it")]
    folder: TempDir,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(ToolLimits::default())
    }

    pub(super) fn with(limits: ToolLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> =
            Arc::new(Sqlite::open(folder.path().join("a.db"), SqliteOptions::default()).unwrap());
        let engine = engine_with(Arc::clone(&store), Admission::new(AdmissionSettings::without_queue(8)), 1, limits);
        Self { store, engine, folder }
    }

    /// A stored turn.
    pub(super) fn turn(&self, model: &Arc<Scripted>, delivery: Delivery, tools: Vec<ServerTool>) -> Tooled<'static> {
        Tooled {
            body: BODY,
            delivery,
            identity: self.engine.identity(),
            keep: Some(keep),
            scope: scope(),
            candidate: candidate(model),
            tools: tools.into_iter().map(Arc::new).collect(),
            client_functions: Some(vec!["client"]),
            sequential: false,
            max_calls: None,
            listings: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// Runs such a turn to its end: the response as its caller gets it.
    pub(super) async fn play(&self, model: &Arc<Scripted>, delivery: Delivery, tools: Vec<ServerTool>) -> Value {
        self.run(self.turn(model, delivery, tools)).await
    }

    pub(super) async fn run(&self, turn: Tooled<'_>) -> Value {
        let delivery = turn.delivery;
        let run = turn.start(&self.engine).await.unwrap();
        finish(run, delivery).await.unwrap()
    }

    /// The turn as an administrator sees it.
    #[expect(clippy::disallowed_methods, reason = "a caller of a test needs no credential")]
    pub(super) async fn record(&self, id: &str) -> TurnRecord {
        let admin = Scope::authenticated(1, "boss", TenantState::Stored, Rights::ADMIN);
        self.store.turn(admin.admin().unwrap(), id).await.unwrap().unwrap()
    }

    /// The model calls of a turn as an administrator sees them.
    #[expect(clippy::disallowed_methods, reason = "a caller of a test needs no credential")]
    pub(super) async fn calls(&self, id: &str) -> Vec<Transcript> {
        let admin = Scope::authenticated(1, "boss", TenantState::Stored, Rights::ADMIN);
        let calls = self.store.turn_calls(admin.admin().unwrap(), id, CallBodies::All).await.unwrap();
        calls.into_iter().map(|stored| stored.call).collect()
    }

    /// Waits until a response has ended.
    pub(super) async fn ended(&self, id: &str) -> StoredResponse {
        for _ in 0..500 {
            match self.store.response(&scope(), id).await.unwrap() {
                Some(response) if response.status.status.is_final() => return response,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
        panic!("response {id} did not end");
    }
}

/// The response at the end of a turn, whose events follow all rules.
pub(super) async fn finish(run: Box<Run>, delivery: Delivery) -> Result<Value, Fault> {
    match delivery {
        Delivery::Whole => {
            let response = serde_json::from_slice(&run.finish().await?.response).unwrap();
            assert_eq!(check::response(&response), Vec::<String>::new());
            Ok(response)
        }
        Delivery::Stream => {
            let chunks: Vec<Bytes> = run.into_events().map(amalgam_protocol::EventBatch::into_frames).collect().await;
            let bytes = chunks.concat();
            assert_eq!(check::body(&bytes), Vec::<String>::new());
            Ok(sse::json_events(&bytes).last().unwrap()["response"].clone())
        }
    }
}

/// The kinds of a response's items.
pub(super) fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

/// A tool that returns what it received.
pub(super) fn echo(name: &str) -> ServerTool {
    tool(name, Policy::default(), Does(saw))
}

pub(super) fn saw(seen: Seen) -> Doing {
    Box::pin(async move { Ok(ToolOutput { output: json(&format!(r#"{{"saw":{}}}"#, seen.arguments)) }) })
}
