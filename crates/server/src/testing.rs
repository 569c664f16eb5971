//! The ports of the server without a model or stored data, for tests of the wires.

mod assistant;
mod bank;
mod completions;
mod console;
mod execute;
mod limits;
mod webhooks;

use std::{sync::Arc, time::Duration};

use amalgam_administration::{
    keys::{ConfiguredKey, Pepper},
    reload::ReloadRequests,
};
use amalgam_app::{
    Application, Limits, ReadConfigs,
    assistant::{AssistantSettings, SessionQueues},
    execute::ExecuteSettings,
};
use amalgam_core::{
    Admin, AuditDraft, AuditHead, AuditRow, BoxFuture, Catalog, Clock, Fault, Fetch, FetchedFile, ModelCard,
    ModelSelection, Operator, Rights, Route, Scope, Seal, Store, TenantState,
    store::{
        Answer, AppendOutcome, AuditFilter, AuditStore, CallBodies, CancelOutcome, Claim, Conversation,
        ConversationItem, ConversationStore, EventChunk, EventTail, IdempotencyKey, KeyRecord, Lineage, Listing,
        NewItem, NewKey, Page, ProcessId, ProcessStore, PruneCounts, QueuedTurn, RecentTurns, RecoveryCounts, Reset,
        ResponseStore, Retention, Stored, StoredCall, StoredResponse, TenancyStore, TenantChange, TenantRecord,
        TurnCursor, TurnDetailStore, TurnFilter, TurnPage, TurnRecord, TurnStore, TurnWrite, TurnsOf, UsageQuery,
        UsageStore, UsageSums, WriteOutcome,
    },
};
use amalgam_engine::{Admission, AdmissionSettings, Engine, EngineSettings, QueueLimits, ToolLimits};
use amalgam_listener::TrustedProxies;
use amalgam_protocol::Json;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use secrecy::SecretString;
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    app::{App, ServerParts},
    auth::{Auth, AuthParts},
    layers::AuthenticatedRouter,
    metrics::{BuildInfo, Metrics},
    origins::AllowedOrigins,
    request_log::{RequestLog, RequestLogSettings},
    wires::router,
};

/// The key of the tenant that [`served`] admits.
pub(crate) const KEY: &str = "am_a_key_for_tests";

/// All wires, over empty ports.
pub(crate) fn served(state: TenantState) -> AuthenticatedRouter {
    router(app(state))
}

/// The server's parts, over empty ports.
pub(crate) fn app(state: TenantState) -> Arc<App> {
    let second = Duration::from_secs(1);
    let tools = ToolLimits::default();
    let settings = EngineSettings {
        turn_deadline: second,
        keepalive: second,
        head_after: second,
        transcripts: None,
        upload_bytes: 1024,
        tools,
        reserve_output_tokens: 1024,
    };
    let store: Arc<dyn Store> = Arc::new(Nothing);
    let engine = Engine::new(
        settings,
        Admission::new(AdmissionSettings::without_queue(1)),
        Arc::new(Nothing),
        Arc::new(Nothing),
        Arc::clone(&store),
        ProcessId(1),
        Arc::new(amalgam_core::NoObserver),
    );
    let tenant = TenantRecord { id: 1, name: "test".to_owned(), state, ai_agent_enabled: true, created_at_ms: 0 };
    let auth = Auth::new(AuthParts {
        store: Arc::new(Nothing),
        sessions: Arc::new(Nothing),
        clock: Arc::new(Nothing),
        pepper: Pepper::from_bytes(b"for tests"),
        configured: vec![ConfiguredKey {
            key: SecretString::from(KEY),
            tenant,
            rights: Rights::USE.and(Rights::ADMIN),
        }],
        open: None,
        jwt: None,
        single_sign_on: false,
        proxies: TrustedProxies::default(),
        max_connections_per_key: 10,
    });
    let limits = Limits {
        body_bytes: 4096,
        media_bytes: 1024,
        body_pause: second,
        websocket_idle: Duration::from_secs(2 * 3600),
        json_depth: 16,
        input_items: 10,
        content_parts: 100,
        tools: 10,
        schema_nodes: 100,
        string_bytes: 1024,
        file_bytes: 1024,
        files_bytes_per_tenant: 4096,
        request_bytes_total: 1 << 20,
        remembered_bytes: 8192,
        queue: QueueLimits { of_tenant: 10, of_all: 20 },
    };
    let application = Application {
        engine,
        catalog: Arc::new(Nothing),
        store,
        clock: Arc::new(Nothing),
        seal: Arc::new(Nothing),
        webhook_sender: Arc::new(Nothing),
        toolbox: Arc::new(Nothing),
        embeddings: Arc::new(Nothing),
        knowledge: Arc::new(Nothing),
        embedder: Arc::new(Nothing),
        execute: ExecuteSettings::default(),
        assistant: AssistantSettings::default(),
        limits,
        session_queues: SessionQueues::default(),
        read_configs: ReadConfigs::default(),
    };
    let metrics = Metrics::new(&BuildInfo::default(), crate::MetricSources::default());
    let log = Arc::new(RequestLog::new(metrics, Arc::new(amalgam_core::NoTraces), &RequestLogSettings::default()));
    let (reload, origins) = (ReloadRequests::new().0, AllowedOrigins::default());
    Arc::new(App::new(ServerParts { app: Arc::new(application), auth, origins, reload, log, oidc: None }))
}

/// A server's answer in a test.
pub(crate) struct TestAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// Asks a server once.
pub(crate) async fn ask(
    server: AuthenticatedRouter,
    method: &Method,
    path: &str,
    key: Option<&str>,
    body: &str,
) -> TestAnswer {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    request = request.header("host", "localhost");
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let response = server.oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let kind = head.headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.starts_with("text/event-stream") {
        // A live list does not end by itself.
        return TestAnswer { status: head.status, headers: head.headers, body: Value::Null };
    }
    let body = body.collect().await.unwrap().to_bytes();
    let body = match head.headers.get("content-type").is_some_and(|kind| kind == "application/json") {
        true => serde_json::from_slice(&body).unwrap(),
        false => Value::String(String::from_utf8(body.to_vec()).unwrap()),
    };
    TestAnswer { status: head.status, headers: head.headers, body }
}

/// A server without models, whose store is empty and discards all writes.
pub(crate) struct Nothing;

fn gives<'a, T: Send + 'a>(value: T) -> Stored<'a, T> {
    Box::pin(async move { Ok(value) })
}

impl Catalog for Nothing {
    fn resolve<'a>(&'a self, _: &'a Scope, _: &'a str) -> BoxFuture<'a, Result<Option<Route>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn resolve_on<'a>(&'a self, _: &'a Scope, _: ModelSelection<'a>) -> BoxFuture<'a, Result<Option<Route>, Fault>> {
        Box::pin(async { Ok(None) })
    }

    fn list<'a>(&'a self, _: &'a Scope) -> BoxFuture<'a, Vec<ModelCard>> {
        Box::pin(async { Vec::new() })
    }
}

impl Fetch for Nothing {
    fn fetch<'a>(&'a self, _: &'a str, _: usize) -> BoxFuture<'a, Result<FetchedFile, Fault>> {
        Box::pin(async { Err(Fault::internal("nothing is fetched here")) })
    }

    fn check<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async { Ok(()) })
    }
}

impl Clock for Nothing {
    fn now_ms(&self) -> u64 {
        0
    }
}

impl Seal for Nothing {
    fn seal(&self, _: &str, _: &[u8]) -> String {
        String::new()
    }

    fn open(&self, _: &str, _: &str) -> Option<Vec<u8>> {
        None
    }
}

impl Store for Nothing {
    fn changed(&self, _: &str) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn ping(&self) -> Stored<'_, ()> {
        gives(())
    }

    fn size(&self, _: Operator) -> Stored<'_, u64> {
        gives(0)
    }
}

impl ResponseStore for Nothing {
    fn response<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<StoredResponse>> {
        gives(None)
    }

    fn lineage<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Lineage>> {
        gives(None)
    }

    fn raw_answer<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<amalgam_core::RawAnswer>> {
        gives(None)
    }

    fn items<'a>(&'a self, _: &'a Scope, ids: &'a [String]) -> Stored<'a, Vec<Option<Json>>> {
        gives(vec![None; ids.len()])
    }

    fn delete_response<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        gives(false)
    }

    fn cancel_response<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<CancelOutcome>> {
        gives(None)
    }

    fn end_response<'a>(&'a self, _: &'a Scope, _: &'a str, _: u64) -> Stored<'a, Option<StoredResponse>> {
        gives(None)
    }

    fn events<'a>(&'a self, _: &'a Scope, _: &'a str, _: Option<u64>, _: usize) -> Stored<'a, Option<EventTail>> {
        gives(None)
    }
}

impl TurnDetailStore for Nothing {
    fn turn_calls<'a>(&'a self, _: Admin<'a>, _: &'a str, _: CallBodies) -> Stored<'a, Vec<StoredCall>> {
        gives(Vec::new())
    }

    fn turn_events<'a>(&'a self, _: Admin<'a>, _: &'a str, _: Option<u64>, _: usize) -> Stored<'a, Vec<EventChunk>> {
        gives(Vec::new())
    }

    fn response_of_item<'a>(&'a self, _: Admin<'a>, _: amalgam_core::Stem) -> Stored<'a, Option<String>> {
        gives(None)
    }

    fn response_of_call<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        gives(None)
    }

    fn recent_turns<'a>(&'a self, _: TurnsOf<'a>, _: u64, _: usize, _: usize) -> Stored<'a, RecentTurns> {
        gives(RecentTurns::default())
    }

    fn has_turns<'a>(&'a self, _: TurnsOf<'a>) -> Stored<'a, bool> {
        gives(false)
    }

    fn turn_before<'a>(&'a self, _: Admin<'a>, _: &'a str, _: u64) -> Stored<'a, Option<String>> {
        gives(None)
    }
}

impl UsageStore for Nothing {
    fn turns<'a>(&'a self, _: TurnsOf<'a>, _: TurnFilter, _: Option<TurnCursor>, _: usize) -> Stored<'a, TurnPage> {
        gives(TurnPage { turns: Vec::new(), next: None })
    }

    fn usage<'a>(&'a self, _: TurnsOf<'a>, _: UsageQuery) -> Stored<'a, Vec<UsageSums>> {
        gives(Vec::new())
    }

    fn spans_of_turn<'a>(&'a self, _: Admin<'a>, _: u64, _: &'a str) -> Stored<'a, Option<Json>> {
        gives(None)
    }

    fn response_of_request<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<String>> {
        gives(None)
    }
}

impl TurnStore for Nothing {
    fn add_summaries(&self, _: Vec<amalgam_core::TurnSummary>) -> Stored<'_, ()> {
        gives(())
    }

    fn add_unfinished<'a>(&'a self, _: &'a Scope, _: Arc<TurnWrite>) -> Stored<'a, ()> {
        gives(())
    }

    fn write<'a>(&'a self, _: &'a Scope, _: Arc<TurnWrite>) -> Stored<'a, WriteOutcome> {
        gives(WriteOutcome::Lost)
    }

    fn claim<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a IdempotencyKey,
        _: [u8; 32],
        _: &'a str,
        _: ProcessId,
        _: u64,
    ) -> Stored<'a, Claim> {
        gives(Claim::First)
    }

    fn settle<'a>(&'a self, _: &'a Scope, _: &'a IdempotencyKey, _: &'a str, _: Option<Answer>) -> Stored<'a, ()> {
        gives(())
    }

    fn turn<'a>(&'a self, _: Admin<'a>, _: &'a str) -> Stored<'a, Option<TurnRecord>> {
        gives(None)
    }
}

impl ConversationStore for Nothing {
    fn create_conversation<'a>(&'a self, _: &'a Scope, _: &'a Conversation, _: Vec<NewItem>) -> Stored<'a, ()> {
        gives(())
    }

    fn conversation<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Conversation>> {
        gives(None)
    }

    fn update_conversation<'a>(&'a self, _: &'a Scope, _: &'a str, _: Json) -> Stored<'a, Option<Conversation>> {
        gives(None)
    }

    fn delete_conversation<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, bool> {
        gives(false)
    }

    fn add_items<'a>(&'a self, _: &'a Scope, _: &'a str, _: Vec<NewItem>) -> Stored<'a, Option<AppendOutcome>> {
        gives(None)
    }

    fn list_items<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a Page) -> Stored<'a, Option<Listing>> {
        gives(None)
    }

    fn conversation_item<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<ConversationItem>> {
        gives(None)
    }

    fn delete_item<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<bool>> {
        gives(None)
    }

    fn conversation_history<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<Json>>> {
        gives(None)
    }
}

impl TenancyStore for Nothing {
    fn create_tenant<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: TenantState,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<TenantRecord>> {
        gives(None)
    }

    fn tenants(&self, _: Operator, _: Option<i64>, _: usize) -> Stored<'_, Vec<TenantRecord>> {
        gives(Vec::new())
    }

    fn tenant(&self, _: Operator, _: i64) -> Stored<'_, Option<TenantRecord>> {
        gives(None)
    }

    fn change_tenant(&self, _: Operator, _: i64, _: TenantChange, _: AuditDraft) -> Stored<'_, Option<TenantRecord>> {
        gives(None)
    }

    fn create_key(&self, _: Operator, _: NewKey, _: AuditDraft) -> Stored<'_, bool> {
        gives(false)
    }

    fn keys<'a>(&'a self, _: Operator, _: Option<i64>, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<KeyRecord>> {
        gives(Vec::new())
    }

    fn key<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<KeyRecord>> {
        gives(None)
    }

    fn revoke_key<'a>(
        &'a self,
        _: Operator,
        _: Option<i64>,
        _: &'a str,
        _: u64,
        _: AuditDraft,
    ) -> Stored<'a, Option<KeyRecord>> {
        gives(None)
    }

    fn key_by_hash(&self, _: Operator, _: [u8; 32]) -> Stored<'_, Option<(KeyRecord, TenantRecord)>> {
        gives(None)
    }

    fn touch_keys(&self, _: Operator, _: Vec<(String, u64)>) -> Stored<'_, ()> {
        gives(())
    }

    fn remembered<'a>(&'a self, _: Operator, _: &'a str) -> Stored<'a, Option<String>> {
        gives(None)
    }

    fn remember<'a>(&'a self, _: Operator, _: &'a str, text: &'a str, _: bool) -> Stored<'a, String> {
        gives(text.to_owned())
    }
}

impl ProcessStore for Nothing {
    fn beat(&self, _: Operator, _: ProcessId, _: u64) -> Stored<'_, ()> {
        gives(())
    }

    fn processes(&self, _: Operator) -> Stored<'_, Vec<(ProcessId, u64)>> {
        gives(Vec::new())
    }

    fn end_dead_process<'a>(
        &'a self,
        _: Operator,
        _: ProcessId,
        _: u64,
        _: fn(&[String]) -> String,
        _: u64,
    ) -> Stored<'a, Option<RecoveryCounts>> {
        gives(None)
    }

    fn take_queued(&self, _: Operator, _: ProcessId, _: usize) -> Stored<'_, Vec<QueuedTurn>> {
        gives(Vec::new())
    }

    fn count_queued(&self, _: Operator, _: i64) -> Stored<'_, (u64, u64)> {
        gives((0, 0))
    }

    fn give_back<'a>(&'a self, _: Operator, _: ProcessId, _: &'a [String]) -> Stored<'a, ()> {
        gives(())
    }

    fn held(&self, _: Operator, _: ProcessId) -> Stored<'_, Vec<(String, Scope)>> {
        gives(Vec::new())
    }

    fn claims(&self, _: Operator, _: ProcessId) -> Stored<'_, Vec<String>> {
        gives(Vec::new())
    }

    fn release<'a>(&'a self, _: Operator, _: ProcessId, _: &'a [String]) -> Stored<'a, ()> {
        gives(())
    }

    fn prune(&self, _: Operator, _: Retention) -> Stored<'_, PruneCounts> {
        gives(PruneCounts::default())
    }

    fn reset(&self, _: Operator, _: Reset) -> Stored<'_, ()> {
        gives(())
    }
}

impl AuditStore for Nothing {
    fn append_audit(&self, _: Operator, _: AuditDraft) -> Stored<'_, ()> {
        gives(())
    }

    fn audit(&self, _: Operator, _: AuditFilter, _: usize) -> Stored<'_, Option<Vec<AuditRow>>> {
        gives(Some(Vec::new()))
    }

    fn audit_chain(&self, _: Operator, _: u64, _: usize) -> Stored<'_, Vec<AuditRow>> {
        gives(Vec::new())
    }

    fn audit_head(&self, _: Operator) -> Stored<'_, Option<AuditHead>> {
        gives(None)
    }
}
