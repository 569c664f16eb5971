//! `/admin/limits`: what tenants, keys, users and models may use, and what is used.

use amalgam_administration::SMALL_BODY;
use amalgam_core::{Fault, LimitKind};
use axum::{
    extract::Request,
    routing::{MethodRouter, get},
};

use super::call::{Answer, Call, shown, stored};
use crate::{app::CurrentApp, wires::answer};

pub(super) async fn list(call: Call) -> Answer {
    shown(&call.administration().limits(&call.scope, tenant(&call)?, &call.page()?).await?)
}

/// The limits of one kind.
pub(super) fn routes(kind: LimitKind) -> MethodRouter<CurrentApp> {
    get(move |call| retrieve(kind, call))
        .put(move |call, request| put(kind, call, request))
        .delete(move |call| delete(kind, call))
}

async fn retrieve(kind: LimitKind, call: Call) -> Answer {
    shown(&call.administration().limit(&call.scope, kind, call.id(), tenant(&call)?).await?)
}

/// Replaces the limit completely.
async fn put(kind: LimitKind, call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    let put = call.administration().put_limit(&call.scope, kind, call.id(), tenant(&call)?, &body).await?;
    put_into_force(&call).await;
    stored(put)
}

async fn delete(kind: LimitKind, call: Call) -> Answer {
    call.administration().delete_limit(&call.scope, kind, call.id(), tenant(&call)?).await?;
    put_into_force(&call).await;
    Ok(answer::deleted(call.id(), "limit.deleted"))
}

/// Applies a change in this process at once. Other processes, and this one after an error, read it by themselves.
async fn put_into_force(call: &Call) {
    let _ = call.app.engine.limiter().refresh().await;
}

/// `tenant` of the query, or `tenant_id` as elsewhere.
fn tenant(call: &Call) -> Result<Option<i64>, Fault> {
    match call.query.number("tenant")?.map(i64::try_from) {
        None => call.tenant_id(),
        Some(Ok(id)) => Ok(Some(id)),
        Some(Err(_)) => Err(Fault::invalid("tenant", "Invalid value for 'tenant': no tenant has this number.")),
    }
}
