//! What tests of tools share: a caller, a configuration, a resolver with a script.

use std::{
    collections::VecDeque,
    io,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use amalgam_core::{BoxFuture, Rights, Scope, TenantState, ToolCall};
use amalgam_protocol::Json;
use amalgam_tools::{EgressConfig, Resolve};
use serde_json::Value;

/// Gives one scripted answer after the other and writes down what it was asked.
#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Script {
    pub(crate) fn new(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers.iter().map(|answer| answer.iter().map(|address| address.parse().unwrap()).collect());
        Arc::new(Self { answers: Mutex::new(answers.collect()), asked: Mutex::default() })
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Script {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let answer = self.answers.lock().unwrap().pop_front();
        Box::pin(async move { answer.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }
}

pub(crate) fn config(allow_private: &[String]) -> EgressConfig {
    EgressConfig {
        allow_private: allow_private.iter().map(|text| text.parse().unwrap()).collect(),
        timeout: Duration::from_secs(5),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is its own authentication")]
pub(crate) fn scope_of(tenant_id: i64) -> Scope {
    Scope::authenticated(tenant_id, "user", TenantState::Stored, Rights::USE)
}

/// Runs `work` with a call of tenant 1.
pub(crate) async fn call<T>(arguments: &Json, work: impl AsyncFnOnce(ToolCall<'_>) -> T) -> T {
    call_of(1, arguments, work).await
}

/// Runs `work` with a call of this tenant.
pub(crate) async fn call_of<T>(tenant_id: i64, arguments: &Json, work: impl AsyncFnOnce(ToolCall<'_>) -> T) -> T {
    let scope = scope_of(tenant_id);
    work(ToolCall { scope: &scope, call_id: "call_1", key: "key-1", arguments: arguments.raw(), trace: None }).await
}

pub(crate) fn json_of(text: &str) -> Json {
    Json::parse(&text.to_owned().into()).unwrap()
}

pub(crate) fn value_of(json: &Json) -> Value {
    serde_json::from_slice(json.bytes()).unwrap()
}
