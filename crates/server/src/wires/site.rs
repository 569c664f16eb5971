//! Public pages of the server, which need no key: the home page, the documentation, `llms.txt`.

use std::sync::Arc;

use amalgam_pages::{
    ConsoleLink, DOCUMENTATION, HtmlPage, by_accept, cached_text, documentation_list, llms_text, prefers_html,
    widget_about, widget_script,
};
use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, Request, State},
    response::Response,
    routing::get,
};
use http::HeaderMap;
use serde_json::json;

use super::{no_such_path, ops::openapi};
use crate::app::{App, CurrentApp};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the server is, in one sentence.
const SUMMARY: &str = "A self-hosted OpenAI Responses server and multi-tenant agent backend, over any model.";

/// Everything below is served without a key.
pub(super) const DOCS: &str = "/docs/";

/// The script of the widget, and what is known about it.
pub(super) const WIDGET: &str = "/widget.js";
pub(super) const WIDGET_ABOUT: &str = "/widget.json";

pub(super) fn routes(console: ConsoleLink) -> Router<CurrentApp> {
    let home = move |State(app): State<Arc<App>>, headers: HeaderMap| async move { home(&app, &headers, console) };
    Router::new()
        .route("/", get(home))
        .route("/llms.txt", get(llms))
        .route("/docs", get(async |headers: HeaderMap| index(&headers, "docs/")))
        .route("/docs/", get(async |headers: HeaderMap| index(&headers, "")))
        .route("/docs/{*page}", get(document))
        .route(WIDGET, get(async |headers: HeaderMap| widget_script(&headers).map(Body::from)))
        .route(WIDGET_ABOUT, get(async |headers: HeaderMap| widget_about(&headers, VERSION).map(Body::from)))
}

/// A page for browsers, JSON for programs.
fn home(app: &App, headers: &HeaderMap, console: ConsoleLink) -> Response {
    if prefers_html(headers) {
        let page = HtmlPage::home(VERSION, SUMMARY, &app.assistant.public_url, console);
        return by_accept(page.answer(headers)).map(Body::from);
    }
    let mut about = json!({
        "name": "amalgam",
        "version": VERSION,
        "docs": "/docs/",
        "llms": "/llms.txt",
        "openapi": "/openapi.json",
        "health": "/healthz",
        "ready": "/readyz",
        "widget": "/widget.json",
    });
    if console == ConsoleLink::Shown {
        about["console"] = "/console/".into();
    }
    by_accept(cached_text(headers, "application/json", about.to_string())).map(Body::from)
}

/// The list of pages, with links that start with `base`.
fn index(headers: &HeaderMap, base: &str) -> Response {
    let answer = match prefers_html(headers) {
        true => HtmlPage::index(VERSION, base).answer(headers),
        false => cached_text(headers, MARKDOWN, documentation_list(VERSION, base)),
    };
    by_accept(answer).map(Body::from)
}

/// The documentation as a list for language models, in the format of llmstxt.org.
async fn llms(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let address = &app.assistant.public_url;
    let list = llms_text(VERSION, SUMMARY, address);
    cached_text(&headers, "text/plain; charset=utf-8", list).map(Body::from)
}

/// A page, or the OpenAPI document, to which pages link as their neighbour.
async fn document(State(app): State<Arc<App>>, parameters: RawPathParams, request: Request) -> Response {
    let name = parameters.iter().next().map(|(_, name)| name).unwrap_or_default();
    if name == "openapi.json" {
        return cached_text(request.headers(), "application/json", openapi::document()).map(Body::from);
    }
    match DOCUMENTATION.iter().find(|document| document.name == name) {
        Some(document) => document.answer(request.headers(), MARKDOWN).map(Body::from),
        None => no_such_path(State(app), request).await,
    }
}

const MARKDOWN: &str = "text/markdown; charset=utf-8";

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
