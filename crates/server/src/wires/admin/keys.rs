//! `/admin/keys`: API keys.

use amalgam_administration::SMALL_BODY;
use axum::extract::Request;

use super::call::{Answer, Call, secret, shown};

pub(super) async fn list(call: Call) -> Answer {
    shown(&call.administration().keys(&call.scope, call.tenant_id()?, &call.page()?).await?)
}

/// Only this response contains the secret.
pub(super) async fn create(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    secret(&call.administration().create_key_from(&call.scope, call.app.auth.pepper(), &body).await?)
}

/// Revokes a key, at once in this process and within seconds in others.
pub(super) async fn revoke(call: Call) -> Answer {
    let key = call.administration().revoke_key(&call.scope, call.tenant_id()?, call.id()).await?;
    call.app.auth.forget_key(&key.id);
    shown(&key)
}
