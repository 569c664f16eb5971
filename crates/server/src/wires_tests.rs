//! The router against the table of routes.

use std::collections::BTreeSet;

use amalgam_core::TenantState;
use axum::response::IntoResponse;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;

use super::*;
use crate::testing::{self, KEY};

fn served() -> AuthenticatedRouter {
    testing::served(TenantState::Stored)
}

async fn ask(method: &Method, path: &str, key: Option<&str>) -> (StatusCode, Value) {
    let path = path.replace("{*id}", "some/model").replace("{*page}", "clients.md").replace(['{', '}'], "");
    let told = testing::ask(served(), method, &path, key, "").await;
    assert!(told.headers.contains_key("x-request-id"), "{method} {path}");
    (told.status, told.body)
}

/// The paths that the router really has. It offers no list of them, so they are read from how it prints itself.
fn routed_paths() -> BTreeSet<String> {
    let printed = format!("{:?}", served());
    let (routes, _) = printed.split_once("fallback_router").expect("routes come before the fallback");
    let quoted = routes.split('"').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with('/') && !text.contains("__private__axum")).map(str::to_owned).collect()
}

/// A path of the table, and the same without the slash at its end where both are served.
fn written(path: &str) -> impl Iterator<Item = String> {
    let twin =
        path.strip_prefix("/api/v2/").and_then(|rest| rest.strip_suffix('/')).map(|rest| format!("/api/v2/{rest}"));
    [path.to_owned()].into_iter().chain(twin)
}

#[test]
fn the_router_has_exactly_the_paths_of_the_table() {
    let table: BTreeSet<String> = ROUTES.iter().flat_map(|route| written(route.path)).collect();
    assert_eq!(routed_paths(), table);
}

#[tokio::test]
async fn every_path_takes_exactly_the_methods_of_the_table() {
    for path in routed_paths() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let is_this = |route: &RouteInfo| route.method == method && written(route.path).any(|one| one == path);
            let listed = ROUTES.iter().any(is_this);
            let (status, answer) = ask(&method, &path, Some(KEY)).await;
            assert_eq!(status != StatusCode::METHOD_NOT_ALLOWED, listed, "{method} {path}: {answer}");
            assert_ne!(answer["error"]["code"], "unknown_url", "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_route_that_is_not_public_refuses_callers_without_a_good_key() {
    // S19
    for route in ROUTES {
        for key in [None, Some("am_another_key")] {
            let (status, answer) = ask(&route.method, route.path, key).await;
            match route.public {
                // A link is a credential of its own, in the body.
                true if route.method == Method::POST => assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}"),
                // No provider is configured here.
                true if route.path.starts_with("/admin/console/oidc/") => {
                    assert_eq!(status, StatusCode::NOT_FOUND, "{answer}")
                }
                true => assert_eq!(status, StatusCode::OK, "{}: {answer}", route.path),
                false => {
                    assert_eq!(status, StatusCode::UNAUTHORIZED, "{}: {answer}", route.path);
                    match (assistant::owns_path(route.path), execute::owns_path(route.path)) {
                        (true, _) => assert!(answer["detail"].is_string(), "{}: {answer}", route.path),
                        (_, true) => assert_eq!(answer["ErrorCode"], "invalid_api_key", "{}", route.path),
                        _ if messages::owns_path(route.path) => {
                            assert_eq!(answer["error"]["type"], "authentication_error", "{}", route.path);
                        }
                        _ => assert_eq!(answer["error"]["code"], "invalid_api_key", "{}", route.path),
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_path_beside_the_table_is_closed_before_it_is_unknown() {
    for path in ["//", "/v1/unknown", "/healthz/", "/openapi.json/x", "/docsx", "/llms.txt/"] {
        assert_eq!(ask(&Method::GET, path, None).await.0, StatusCode::UNAUTHORIZED, "{path}");
        let (status, answer) = ask(&Method::GET, path, Some(KEY)).await;
        assert_eq!((status, &answer["error"]["code"]), (StatusCode::NOT_FOUND, &"unknown_url".into()), "{path}");
    }
}

/// Every kind of fault that this version can meet.
const KINDS: [FaultKind; 26] = [
    FaultKind::Invalid,
    FaultKind::Unauthenticated,
    FaultKind::Forbidden,
    FaultKind::NotFound,
    FaultKind::MethodNotAllowed,
    FaultKind::TooLarge,
    FaultKind::UnsupportedMedia,
    FaultKind::RequestTimeout,
    FaultKind::Overloaded,
    FaultKind::RateLimited,
    FaultKind::QuotaExceeded,
    FaultKind::OutOfMemory,
    FaultKind::ShuttingDown,
    FaultKind::StoreDown,
    FaultKind::UpstreamBusy,
    FaultKind::UpstreamQuota,
    FaultKind::UpstreamCredential,
    FaultKind::UpstreamRejected,
    FaultKind::ContextLength,
    FaultKind::ContentPolicy,
    FaultKind::UpstreamDown,
    FaultKind::UpstreamBroken,
    FaultKind::UpstreamTimeout,
    FaultKind::Deadline,
    FaultKind::ToolServer,
    FaultKind::ToolFailed,
];

#[tokio::test]
async fn the_table_of_errors_in_the_documentation_has_every_fault() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/clients.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in KINDS {
        let mut fault = Fault::new(kind, "x");
        if kind == FaultKind::NotFound {
            fault = fault.code("model_not_found");
        }
        let (head, body) = WireError(fault).into_response().into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
        let error = &body["error"];
        let [family, code] = ["type", "code"].map(|name| format!("`{}`", error[name].as_str().unwrap()));
        let row = format!("| {} | {family} |", head.status.as_u16());
        let told = page.lines().any(|line| line.starts_with(&row) && line.contains(&code));
        assert!(told, "docs/clients.md has no row `{row}` with {code}");
    }
}
