//! `/v1/webhook_endpoints`: addresses that receive events of a tenant, for its administrators.

use amalgam_administration::{SMALL_BODY, webhooks::Webhooks};
use axum::{
    Router,
    extract::Request,
    routing::{get, post},
};

use super::{
    admin::call::{Answer, secret, shown},
    answer,
    call::Call,
};
use crate::app::CurrentApp;

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/v1/webhook_endpoints", get(list).post(create))
        .route("/v1/webhook_endpoints/{id}", get(retrieve).post(change).delete(delete))
        .route("/v1/webhook_endpoints/{id}/test", post(test))
        .route("/v1/webhook_endpoints/{id}/rotate_secret", post(rotate_secret))
        .route("/v1/webhook_endpoints/{id}/deliveries", get(deliveries))
        .route("/v1/webhook_endpoints/{id}/deliveries/{delivery_id}/resend", post(resend))
}

fn webhooks(call: &Call) -> Webhooks<'_> {
    Webhooks::new(&call.app, call.actor(), &call.scope)
}

async fn list(call: Call) -> Answer {
    shown(&webhooks(&call).list(&call.page()?).await?)
}

/// Only this response contains the secret.
async fn create(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    secret(&webhooks(&call).create(&body).await?)
}

async fn retrieve(call: Call) -> Answer {
    shown(&webhooks(&call).endpoint(call.id()).await?)
}

/// Changes the named fields only.
async fn change(call: Call, request: Request) -> Answer {
    let body = call.body(request, SMALL_BODY).await?;
    shown(&webhooks(&call).change(call.id(), &body).await?)
}

async fn delete(call: Call) -> Answer {
    webhooks(&call).delete(call.id()).await?;
    Ok(answer::deleted(call.id(), "webhook_endpoint.deleted"))
}

async fn test(call: Call) -> Answer {
    shown(&webhooks(&call).test(call.id()).await?)
}

/// Only this response contains the new secret.
async fn rotate_secret(call: Call) -> Answer {
    secret(&webhooks(&call).rotate_secret(call.id()).await?)
}

async fn deliveries(call: Call) -> Answer {
    shown(&webhooks(&call).deliveries(call.id(), &call.page()?).await?)
}

async fn resend(call: Call) -> Answer {
    shown(&webhooks(&call).resend(call.id(), call.path.text(1)).await?)
}
