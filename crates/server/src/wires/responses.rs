//! `/v1/responses` and `/v1/models`: the OpenAI-compatible door.

mod bounds;
mod convert;
mod create;
pub(crate) mod error;
mod models;

use std::sync::Arc;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::App;

pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/v1/responses", post(create::create))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::get))
}
