//! `/api/v2/ai-agent/…`: the tenant's assistant, and the course catalogue.

mod courses;
mod error;
mod health;
mod respond;
mod sessions;
mod stream;

use axum::{
    Router,
    routing::{get, post},
};

use crate::app::CurrentApp;

pub(in crate::wires) use error::AssistantError;
pub(crate) use health::Checks;

/// Whether errors on a path have the format of this wire.
pub(crate) fn owns_path(path: &str) -> bool {
    path.starts_with("/api/v2/")
}

/// Every route with and without a trailing slash.
pub(super) fn routes() -> Router<CurrentApp> {
    let mut router = Router::new();
    for end in ["", "/"] {
        router = router
            .route(&format!("/api/v2/ai-agent/respond{end}"), post(respond::respond))
            .route(&format!("/api/v2/ai-agent/respond/{{response_id}}{end}"), get(respond::resume))
            .route(&format!("/api/v2/ai-agent/health{end}"), get(health::health))
            .route(&format!("/api/v2/ai-agent/sessions{end}"), get(sessions::list))
            .route(&format!("/api/v2/ai-agent/sessions/{{session_id}}/messages{end}"), get(sessions::messages))
            .route(&format!("/api/v2/course-recommendations{end}"), get(courses::recommend));
    }
    router
}
