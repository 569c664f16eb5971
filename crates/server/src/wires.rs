//! The APIs that people call, one folder each.

mod ops;
mod responses;

use std::sync::Arc;

use amalgam_core::{Fault, FaultKind};
use axum::{
    Router,
    extract::Request,
    response::{IntoResponse, Response},
};
use http::Method;

use crate::{
    app::App,
    layers::{self, Entrance},
};
use ops::openapi::operations;
pub(crate) use responses::error::WireError;

pub use ops::openapi::document as openapi;

/// One thing that the server serves.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    /// How it is asked for.
    pub method: Method,
    /// Where it is, in the router's notation.
    pub path: &'static str,
    /// Whether it needs no caller.
    pub public: bool,
    /// What the published description says about it.
    pub(crate) describe: fn() -> serde_json::Value,
}

impl RouteInfo {
    const fn guarded(method: Method, path: &'static str, describe: fn() -> serde_json::Value) -> Self {
        Self { method, path, public: false, describe }
    }

    const fn public(method: Method, path: &'static str, describe: fn() -> serde_json::Value) -> Self {
        Self { method, path, public: true, describe }
    }

    /// The path as OpenAPI writes it, which knows no parameter that spans slashes.
    pub fn published_path(&self) -> String {
        self.path.replace("{*", "{")
    }
}

/// Everything that the server serves. A path that is not public here needs a caller; the published description is made
/// from this list, and tests hold the router to it.
pub static ROUTES: [RouteInfo; 6] = [
    RouteInfo::guarded(Method::POST, "/v1/responses", operations::create_response),
    RouteInfo::guarded(Method::GET, "/v1/models", operations::list_models),
    RouteInfo::guarded(Method::GET, "/v1/models/{*id}", operations::get_model),
    RouteInfo::public(Method::GET, "/healthz", operations::health),
    RouteInfo::public(Method::GET, "/readyz", operations::readiness),
    RouteInfo::public(Method::GET, "/openapi.json", operations::description),
];

/// All wires behind the common layers.
pub fn router(app: Arc<App>) -> Entrance {
    let router = Router::new()
        .merge(responses::routes())
        .merge(ops::routes())
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .with_state(Arc::clone(&app));
    Entrance::new(app, router)
}

pub(crate) fn is_public(path: &str) -> bool {
    ROUTES.iter().any(|route| route.public && route.path == path)
}

async fn no_such_path(request: Request) -> Response {
    let path = request.uri().path();
    let fault = Fault::new(FaultKind::NotFound, format!("Unknown request URL: {}", shown(path))).code("unknown_url");
    layers::unread(&request, WireError(fault).into_response())
}

async fn no_such_method(request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("Not allowed to {} on {}", request.method(), shown(path));
    let fault = Fault::new(FaultKind::MethodNotAllowed, message);
    layers::unread(&request, WireError(fault).into_response())
}

/// A path as it may be repeated to its caller.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
#[path = "wires_tests.rs"]
mod tests;
