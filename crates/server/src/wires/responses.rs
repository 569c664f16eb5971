//! `/v1/responses` and `/v1/models`: the OpenAI-compatible door.

mod background;
pub(super) mod bounds;
mod compact;
mod convert;
mod create;
pub(super) mod deliver;
pub(crate) mod error;
mod gather;
pub(super) mod head;
mod input_tokens;
mod items;
mod models;
pub(super) mod once;
mod profile;
mod resume;
mod retrieve;
mod silent;
mod socket;
mod tools;
pub(super) mod turn;
pub(super) mod uploads;

use std::sync::Arc;

use amalgam_core::Scope;
use axum::{
    Extension, Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};

use crate::app::App;

pub use background::QueueRunner;

pub(super) const CREATE: &str = "/v1/responses";

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route(CREATE, post(create::create).get(socket::open))
        .route("/v1/responses/compact", post(compact::compact))
        .route("/v1/responses/input_tokens", post(input_tokens::count))
        .route("/v1/responses/{id}", get(retrieve::retrieve).delete(retrieve::delete))
        .route("/v1/responses/{id}/cancel", post(retrieve::cancel))
        .route("/v1/responses/{id}/input_items", get(items::list))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::get))
}

/// What the router does for [`CREATE`], without its way there.
pub(super) async fn create(app: Arc<App>, scope: Scope, request: Request) -> Response {
    create::create(State(app), Extension(scope), request).await.into_response()
}
