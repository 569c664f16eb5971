//! Operations: liveness, readiness, metrics, the OpenAPI document.

pub(crate) mod openapi;

use std::{sync::Arc, time::Duration};

use amalgam_core::{Operator, TurnQueue};
use axum::{Router, body::Body, extract::State, response::Response, routing::get};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tracing::debug;

use crate::{
    app::{App, CurrentApp},
    metrics::{ExpositionFormat, LiveState},
};

/// The timeout of the store's health check.
const PING: Duration = Duration::from_secs(2);

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/healthz", get(async || json(StatusCode::OK, r#"{"status":"ok"}"#)))
        .route("/readyz", get(ready))
        .route(super::METRICS, get(metrics))
        .route("/openapi.json", get(async || json(StatusCode::OK, openapi::document())))
}

/// Ready unless the process drains, or the store is unavailable or read-only.
async fn ready(State(app): State<Arc<App>>) -> Response {
    if !app.is_ready() {
        return json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"draining"}"#);
    }
    if app.engine.is_store_unavailable() {
        return json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"store_unavailable"}"#);
    }
    let why = match tokio::time::timeout(PING, app.store.ping()).await {
        Ok(Ok(())) => {
            let (running, waiting) = (app.engine.in_flight(), app.session_queues.waiting());
            let ready = format!(r#"{{"status":"ready","turns_in_flight":{running},"turns_waiting":{waiting}}}"#);
            return json(StatusCode::OK, ready);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the store does not answer".to_owned(),
    };
    debug!("not ready: {why}");
    json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"store_unavailable"}"#)
}

/// All metrics. A queue that the store cannot count now is left out.
async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let format = ExpositionFormat::accepted(&headers);
    let mut response = Response::new(Body::from(metrics_text(&app, format).await));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

/// All metrics as text.
pub(crate) async fn metrics_text(app: &App, format: ExpositionFormat) -> String {
    let counted = tokio::time::timeout(PING, app.store.count_queued(Operator::of_this_process(), 0)).await;
    let background = counted.ok().and_then(Result::ok).map(|(_, of_all)| of_all);
    let live = LiveState {
        turns_in_flight: app.engine.in_flight(),
        queued: vec![
            (TurnQueue::Background, background),
            (TurnQueue::Session, Some(app.session_queues.waiting() as u64)),
            (TurnQueue::Admission, Some(app.engine.waiting() as u64)),
        ],
        breakers: app.catalog.resting(),
    };
    app.log.metrics().render(live, format)
}

fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
