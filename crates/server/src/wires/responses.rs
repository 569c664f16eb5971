//! `/v1/responses` and `/v1/models`: the OpenAI-compatible wire.

mod compact;
mod create;
mod input_tokens;
mod items;
mod models;
mod resume;
mod retrieve;
mod websocket;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::CurrentApp;

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/v1/responses", post(create::create).get(websocket::open))
        .route("/v1/responses/compact", post(compact::compact))
        .route("/v1/responses/input_tokens", post(input_tokens::count))
        .route("/v1/responses/{id}", get(retrieve::retrieve).delete(retrieve::delete))
        .route("/v1/responses/{id}/cancel", post(retrieve::cancel))
        .route("/v1/responses/{id}/input_items", get(items::list))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::get))
}
