//! `/admin/agent-sessions` and `/admin/conversations`: those of all users of a tenant.

use super::call::{Answer, Call, shown};
use crate::wires::answer;

/// With `user` those of one user.
pub(super) async fn list_agent_sessions(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().agent_sessions(&tenant, call.query.get("user"), &page).await?)
}

/// One session with a page of its turns.
pub(super) async fn retrieve_agent_session(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().agent_session(&tenant, call.id(), &page).await?)
}

pub(super) async fn delete_agent_session(call: Call) -> Answer {
    call.administration().delete_agent_session(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "agent_session.deleted"))
}

/// With `user` those of one user.
pub(super) async fn list_conversations(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().conversations(&tenant, call.query.get("user"), &page).await?)
}

/// One conversation with a page of its items.
pub(super) async fn retrieve_conversation(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().conversation(&tenant, call.id(), &page).await?)
}

pub(super) async fn delete_conversation(call: Call) -> Answer {
    call.administration().delete_conversation(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "conversation.deleted"))
}
