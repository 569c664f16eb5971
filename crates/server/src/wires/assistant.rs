//! `/api/v2/ai-agent/…`: the tenant's assistant, and the course catalogue.

mod cancel;
mod client_secrets;
mod courses;
mod error;
mod health;
mod respond;
mod sessions;
mod stream;

use std::borrow::Cow;

use axum::{
    Router,
    routing::{get, post},
};

use http::Method;

use super::route_of;
use crate::app::CurrentApp;

pub(in crate::wires) use error::AssistantError;
pub(crate) use health::Checks;

/// Whether errors on a path have the format of this wire.
pub(crate) fn owns_path(path: &str) -> bool {
    path.starts_with("/api/v2/")
}

/// The routes that a browser token reaches.
const BROWSER_ROUTES: [(Method, &str); 7] = [
    (Method::POST, "/api/v2/ai-agent/respond/"),
    (Method::GET, "/api/v2/ai-agent/respond/{response_id}/"),
    (Method::POST, "/api/v2/ai-agent/respond/{response_id}/cancel/"),
    (Method::GET, "/api/v2/ai-agent/health/"),
    (Method::GET, "/api/v2/ai-agent/sessions/"),
    (Method::GET, "/api/v2/ai-agent/sessions/{session_id}/messages/"),
    (Method::GET, "/api/v2/course-recommendations/"),
];

/// Whether a request may carry a browser token.
pub(crate) fn takes_client_secrets(method: &Method, path: &str) -> bool {
    // The list of routes has the paths with a slash at the end.
    let path = if path.ends_with('/') { Cow::Borrowed(path) } else { Cow::Owned(format!("{path}/")) };
    let route = route_of(method, &path);
    owns_path(&path) && route.is_some_and(|route| BROWSER_ROUTES.contains(&(method.clone(), route)))
}

/// Whether a request issues browser tokens.
pub(crate) fn issues_client_secrets(path: &str) -> bool {
    path.trim_end_matches('/') == "/api/v2/ai-agent/client-secrets"
}

/// Every route with and without a trailing slash.
pub(super) fn routes() -> Router<CurrentApp> {
    let mut router = Router::new();
    for end in ["", "/"] {
        router = router
            .route(&format!("/api/v2/ai-agent/respond{end}"), post(respond::respond))
            .route(&format!("/api/v2/ai-agent/respond/{{response_id}}{end}"), get(respond::resume))
            .route(&format!("/api/v2/ai-agent/respond/{{response_id}}/cancel{end}"), post(cancel::cancel))
            .route(&format!("/api/v2/ai-agent/client-secrets{end}"), post(client_secrets::issue))
            .route(&format!("/api/v2/ai-agent/health{end}"), get(health::health))
            .route(&format!("/api/v2/ai-agent/sessions{end}"), get(sessions::list))
            .route(&format!("/api/v2/ai-agent/sessions/{{session_id}}/messages{end}"), get(sessions::messages))
            .route(&format!("/api/v2/course-recommendations{end}"), get(courses::recommend));
    }
    router
}
