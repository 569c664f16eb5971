//! The HTTP APIs, one folder each.

mod admin;
mod answer;
mod assistant;
mod call;
mod chat_completions;
mod console;
mod conversations;
mod embeddings;
pub(crate) mod error;
mod execute;
mod files;
mod headers;
mod messages;
mod models;
mod ops;
mod query;
mod render;
mod reply;
mod responses;
mod site;
mod webhooks;

use std::sync::{Arc, LazyLock};

use amalgam_core::{BoxFuture, Fault, FaultKind, Scope};
use amalgam_pages::{ConsoleLink, HAS_CONSOLE};
use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::Method;

use crate::{
    app::{App, CurrentApp},
    layers::{self, AuthenticatedRouter, WireSet},
    metrics::ExpositionFormat,
};
use assistant::AssistantError;
pub(crate) use assistant::{Checks, issues_client_secrets, takes_client_secrets};
pub(crate) use error::WireError;
use execute::ExecuteError;
use messages::MessagesError;

pub use ops::openapi::document as openapi;

/// A route of the server.
#[derive(Debug, Clone)]
pub struct RouteInfo {
    /// The HTTP method.
    pub method: Method,
    /// The path, in the router's notation.
    pub path: &'static str,
    /// Whether the route needs no credential.
    pub public: bool,
}

impl RouteInfo {
    const fn guarded(method: Method, path: &'static str) -> Self {
        Self { method, path, public: false }
    }

    const fn public(method: Method, path: &'static str) -> Self {
        Self { method, path, public: true }
    }

    /// The path in OpenAPI notation, which has no parameter that spans slashes.
    pub fn published_path(&self) -> String {
        self.path.replace("{*", "{")
    }
}

/// The path of the metrics.
pub(crate) const METRICS: &str = "/metrics";

/// All routes. A route that is not public here requires authentication; tests compare the router and the OpenAPI
/// document with this list.
pub static ROUTES: &[RouteInfo] = &[
    RouteInfo::guarded(Method::POST, "/v1/responses"),
    RouteInfo::guarded(Method::GET, "/v1/responses"),
    RouteInfo::guarded(Method::POST, "/v1/responses/compact"),
    RouteInfo::guarded(Method::POST, "/v1/responses/input_tokens"),
    RouteInfo::guarded(Method::GET, "/v1/responses/{id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/responses/{id}"),
    RouteInfo::guarded(Method::POST, "/v1/responses/{id}/cancel"),
    RouteInfo::guarded(Method::GET, "/v1/responses/{id}/input_items"),
    RouteInfo::guarded(Method::POST, "/v1/chat/completions"),
    RouteInfo::guarded(Method::GET, "/v1/chat/completions"),
    RouteInfo::guarded(Method::GET, "/v1/chat/completions/{id}"),
    RouteInfo::guarded(Method::POST, "/v1/chat/completions/{id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/chat/completions/{id}"),
    RouteInfo::guarded(Method::GET, "/v1/chat/completions/{id}/messages"),
    RouteInfo::guarded(Method::POST, "/v1/embeddings"),
    RouteInfo::guarded(Method::POST, "/v1/messages"),
    RouteInfo::guarded(Method::POST, "/v1/messages/count_tokens"),
    RouteInfo::guarded(Method::POST, "/v1/conversations"),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}"),
    RouteInfo::guarded(Method::POST, "/v1/conversations/{id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/conversations/{id}"),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}/items"),
    RouteInfo::guarded(Method::POST, "/v1/conversations/{id}/items"),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}/items/{item_id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/conversations/{id}/items/{item_id}"),
    RouteInfo::guarded(Method::POST, "/v1/files"),
    RouteInfo::guarded(Method::GET, "/v1/files"),
    RouteInfo::guarded(Method::GET, "/v1/files/{id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/files/{id}"),
    RouteInfo::guarded(Method::GET, "/v1/files/{id}/content"),
    RouteInfo::guarded(Method::GET, "/v1/webhook_endpoints"),
    RouteInfo::guarded(Method::POST, "/v1/webhook_endpoints"),
    RouteInfo::guarded(Method::GET, "/v1/webhook_endpoints/{id}"),
    RouteInfo::guarded(Method::POST, "/v1/webhook_endpoints/{id}"),
    RouteInfo::guarded(Method::DELETE, "/v1/webhook_endpoints/{id}"),
    RouteInfo::guarded(Method::POST, "/v1/webhook_endpoints/{id}/test"),
    RouteInfo::guarded(Method::POST, "/v1/webhook_endpoints/{id}/rotate_secret"),
    RouteInfo::guarded(Method::GET, "/v1/webhook_endpoints/{id}/deliveries"),
    RouteInfo::guarded(Method::POST, "/v1/webhook_endpoints/{id}/deliveries/{delivery_id}/resend"),
    RouteInfo::guarded(Method::POST, "/api/v2/ai-agent/respond/"),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/respond/{response_id}/"),
    RouteInfo::guarded(Method::POST, "/api/v2/ai-agent/respond/{response_id}/cancel/"),
    RouteInfo::guarded(Method::POST, "/api/v2/ai-agent/client-secrets/"),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/health/"),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/sessions/"),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/sessions/{session_id}/messages/"),
    RouteInfo::guarded(Method::GET, "/api/v2/course-recommendations/"),
    RouteInfo::guarded(Method::POST, "/api/agent/execute"),
    RouteInfo::guarded(Method::POST, "/api/agent/sessions"),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions"),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}"),
    RouteInfo::guarded(Method::DELETE, "/api/agent/sessions/{session_id}"),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}/turns"),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}/turns/{turn_id}"),
    RouteInfo::guarded(Method::GET, "/v1/models"),
    RouteInfo::guarded(Method::GET, "/v1/models/{*id}"),
    RouteInfo::guarded(Method::GET, "/admin/tenants"),
    RouteInfo::guarded(Method::POST, "/admin/tenants"),
    RouteInfo::guarded(Method::GET, "/admin/tenants/{tenant_id}"),
    RouteInfo::guarded(Method::PATCH, "/admin/tenants/{tenant_id}"),
    RouteInfo::guarded(Method::GET, "/admin/keys"),
    RouteInfo::guarded(Method::POST, "/admin/keys"),
    RouteInfo::guarded(Method::DELETE, "/admin/keys/{key_id}"),
    RouteInfo::guarded(Method::GET, "/admin/tools"),
    RouteInfo::guarded(Method::GET, "/admin/tools/usage"),
    RouteInfo::guarded(Method::GET, "/admin/tools/{name}"),
    RouteInfo::guarded(Method::PUT, "/admin/tools/{name}"),
    RouteInfo::guarded(Method::DELETE, "/admin/tools/{name}"),
    RouteInfo::guarded(Method::POST, "/admin/tools/{name}/try"),
    RouteInfo::guarded(Method::GET, "/admin/tools/{name}/statistics"),
    RouteInfo::guarded(Method::GET, "/admin/audit"),
    RouteInfo::guarded(Method::GET, "/admin/approvals"),
    RouteInfo::guarded(Method::GET, "/admin/approvals/{id}"),
    RouteInfo::guarded(Method::POST, "/admin/approvals/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/configs/{tenant_id}"),
    RouteInfo::guarded(Method::PATCH, "/admin/configs/{tenant_id}"),
    RouteInfo::guarded(Method::GET, "/admin/profiles"),
    RouteInfo::guarded(Method::GET, "/admin/profiles/{slug}"),
    RouteInfo::guarded(Method::PUT, "/admin/profiles/{slug}"),
    RouteInfo::guarded(Method::DELETE, "/admin/profiles/{slug}"),
    RouteInfo::guarded(Method::GET, "/admin/profiles/{slug}/versions"),
    RouteInfo::guarded(Method::GET, "/admin/profiles/{slug}/versions/{version}/diff"),
    RouteInfo::guarded(Method::GET, "/admin/modes"),
    RouteInfo::guarded(Method::GET, "/admin/modes/{name}"),
    RouteInfo::guarded(Method::PUT, "/admin/modes/{name}"),
    RouteInfo::guarded(Method::DELETE, "/admin/modes/{name}"),
    RouteInfo::guarded(Method::GET, "/admin/knowledge"),
    RouteInfo::guarded(Method::POST, "/admin/knowledge/_search"),
    RouteInfo::guarded(Method::GET, "/admin/knowledge/{collection}"),
    RouteInfo::guarded(Method::DELETE, "/admin/knowledge/{collection}"),
    RouteInfo::guarded(Method::GET, "/admin/knowledge/{collection}/documents"),
    RouteInfo::guarded(Method::POST, "/admin/knowledge/{collection}/documents"),
    RouteInfo::guarded(Method::DELETE, "/admin/knowledge/{collection}/documents/{*document_id}"),
    RouteInfo::guarded(Method::GET, "/admin/courses"),
    RouteInfo::guarded(Method::POST, "/admin/courses/bulk"),
    RouteInfo::guarded(Method::GET, "/admin/courses/{id}"),
    RouteInfo::guarded(Method::PUT, "/admin/courses/{id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/courses/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/courses/users"),
    RouteInfo::guarded(Method::POST, "/admin/courses/users"),
    RouteInfo::guarded(Method::GET, "/admin/courses/users/{user}"),
    RouteInfo::guarded(Method::DELETE, "/admin/courses/users/{user}"),
    RouteInfo::guarded(Method::GET, "/admin/courses/users/{user}/{id}"),
    RouteInfo::guarded(Method::PUT, "/admin/courses/users/{user}/{id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/courses/users/{user}/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/sessions"),
    RouteInfo::guarded(Method::GET, "/admin/sessions/{session_id}"),
    RouteInfo::guarded(Method::POST, "/admin/sessions/{session_id}/close"),
    RouteInfo::guarded(Method::DELETE, "/admin/sessions/{session_id}"),
    RouteInfo::guarded(Method::GET, "/admin/agent-sessions"),
    RouteInfo::guarded(Method::GET, "/admin/agent-sessions/{session_id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/agent-sessions/{session_id}"),
    RouteInfo::guarded(Method::GET, "/admin/conversations"),
    RouteInfo::guarded(Method::GET, "/admin/conversations/{conversation_id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/conversations/{conversation_id}"),
    RouteInfo::guarded(Method::GET, "/admin/system"),
    RouteInfo::guarded(Method::GET, "/admin/configuration"),
    RouteInfo::guarded(Method::POST, "/admin/upstreams/{name}/check"),
    RouteInfo::guarded(Method::GET, "/admin/diagnose"),
    RouteInfo::guarded(Method::GET, "/admin/turns"),
    RouteInfo::guarded(Method::GET, "/admin/turns/tail"),
    RouteInfo::guarded(Method::POST, "/admin/reload"),
    RouteInfo::guarded(Method::GET, "/admin/turns/{response_id}"),
    RouteInfo::guarded(Method::GET, "/admin/turns/{response_id}/calls/{number}"),
    RouteInfo::guarded(Method::GET, "/admin/turns/{response_id}/context"),
    RouteInfo::guarded(Method::GET, "/admin/turns/{response_id}/events"),
    RouteInfo::guarded(Method::GET, "/admin/overview"),
    RouteInfo::guarded(Method::GET, "/admin/usage"),
    RouteInfo::guarded(Method::GET, "/admin/limits"),
    RouteInfo::guarded(Method::GET, "/admin/limits/tenants/{id}"),
    RouteInfo::guarded(Method::PUT, "/admin/limits/tenants/{id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/limits/tenants/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/limits/keys/{id}"),
    RouteInfo::guarded(Method::PUT, "/admin/limits/keys/{id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/limits/keys/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/limits/users/{id}"),
    RouteInfo::guarded(Method::PUT, "/admin/limits/users/{id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/limits/users/{id}"),
    RouteInfo::guarded(Method::GET, "/admin/limits/models/{*id}"),
    RouteInfo::guarded(Method::PUT, "/admin/limits/models/{*id}"),
    RouteInfo::guarded(Method::DELETE, "/admin/limits/models/{*id}"),
    RouteInfo::public(Method::GET, "/admin/console"),
    RouteInfo::public(Method::POST, "/admin/console/link"),
    RouteInfo::public(Method::GET, admin::OIDC_START),
    RouteInfo::public(Method::GET, admin::OIDC_CALLBACK),
    RouteInfo::guarded(Method::GET, admin::CONSOLE_SESSIONS),
    RouteInfo::guarded(Method::POST, admin::CONSOLE_SESSIONS),
    RouteInfo::guarded(Method::DELETE, "/admin/console/sessions/{session_id}"),
    RouteInfo::guarded(Method::DELETE, admin::OWN_CONSOLE_SESSION),
    RouteInfo::guarded(Method::GET, METRICS),
    RouteInfo::public(Method::GET, "/healthz"),
    RouteInfo::public(Method::GET, "/readyz"),
    RouteInfo::public(Method::GET, "/openapi.json"),
    RouteInfo::public(Method::GET, "/"),
    RouteInfo::public(Method::GET, "/llms.txt"),
    RouteInfo::public(Method::GET, "/docs"),
    RouteInfo::public(Method::GET, "/docs/"),
    RouteInfo::public(Method::GET, "/docs/{*page}"),
    RouteInfo::public(Method::GET, site::WIDGET),
    RouteInfo::public(Method::GET, site::WIDGET_ABOUT),
    RouteInfo::public(Method::GET, "/console"),
    RouteInfo::public(Method::GET, "/console/"),
    RouteInfo::public(Method::GET, "/console/{*page}"),
];

/// The link where the console is served, if it was built in.
const CONSOLE_LINK: ConsoleLink = if HAS_CONSOLE { ConsoleLink::Shown } else { ConsoleLink::Hidden };

/// All wires.
pub fn router(app: impl Into<CurrentApp>) -> AuthenticatedRouter {
    authenticated(app.into(), api_routes(CONSOLE_LINK).merge(admin::routes()).merge(console::routes()), WireSet::All)
}

/// All wires except the administration, for a listener that other machines can reach.
pub fn without_administration(app: impl Into<CurrentApp>) -> AuthenticatedRouter {
    authenticated(app.into(), api_routes(ConsoleLink::Hidden), WireSet::WithoutAdministration)
}

/// The administration with the console, and all wires that the console calls from the same origin, for a listener of its own.
pub fn administration(app: impl Into<CurrentApp>) -> AuthenticatedRouter {
    let routes = api_routes(CONSOLE_LINK).merge(admin::routes()).merge(console::routes());
    authenticated(app.into(), routes, WireSet::All)
}

/// Only metrics, for a listener of its own that needs no key.
pub fn metrics(app: impl Into<CurrentApp>) -> AuthenticatedRouter {
    authenticated(app.into(), ops::routes(), WireSet::Metrics)
}

/// The metrics as Prometheus' text, for exports.
pub fn metrics_text(app: CurrentApp) -> BoxFuture<'static, String> {
    Box::pin(async move { ops::metrics_text(&app.load(), ExpositionFormat::Text).await })
}

fn api_routes(console: ConsoleLink) -> Router<CurrentApp> {
    Router::new()
        .merge(responses::routes())
        .merge(chat_completions::routes())
        .merge(embeddings::routes())
        .merge(messages::routes())
        .merge(models::routes())
        .merge(conversations::routes())
        .merge(assistant::routes())
        .merge(execute::routes())
        .merge(files::routes())
        .merge(webhooks::routes())
        .merge(ops::routes())
        .merge(site::routes(console))
}

fn authenticated(app: CurrentApp, routes: Router<CurrentApp>, wires: WireSet) -> AuthenticatedRouter {
    let router = routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(app.clone());
    AuthenticatedRouter::new(app, router, wires)
}

/// Whether a path belongs to the administration, which requires more rights.
pub(crate) fn is_administration(path: &str) -> bool {
    path.strip_prefix("/admin").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path is about the caller's own session: every caller that can read may open and end one.
pub(crate) fn is_own_session(path: &str) -> bool {
    [admin::CONSOLE_SESSIONS, admin::OWN_CONSOLE_SESSION].contains(&path)
}

/// Whether pages of every origin may load a path: the widget, which holds no data.
pub(crate) fn is_embeddable(path: &str) -> bool {
    [site::WIDGET, site::WIDGET_ABOUT].contains(&path)
}

pub(crate) fn is_public(path: &str) -> bool {
    /// A separate list: every request searches it, and the list of all routes is long.
    static PUBLIC: LazyLock<Vec<&'static str>> =
        LazyLock::new(|| ROUTES.iter().filter(|route| route.public).map(|route| route.path).collect());
    PUBLIC.contains(&path) || path.starts_with(site::DOCS) || path.starts_with(console::PAGES)
}

/// The route of a request, in OpenAPI notation but with a star for a parameter that spans slashes.
pub(crate) fn route_of(method: &Method, path: &str) -> Option<&'static str> {
    let matches = |pattern: &str| {
        let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
        loop {
            match (wanted.next(), given.next()) {
                (Some(part), Some(_)) if part.starts_with("{*") => return true,
                (Some(part), Some(text)) if part.starts_with('{') && !text.is_empty() => {}
                (Some(part), Some(text)) if part == text => {}
                (None, None) => return true,
                _ => return false,
            }
        }
    };
    // A route without parameters comes before one that its path fits as well.
    let of_method = || ROUTES.iter().filter(|route| route.method == *method).map(|route| route.path);
    of_method().find(|pattern| *pattern == path).or_else(|| of_method().find(|pattern| matches(pattern)))
}

/// Whether a request uploads a file: the only bodies that are forms.
pub(crate) fn is_upload(request: &Request) -> bool {
    let path = request.uri().path();
    request.method() == Method::POST && (path == files::UPLOAD || admin::is_document_upload(path))
}

async fn no_such_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let fault = Fault::new(FaultKind::NotFound, format!("Unknown request URL: {}", shown(path))).code("unknown_url");
    layers::unread(&request, refusal(&app, &request, request_id(&request), fault))
}

async fn no_such_method(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("Not allowed to {} on {}", request.method(), shown(path));
    let fault = Fault::new(FaultKind::MethodNotAllowed, message);
    layers::unread(&request, refusal(&app, &request, request_id(&request), fault))
}

/// The id of a request that has passed authentication.
fn request_id(request: &Request) -> Option<&str> {
    request.extensions().get::<Scope>()?.request_id().map(|id| &**id)
}

/// A fault in the error format of the path's wire.
pub(crate) fn refusal(app: &App, request: &Request, request_id: Option<&str>, fault: Fault) -> Response {
    let path = request.uri().path();
    if messages::owns_path(path) || models::speaks_messages(path, request.headers()) {
        return MessagesError::before_routing(fault, request_id).into_response();
    }
    match (assistant::owns_path(path), execute::owns_path(path)) {
        (true, _) => AssistantError::from(fault).into_response(),
        (false, true) => ExecuteError::from(fault).with_casing(app.execute.casing).into_response(),
        (false, false) => WireError(fault).into_response(),
    }
}

/// The path, shortened for an error message.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
#[path = "wires_tests.rs"]
mod tests;
