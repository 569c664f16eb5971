//! Operations: is it alive, is it ready, what does it serve.

pub(crate) mod openapi;

use std::sync::Arc;

use axum::{Router, body::Body, extract::State, response::Response, routing::get};
use http::{HeaderValue, StatusCode, header};

use crate::app::App;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/healthz", get(async || json(StatusCode::OK, r#"{"status":"ok"}"#)))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(async || json(StatusCode::OK, openapi::document())))
}

/// Ready for work: not while the process drains.
async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.is_ready() {
        true => json(StatusCode::OK, format!(r#"{{"status":"ready","turns_in_flight":{}}}"#, app.engine.in_flight())),
        false => json(StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"draining"}"#),
    }
}

fn json(status: StatusCode, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
