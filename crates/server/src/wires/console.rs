//! The pages of the console, which the browser fetches without a key and which hold no data.

use std::sync::Arc;

use amalgam_pages::console_page;
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    response::Response,
    routing::get,
};

use super::no_such_path;
use crate::app::{App, CurrentApp};

/// Everything below is served without a key.
pub(super) const PAGES: &str = "/console/";

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new().route("/console", get(page)).route("/console/", get(page)).route("/console/{*page}", get(page))
}

async fn page(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix(PAGES).unwrap_or_default();
    match console_page(path, request.headers()) {
        Some(page) => page.map(Body::from),
        None => no_such_path(State(app), request).await,
    }
}
