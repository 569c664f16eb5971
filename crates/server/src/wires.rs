//! The APIs that people call, one folder each.

mod ops;
mod responses;

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind};
use axum::{Router, http::Uri, middleware};

use crate::{app::App, layers};
pub(crate) use responses::error::WireError;

pub use ops::openapi::document as openapi;

/// Every path that needs no caller.
const PUBLIC: [&str; 3] = ["/healthz", "/readyz", "/openapi.json"];

/// All wires behind the common layers.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .merge(responses::routes())
        .merge(ops::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(app.clone(), layers::enter))
        .with_state(app)
}

pub(crate) fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path)
}

/// A refusal in the shape of the door that `path` belongs to.
pub(crate) fn refusal(_path: &str, fault: Fault) -> WireError {
    WireError(fault)
}

async fn no_such_path(uri: Uri) -> WireError {
    let fault =
        Fault::new(FaultKind::NotFound, format!("Unknown request URL: {}", shown(uri.path()))).code("unknown_url");
    refusal(uri.path(), fault)
}

async fn no_such_method(method: http::Method, uri: Uri) -> WireError {
    let message = format!("Not allowed to {method} on {}", shown(uri.path()));
    refusal(uri.path(), Fault::new(FaultKind::MethodNotAllowed, message))
}

/// A path as it may be repeated to its caller.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}
