//! `/admin/approvals`: tool calls that require an approval.

use amalgam_administration::SMALL_BODY;
use axum::extract::Request;

use super::call::{Answer, Call, shown};

/// With `pending=true` those that can still be decided.
pub(super) async fn list(call: Call) -> Answer {
    let (page, pending) = (call.page()?, call.query.flag("pending")?);
    shown(&call.administration().approvals(&call.scope, pending, &page).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().approval(&call.scope, call.id()).await?)
}

pub(super) async fn decide(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    shown(&call.administration().decide_from(&call.scope, call.id(), &body).await?)
}
