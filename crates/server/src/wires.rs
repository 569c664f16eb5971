//! The APIs that people call, one folder each.

mod admin;
mod answer;
mod assistant;
mod conversations;
pub(crate) mod error;
mod execute;
mod files;
mod headers;
mod ops;
mod query;
mod reply;
mod responses;
mod retell;

use std::sync::{Arc, LazyLock};

use amalgam_core::{Fault, FaultKind};
use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use http::Method;

use crate::{
    app::App,
    layers::{self, Behind, Entrance},
};
pub use admin::{Bank, ListedMode, Modes, Trial, TrialMishap, Whose, approval_status, settled, show_approval};
use assistant::AssistantError;
pub(crate) use assistant::Checks;
pub(crate) use error::WireError;
use execute::ExecuteError;
use ops::openapi::operations;

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
pub static ROUTES: &[RouteInfo] = &[
    RouteInfo::guarded(Method::POST, "/v1/responses", operations::create_response),
    RouteInfo::guarded(Method::GET, "/v1/responses", operations::open_socket),
    RouteInfo::guarded(Method::POST, "/v1/responses/compact", operations::compact_response),
    RouteInfo::guarded(Method::POST, "/v1/responses/input_tokens", operations::count_input_tokens),
    RouteInfo::guarded(Method::GET, "/v1/responses/{id}", operations::get_response),
    RouteInfo::guarded(Method::DELETE, "/v1/responses/{id}", operations::delete_response),
    RouteInfo::guarded(Method::POST, "/v1/responses/{id}/cancel", operations::cancel_response),
    RouteInfo::guarded(Method::GET, "/v1/responses/{id}/input_items", operations::list_input_items),
    RouteInfo::guarded(Method::POST, "/v1/conversations", operations::create_conversation),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}", operations::get_conversation),
    RouteInfo::guarded(Method::POST, "/v1/conversations/{id}", operations::update_conversation),
    RouteInfo::guarded(Method::DELETE, "/v1/conversations/{id}", operations::delete_conversation),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}/items", operations::list_items),
    RouteInfo::guarded(Method::POST, "/v1/conversations/{id}/items", operations::add_items),
    RouteInfo::guarded(Method::GET, "/v1/conversations/{id}/items/{item_id}", operations::get_item),
    RouteInfo::guarded(Method::DELETE, "/v1/conversations/{id}/items/{item_id}", operations::delete_item),
    RouteInfo::guarded(Method::POST, "/v1/files", operations::upload_file),
    RouteInfo::guarded(Method::GET, "/v1/files", operations::list_files),
    RouteInfo::guarded(Method::GET, "/v1/files/{id}", operations::get_file),
    RouteInfo::guarded(Method::DELETE, "/v1/files/{id}", operations::delete_file),
    RouteInfo::guarded(Method::GET, "/v1/files/{id}/content", operations::get_file_content),
    RouteInfo::guarded(Method::POST, "/api/v2/ai-agent/respond/", operations::respond),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/respond/{response_id}/", operations::resume_answer),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/health/", operations::assistant_health),
    RouteInfo::guarded(Method::GET, "/api/v2/ai-agent/sessions/", operations::list_threads),
    RouteInfo::guarded(
        Method::GET,
        "/api/v2/ai-agent/sessions/{session_id}/messages/",
        operations::list_thread_messages,
    ),
    RouteInfo::guarded(Method::GET, "/api/v2/course-recommendations/", operations::recommend_courses),
    RouteInfo::guarded(Method::POST, "/api/agent/execute", operations::execute_turn),
    RouteInfo::guarded(Method::POST, "/api/agent/sessions", operations::open_agent_session),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions", operations::list_agent_sessions),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}", operations::get_agent_session),
    RouteInfo::guarded(Method::DELETE, "/api/agent/sessions/{session_id}", operations::delete_agent_session),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}/turns", operations::list_agent_turns),
    RouteInfo::guarded(Method::GET, "/api/agent/sessions/{session_id}/turns/{turn_id}", operations::get_agent_turn),
    RouteInfo::guarded(Method::GET, "/v1/models", operations::list_models),
    RouteInfo::guarded(Method::GET, "/v1/models/{*id}", operations::get_model),
    RouteInfo::guarded(Method::GET, "/admin/tenants", operations::list_tenants),
    RouteInfo::guarded(Method::POST, "/admin/tenants", operations::create_tenant),
    RouteInfo::guarded(Method::GET, "/admin/tenants/{tenant_id}", operations::get_tenant),
    RouteInfo::guarded(Method::PATCH, "/admin/tenants/{tenant_id}", operations::change_tenant),
    RouteInfo::guarded(Method::GET, "/admin/keys", operations::list_keys),
    RouteInfo::guarded(Method::POST, "/admin/keys", operations::create_key),
    RouteInfo::guarded(Method::DELETE, "/admin/keys/{key_id}", operations::revoke_key),
    RouteInfo::guarded(Method::GET, "/admin/tools", operations::list_tools),
    RouteInfo::guarded(Method::GET, "/admin/tools/usage", operations::get_tool_usage),
    RouteInfo::guarded(Method::GET, "/admin/tools/{name}", operations::get_tool),
    RouteInfo::guarded(Method::PUT, "/admin/tools/{name}", operations::put_tool),
    RouteInfo::guarded(Method::DELETE, "/admin/tools/{name}", operations::delete_tool),
    RouteInfo::guarded(Method::POST, "/admin/tools/{name}/try", operations::try_tool),
    RouteInfo::guarded(Method::GET, "/admin/tools/{name}/statistics", operations::get_tool_statistics),
    RouteInfo::guarded(Method::GET, "/admin/approvals", operations::list_approvals),
    RouteInfo::guarded(Method::GET, "/admin/approvals/{id}", operations::get_approval),
    RouteInfo::guarded(Method::POST, "/admin/approvals/{id}", operations::decide_approval),
    RouteInfo::guarded(Method::GET, "/admin/configs/{tenant_id}", operations::get_config),
    RouteInfo::guarded(Method::PATCH, "/admin/configs/{tenant_id}", operations::change_config),
    RouteInfo::guarded(Method::GET, "/admin/profiles", operations::list_profiles),
    RouteInfo::guarded(Method::GET, "/admin/profiles/{slug}", operations::get_profile),
    RouteInfo::guarded(Method::PUT, "/admin/profiles/{slug}", operations::put_profile),
    RouteInfo::guarded(Method::DELETE, "/admin/profiles/{slug}", operations::delete_profile),
    RouteInfo::guarded(Method::GET, "/admin/profiles/{slug}/versions", operations::list_profile_versions),
    RouteInfo::guarded(
        Method::GET,
        "/admin/profiles/{slug}/versions/{version}/diff",
        operations::compare_profile_versions,
    ),
    RouteInfo::guarded(Method::GET, "/admin/modes", operations::list_modes),
    RouteInfo::guarded(Method::GET, "/admin/modes/{name}", operations::get_mode),
    RouteInfo::guarded(Method::PUT, "/admin/modes/{name}", operations::put_mode),
    RouteInfo::guarded(Method::DELETE, "/admin/modes/{name}", operations::delete_mode),
    RouteInfo::guarded(Method::GET, "/admin/knowledge", operations::list_knowledge),
    RouteInfo::guarded(Method::GET, "/admin/knowledge/{collection}", operations::get_knowledge),
    RouteInfo::guarded(Method::DELETE, "/admin/knowledge/{collection}", operations::delete_knowledge),
    RouteInfo::guarded(Method::GET, "/admin/knowledge/{collection}/documents", operations::list_knowledge_documents),
    RouteInfo::guarded(Method::GET, "/admin/sessions", operations::list_sessions),
    RouteInfo::guarded(Method::GET, "/admin/sessions/{session_id}", operations::get_session),
    RouteInfo::guarded(Method::GET, "/admin/diagnose", operations::diagnose),
    RouteInfo::guarded(Method::GET, "/admin/turns/{response_id}", operations::get_turn),
    RouteInfo::public(Method::GET, "/healthz", operations::health),
    RouteInfo::public(Method::GET, "/readyz", operations::readiness),
    RouteInfo::public(Method::GET, "/openapi.json", operations::description),
];

/// All wires behind the common layers.
pub fn router(app: Arc<App>) -> Entrance {
    entrance(app, doors_routes().merge(admin::routes()), Behind::Everything)
}

/// All wires but the administration, for a listener that other machines reach.
pub fn doors(app: Arc<App>) -> Entrance {
    entrance(app, doors_routes(), Behind::Doors)
}

/// The administration alone, for a listener of its own.
pub fn administration(app: Arc<App>) -> Entrance {
    entrance(app, Router::new().merge(admin::routes()).merge(ops::routes()), Behind::Administration)
}

fn doors_routes() -> Router<Arc<App>> {
    Router::new()
        .merge(responses::routes())
        .merge(conversations::routes())
        .merge(assistant::routes())
        .merge(execute::routes())
        .merge(files::routes())
        .merge(ops::routes())
}

fn entrance(app: Arc<App>, routes: Router<Arc<App>>, behind: Behind) -> Entrance {
    let router = routes.fallback(no_such_path).method_not_allowed_fallback(no_such_method).with_state(Arc::clone(&app));
    Entrance::new(app, router, behind)
}

/// Whether a path belongs to the administration, which asks more of its callers.
pub(crate) fn is_administration(path: &str) -> bool {
    path.strip_prefix("/admin").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn is_public(path: &str) -> bool {
    /// Apart from the others: every request asks, and the list of all routes is long.
    static PUBLIC: LazyLock<Vec<&'static str>> =
        LazyLock::new(|| ROUTES.iter().filter(|route| route.public).map(|route| route.path).collect());
    PUBLIC.contains(&path)
}

/// Whether a request uploads a file: the one kind of body that is a form.
pub(crate) fn is_upload(request: &Request) -> bool {
    request.method() == Method::POST && request.uri().path() == files::UPLOAD
}

async fn no_such_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let fault = Fault::new(FaultKind::NotFound, format!("Unknown request URL: {}", shown(path))).code("unknown_url");
    layers::unread(&request, refusal(&app, path, fault))
}

async fn no_such_method(State(app): State<Arc<App>>, request: Request) -> Response {
    let path = request.uri().path();
    let message = format!("Not allowed to {} on {}", request.method(), shown(path));
    let fault = Fault::new(FaultKind::MethodNotAllowed, message);
    layers::unread(&request, refusal(&app, path, fault))
}

/// A fault in the shape of the door that a path belongs to.
pub(crate) fn refusal(app: &App, path: &str, fault: Fault) -> Response {
    match (assistant::is_ours(path), execute::is_ours(path)) {
        (true, _) => AssistantError::from(fault).into_response(),
        (false, true) => ExecuteError::from(fault).cased(app.execute.casing).into_response(),
        (false, false) => WireError(fault).into_response(),
    }
}

/// A path as it may be repeated to its caller.
fn shown(path: &str) -> String {
    path.chars().take(200).collect()
}

#[cfg(test)]
#[path = "wires_tests.rs"]
mod tests;
