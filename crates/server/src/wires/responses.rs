//! `/v1/responses`: the OpenAI-compatible wire.

mod compact;
mod create;
mod input_tokens;
mod items;
mod list;
mod resume;
mod retrieve;
mod websocket;

use axum::{
    Router,
    extract::{FromRequestParts as _, Request, State},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};

use http::header;

use super::call::Call;
use crate::app::CurrentApp;

/// Opens a WebSocket if the request asks for one, otherwise answers with the list.
async fn list_or_open(State(app): State<CurrentApp>, request: Request) -> Response {
    if request.headers().contains_key(header::UPGRADE) {
        return websocket::open(State(app), request).await;
    }
    let (mut head, _) = request.into_parts();
    match Call::from_request_parts(&mut head, &app).await {
        Ok(call) => list::list(call).await.into_response(),
        Err(error) => error.into_response(),
    }
}

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/v1/responses", post(create::create).get(list_or_open))
        .route("/v1/responses/compact", post(compact::compact))
        .route("/v1/responses/input_tokens", post(input_tokens::count))
        .route("/v1/responses/{id}", get(retrieve::retrieve).delete(retrieve::delete))
        .route("/v1/responses/{id}/cancel", post(retrieve::cancel))
        .route("/v1/responses/{id}/input_items", get(items::list))
}
