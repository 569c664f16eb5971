//! `POST /v1/responses`

use std::sync::Arc;

use amalgam_core::Scope;
use amalgam_engine::Announcement;
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use super::{
    deliver::{Beginning, deliver, event_stream, opening},
    head::{First, TurnHead, begun_or_due},
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
    let began = Instant::now();
    let (announcement, announced) = Announcement::new(strict);
    let (working, whose) = (Arc::clone(&app), scope.clone());
    // On the heap: a stream whose model is silent takes it along.
    let mut beginning: Beginning = Box::pin(async move {
        let identity = working.engine.identity();
        let mut order = Order { strict, announcement: Some(announcement), ..Order::new(identity) };
        begin(&working, &whose, &body, &mut order).await
    });
    match begun_or_due(&app.engine, began, announced, &mut beginning).await {
        First::Begun(begun) => {
            drop(beginning);
            deliver(&app, &scope, begun?).await
        }
        First::Due(announced) => {
            let head = TurnHead::named(&announced.identity.response_id);
            Ok(head.on(event_stream(opening(&app, announced, beginning))))
        }
    }
}

pub(super) fn is_strict(headers: &HeaderMap) -> bool {
    headers.get(STRICT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}
