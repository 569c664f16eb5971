//! `/admin`: tenants, keys, tools, assistants and turns, for operators and for the administrators of a tenant.
//!
//! Callers have a key with one of the scopes `admin` and `operator`. An administrator can access only its own tenant
//! and cannot learn which others exist; an operator can access all tenants. Handlers read the request and call the
//! services of `amalgam_administration`, which check the caller's rights and make the objects.

mod approvals;
mod audit;
pub(super) mod call;
mod configs;
mod console;
mod console_oidc;
mod courses;
mod diagnosis;
mod keys;
mod knowledge;
mod limits;
mod modes;
mod profiles;
mod reload;
mod sessions;
mod system;
mod tenants;
mod threads;
mod tools;
mod turns;
mod usage;

use amalgam_core::LimitKind;
use axum::{
    Router,
    routing::{get, post},
};

use crate::app::CurrentApp;

pub(super) use console::{OWN_SESSION as OWN_CONSOLE_SESSION, SESSIONS as CONSOLE_SESSIONS};
pub(super) use console_oidc::{CALLBACK as OIDC_CALLBACK, START as OIDC_START};

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/admin/tenants", get(tenants::list).post(tenants::create))
        .route("/admin/tenants/{tenant_id}", get(tenants::retrieve).patch(tenants::change))
        .route("/admin/keys", get(keys::list).post(keys::create))
        .route("/admin/keys/{key_id}", axum::routing::delete(keys::revoke))
        .route("/admin/tools", get(tools::list))
        .route("/admin/tools/usage", get(tools::usage))
        .route("/admin/tools/{name}", get(tools::retrieve).put(tools::put).delete(tools::delete))
        .route("/admin/tools/{name}/try", post(tools::try_out))
        .route("/admin/tools/{name}/statistics", get(tools::statistics))
        .route("/admin/audit", get(audit::list))
        .route("/admin/approvals", get(approvals::list))
        .route("/admin/approvals/{id}", get(approvals::retrieve).post(approvals::decide))
        .route("/admin/configs/{tenant_id}", get(configs::retrieve).patch(configs::change))
        .route("/admin/profiles", get(profiles::list))
        .route("/admin/profiles/{slug}", get(profiles::retrieve).put(profiles::put).delete(profiles::delete))
        .route("/admin/profiles/{slug}/versions", get(profiles::versions))
        .route("/admin/profiles/{slug}/versions/{version}/diff", get(profiles::compare))
        .route("/admin/modes", get(modes::list))
        .route("/admin/modes/{name}", get(modes::retrieve).put(modes::put).delete(modes::delete))
        .route("/admin/knowledge", get(knowledge::list))
        .route("/admin/knowledge/_search", post(knowledge::search))
        .route("/admin/knowledge/{collection}", get(knowledge::retrieve).delete(knowledge::delete))
        .route("/admin/knowledge/{collection}/documents", get(knowledge::documents).post(knowledge::upload))
        .route(
            "/admin/knowledge/{collection}/documents/{*document_id}",
            axum::routing::delete(knowledge::delete_document),
        )
        .route("/admin/courses", get(courses::list))
        .route("/admin/courses/bulk", post(courses::change))
        .route("/admin/courses/{id}", get(courses::retrieve).put(courses::put).delete(courses::delete))
        .route("/admin/courses/users", get(courses::list_learners).post(courses::change_learners))
        .route("/admin/courses/users/{user}", get(courses::list_learner).delete(courses::delete_learner))
        .route(
            "/admin/courses/users/{user}/{id}",
            get(courses::retrieve_learner_course)
                .put(courses::put_learner_course)
                .delete(courses::delete_learner_course),
        )
        .route("/admin/sessions", get(sessions::list))
        .route("/admin/sessions/{session_id}", get(sessions::retrieve).delete(sessions::delete))
        .route("/admin/sessions/{session_id}/close", post(sessions::close))
        .route("/admin/agent-sessions", get(threads::list_agent_sessions))
        .route(
            "/admin/agent-sessions/{session_id}",
            get(threads::retrieve_agent_session).delete(threads::delete_agent_session),
        )
        .route("/admin/conversations", get(threads::list_conversations))
        .route(
            "/admin/conversations/{conversation_id}",
            get(threads::retrieve_conversation).delete(threads::delete_conversation),
        )
        .route("/admin/system", get(system::retrieve))
        .route("/admin/configuration", get(system::configuration))
        .route("/admin/upstreams/{name}/check", post(system::check_upstream))
        .route("/admin/diagnose", get(diagnosis::diagnose))
        .route("/admin/turns", get(turns::list))
        .route("/admin/turns/tail", get(turns::tail))
        .route("/admin/reload", post(reload::reload))
        .route("/admin/turns/{response_id}", get(turns::retrieve))
        .route("/admin/turns/{response_id}/calls/{number}", get(turns::retrieve_call))
        .route("/admin/turns/{response_id}/context", get(turns::context))
        .route("/admin/turns/{response_id}/events", get(turns::events))
        .route("/admin/overview", get(turns::overview))
        .route("/admin/usage", get(usage::report))
        .route("/admin/limits", get(limits::list))
        .route("/admin/limits/tenants/{id}", limits::routes(LimitKind::Tenant))
        .route("/admin/limits/keys/{id}", limits::routes(LimitKind::Key))
        .route("/admin/limits/users/{id}", limits::routes(LimitKind::User))
        .route("/admin/limits/models/{*id}", limits::routes(LimitKind::Model))
        .route("/admin/console", get(console::status))
        .route("/admin/console/link", post(console::redeem_link))
        .route(console_oidc::START, get(console_oidc::start))
        .route(console_oidc::CALLBACK, get(console_oidc::callback))
        .route(CONSOLE_SESSIONS, get(console::list).post(console::open))
        .route("/admin/console/sessions/{session_id}", axum::routing::delete(console::end))
        .route(OWN_CONSOLE_SESSION, axum::routing::delete(console::sign_out))
}

/// Whether a path is that of documents of a collection, which are uploaded as forms.
pub(super) fn is_document_upload(path: &str) -> bool {
    let collection = path.strip_prefix("/admin/knowledge/").and_then(|rest| rest.strip_suffix("/documents"));
    collection.is_some_and(|collection| !collection.contains('/'))
}
