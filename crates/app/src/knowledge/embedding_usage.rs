//! Adds what embeddings cost to the usage of a tenant. They belong to no turn.

use std::sync::Arc;

use amalgam_core::{CallSummary, Operator, Scope, TurnOrigin, TurnSummary, store::KnowledgeStore};
use amalgam_protocol::Status;
use tracing::warn;

/// The user of imports, which have no caller.
const IMPORT_USER: &str = "import";

/// Adds a call that a caller's search has made.
pub(super) async fn count_search(store: &dyn KnowledgeStore, scope: &Scope, call: CallSummary, now_ms: u64) {
    let origin = TurnOrigin { key_id: scope.key_id().cloned(), ..TurnOrigin::default() };
    count(store, scope.tenant_id(), Arc::clone(scope.user_id()), origin, call, now_ms).await;
}

/// Adds a call that an import into a tenant's knowledge has made.
pub(super) async fn count_import(store: &dyn KnowledgeStore, tenant_id: i64, call: CallSummary, now_ms: u64) {
    count(store, tenant_id, IMPORT_USER.into(), TurnOrigin::default(), call, now_ms).await;
}

async fn count(
    store: &dyn KnowledgeStore,
    tenant_id: i64,
    user: Arc<str>,
    origin: TurnOrigin,
    call: CallSummary,
    now_ms: u64,
) {
    let summary = TurnSummary {
        response_id: String::new(),
        tenant_id,
        user,
        origin,
        status: Status::Completed,
        error: None,
        created_at_ms: now_ms,
        ended_at_ms: Some(now_ms),
        first_token_ms: None,
        calls: vec![call],
        tools: Vec::new(),
        spans: Vec::new(),
        losses: 0,
        stored: false,
    };
    // The embeddings are there: a search or an import does not fail because they could not be counted.
    if let Err(error) = store.count_calls(Operator::of_this_process(), summary).await {
        warn!(tenant = tenant_id, "embeddings could not be added to the usage: {error}");
    }
}
