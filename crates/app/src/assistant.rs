//! The tenant assistant: profiles, prompts, and the sessions that turns belong to.

mod agent;
mod answer;
mod client_secrets;
mod respond;
mod session_queue;

use amalgam_core::{Fault, FaultKind, Operator, Scope};

use crate::app::Application;

pub use agent::{Agent, AssistantSettings, RouteError, with_default_model, write_named_tool};
pub use answer::{MessageIds, body as answer_body, write_result, write_tool_results};
pub use client_secrets::{CLIENT_SECRET_PREFIX, open_client_secret, seal_client_secret};
pub use respond::{AssistantTurn, RespondError};
pub use session_queue::SessionQueues;

/// The error message for callers whose tenant has no assistant. RNCC-17
pub const DISABLED: &str = "AI agent is disabled for this company.";

/// Refuses callers whose tenant has no assistant. Its profiles are unavailable on every wire.
pub async fn require_enabled(app: &Application, scope: &Scope) -> Result<(), Fault> {
    match is_enabled(app, scope).await? {
        true => Ok(()),
        false => Err(Fault::new(FaultKind::Forbidden, DISABLED).code("ai_agent_disabled")),
    }
}

/// Whether the caller's tenant has an assistant.
pub async fn is_enabled(app: &Application, scope: &Scope) -> Result<bool, Fault> {
    let tenant = app.store.tenant(Operator::of_this_process(), scope.tenant_id()).await?;
    Ok(tenant.is_none_or(|tenant| tenant.ai_agent_enabled))
}
