//! `/v1/chat/completions`: turns in the language of the Chat Completions API, and stored completions.

mod create;
mod list;
mod messages;
mod render;
mod retrieve;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::CurrentApp;

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/v1/chat/completions", post(create::create).get(list::list))
        .route("/v1/chat/completions/{id}", get(retrieve::retrieve).post(retrieve::update).delete(retrieve::delete))
        .route("/v1/chat/completions/{id}/messages", get(messages::list))
}
