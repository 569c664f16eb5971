//! `/admin/sessions`: the threads between a tenant's users and its assistants.

use super::call::{Answer, Call, shown};

/// With `user` those of one user.
pub(super) async fn list(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().sessions(&tenant, call.query.get("user"), &page).await?)
}

/// One thread with a page of its messages.
pub(super) async fn retrieve(call: Call) -> Answer {
    let (tenant, page) = (call.tenant().await?, call.page()?);
    shown(&call.administration().session(&tenant, call.id(), &page).await?)
}
