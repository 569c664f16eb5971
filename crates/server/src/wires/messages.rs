//! `/v1/messages`: the wire for clients of Anthropic's Messages API.

mod create;
mod error;
mod reply;

use axum::{Router, routing::post};

use crate::app::CurrentApp;

pub(in crate::wires) use error::MessagesError;

/// The path of this wire.
const MESSAGES: &str = "/v1/messages";

/// Whether errors on a path have the format of this wire.
pub(crate) fn owns_path(path: &str) -> bool {
    path.strip_prefix(MESSAGES).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new().route(MESSAGES, post(create::create)).route("/v1/messages/count_tokens", post(create::count_tokens))
}
