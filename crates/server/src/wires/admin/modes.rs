//! `/admin/modes`: the modes of a tenant's agents, including the built-in ones.

use amalgam_administration::PROMPT_BODY;
use axum::extract::Request;

use super::call::{Answer, Call, shown, stored};
use crate::wires::answer;

pub(super) async fn list(call: Call) -> Answer {
    shown(&call.administration().modes(&call.tenant().await?, &call.page()?).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().mode(&call.tenant().await?, call.id()).await?)
}

pub(super) async fn put(call: Call, request: Request) -> Answer {
    let body = call.body(request, PROMPT_BODY).await?;
    stored(call.administration().put_mode(&call.tenant().await?, Some(call.id()), &body).await?)
}

pub(super) async fn delete(call: Call) -> Answer {
    call.administration().delete_mode(&call.tenant().await?, call.id()).await?;
    Ok(answer::deleted(call.id(), "mode.deleted"))
}
