//! `POST /v1/responses`

use std::sync::Arc;

use amalgam_core::Scope;
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, HeaderName};

use super::{
    deliver::deliver,
    once,
    turn::{Order, begin},
};
use crate::{app::App, body::read_json, wires::WireError};

const STRICT: HeaderName = HeaderName::from_static("amalgam-strict");

/// Makes a response: reads, understands, asks, delivers.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (head, body) = read_json(request, app.limits.whole_body(), &app.memory).await?;
    let strict = is_strict(&head.headers);
    if let Some(key) = once::key(&head.headers)? {
        // In a box: few requests have a key, and the others need no room for it.
        return Box::pin(once::create(&app, &scope, key, strict, body)).await;
    }
    let mut order = Order { strict, ..Order::new(app.engine.identity()) };
    let begun = begin(&app, &scope, &body, &mut order).await?;
    drop(body);
    deliver(&app, &scope, begun).await
}

pub(super) fn is_strict(headers: &HeaderMap) -> bool {
    headers.get(STRICT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}
