//! `/api/v2/ai-agent/…`: the tenant's assistant, and the catalogue that it knows.
//!
//! A message goes in, a message comes out; who answers, what it is told and which tools it has is the tenant's to say. A turn
//! of this door is a turn like any other: kept as a response, run by the engine, with its thread written in the same step.

mod agent;
mod courses;
mod error;
mod health;
mod line;
mod respond;
mod sessions;
mod stream;
mod told;

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind, Operator, Scope};
use axum::{
    Router,
    routing::{get, post},
};

use crate::app::App;

pub(in crate::wires) use agent::Agent;
pub use agent::{AssistantSettings, with_default_model};
pub(in crate::wires) use error::AssistantError;
use error::DISABLED;
pub(crate) use health::Checks;
pub(crate) use line::Lines;

/// Whether errors on a path are told in this door's shape.
pub(crate) fn is_ours(path: &str) -> bool {
    path.starts_with("/api/v2/")
}

/// Every route with and without the slash at its end.
pub(super) fn routes() -> Router<Arc<App>> {
    let mut router = Router::new();
    for end in ["", "/"] {
        router = router
            .route(&format!("/api/v2/ai-agent/respond{end}"), post(respond::respond))
            .route(&format!("/api/v2/ai-agent/respond/{{response_id}}{end}"), get(respond::resume))
            .route(&format!("/api/v2/ai-agent/health{end}"), get(health::health))
            .route(&format!("/api/v2/ai-agent/sessions{end}"), get(sessions::list))
            .route(&format!("/api/v2/ai-agent/sessions/{{session_id}}/messages{end}"), get(sessions::messages))
            .route(&format!("/api/v2/course-recommendations{end}"), get(courses::recommend));
    }
    router
}

/// Refuses callers whose tenant has no assistant: its profiles are closed on every door.
pub(in crate::wires) async fn require_enabled(app: &App, scope: &Scope) -> Result<(), Fault> {
    match is_enabled(app, scope).await? {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::Forbidden, DISABLED).code("ai_agent_disabled")),
    }
}

/// Whether the caller's tenant has an assistant.
pub(in crate::wires) async fn is_enabled(app: &App, scope: &Scope) -> Result<bool, Fault> {
    let tenant = app.store.tenant(Operator::of_this_process(), scope.tenant_id()).await?;
    Ok(tenant.is_none_or(|tenant| tenant.ai_agent_enabled))
}
