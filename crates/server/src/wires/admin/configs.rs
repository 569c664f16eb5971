//! `/admin/configs/{tenant_id}`: a tenant's assistant settings, as set and as effective.

use amalgam_administration::{
    PROMPT_BODY,
    configs::{change_config, config_of},
    tenant_number,
};
use axum::extract::Request;

use super::call::{Answer, Call, shown};

pub(super) async fn retrieve(call: Call) -> Answer {
    let tenant = call.tenant_of(tenant_number(call.id())?).await?;
    shown(&config_of(&call.app.tenant_configs(), &*call.app.catalog, &tenant).await?)
}

/// Sets the named settings only; null unsets one.
pub(super) async fn change(call: Call, request: Request) -> Answer {
    let body = call.body(request, PROMPT_BODY).await?;
    let tenant = call.tenant_of(tenant_number(call.id())?).await?;
    shown(&change_config(&call.app, &call.actor(), &tenant, &body).await?)
}
