//! `/admin/tenants`, for operators.

use amalgam_administration::SMALL_BODY;
use axum::extract::Request;

use super::call::{Answer, Call, shown};

pub(super) async fn list(call: Call) -> Answer {
    let operator = call.operator()?;
    shown(&call.administration().tenants(operator, &call.page()?).await?)
}

pub(super) async fn create(call: Call, request: Request) -> Answer {
    let operator = call.operator()?;
    let body = call.body(request, SMALL_BODY).await?;
    shown(&call.administration().create_tenant_from(operator, &body).await?)
}

pub(super) async fn retrieve(call: Call) -> Answer {
    shown(&call.administration().tenant(call.operator()?, call.id()).await?)
}

/// Changes the named fields only.
pub(super) async fn change(call: Call, request: Request) -> Answer {
    let operator = call.operator()?;
    let body = call.body(request, SMALL_BODY).await?;
    let tenant = call.administration().change_tenant_from(operator, call.id(), &body).await?;
    call.app.auth.forget_tenant(tenant.id);
    shown(&tenant)
}
