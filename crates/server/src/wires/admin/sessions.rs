//! `/admin/sessions`: the threads between a tenant's users and its assistants.

use super::call::{Answer, Call, shown};
use crate::wires::answer;

/// With `user` those of one user.
pub(super) async fn list(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().sessions(&tenant, call.query.get("user"), &page).await?)
}

/// Closes a thread.
pub(super) async fn close(call: Call) -> Answer {
    shown(&call.administration().close_session(&call.tenant().await?, call.id()).await?)
}

/// Deletes a thread with all that was said in it.
pub(super) async fn delete(call: Call) -> Answer {
    call.administration().delete_session(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "session.deleted"))
}

/// One thread with a page of its messages.
pub(super) async fn retrieve(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().session(&tenant, call.id(), &page).await?)
}
