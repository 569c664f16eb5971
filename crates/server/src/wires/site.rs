//! What the server says about itself without a key: the home page, the documentation, `llms.txt`.

mod html;
mod pages;

use std::{fmt::Write as _, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{RawPathParams, Request, State},
    response::{IntoResponse as _, Response},
    routing::get,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{no_such_path, ops::openapi};
use crate::app::{App, CurrentApp};
use html::{Page, prefers_html};
use pages::{DOCUMENTS, Document};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What the server is, in one sentence.
const SUMMARY: &str = "A self-hosted OpenAI Responses server and multi-tenant agent backend, over any model.";

/// Everything below is served without a key.
pub(super) const DOCS: &str = "/docs/";

pub(super) fn routes() -> Router<CurrentApp> {
    Router::new()
        .route("/", get(home))
        .route("/llms.txt", get(llms))
        .route("/docs", get(async |headers: HeaderMap| index(&headers, "docs/")))
        .route("/docs/", get(async |headers: HeaderMap| index(&headers, "")))
        .route("/docs/{*page}", get(document))
}

/// A page for browsers, JSON for programs.
async fn home(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    if prefers_html(&headers) {
        return by_accept(Page::home(VERSION, SUMMARY, &app.assistant.public_url).answer(&headers));
    }
    let about = json!({
        "name": "amalgam",
        "version": VERSION,
        "docs": "/docs/",
        "llms": "/llms.txt",
        "openapi": "/openapi.json",
        "health": "/healthz",
        "ready": "/readyz",
    });
    by_accept(text(&headers, "application/json", about.to_string()))
}

/// The list of pages, with links that start with `base`.
fn index(headers: &HeaderMap, base: &str) -> Response {
    let (guides, internals): (Vec<_>, Vec<_>) = DOCUMENTS.iter().partition(|document| document.is_guide());
    by_accept(match prefers_html(headers) {
        true => Page::index(VERSION, base, &guides, &internals).answer(headers),
        false => {
            let mut list = format!("# Amalgam {VERSION}: documentation\n\n");
            list.push_str(&links(&guides, base));
            list.push_str("\n## Internals\n\n");
            list.push_str(&links(&internals, base));
            text(headers, MARKDOWN, list)
        }
    })
}

/// The documentation as a list for language models, in the format of llmstxt.org.
async fn llms(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let address = &app.assistant.public_url;
    let base = format!("{address}{DOCS}");
    let (guides, internals): (Vec<_>, Vec<_>) = DOCUMENTS.iter().partition(|document| document.is_guide());
    let list = format!(
        "# Amalgam\n\n> {SUMMARY}\n\nThis is version {VERSION}, at {address}. Clients of the OpenAI Responses API use the \
         base URL {address}/v1. Requests need `Authorization: Bearer KEY`, unless the server runs on loopback without \
         configured keys.\n\n## Docs\n\n{}\n## API\n\n- [OpenAPI document]({address}/openapi.json): Every route, \
         parameter and schema.\n\n## Optional\n\n{}",
        links(&guides, &base),
        links(&internals, &base),
    );
    text(&headers, "text/plain; charset=utf-8", list)
}

/// A page, or the OpenAPI document, to which pages link as their neighbour.
async fn document(State(app): State<Arc<App>>, parameters: RawPathParams, request: Request) -> Response {
    let name = parameters.iter().next().map(|(_, name)| name).unwrap_or_default();
    if name == "openapi.json" {
        return text(request.headers(), "application/json", openapi::document());
    }
    match DOCUMENTS.iter().find(|document| document.name == name) {
        Some(document) => answer(request.headers(), MARKDOWN, &document.etag, document.text),
        None => no_such_path(State(app), request).await,
    }
}

const MARKDOWN: &str = "text/markdown; charset=utf-8";

fn links(documents: &[&Document], base: &str) -> String {
    documents.iter().fold(String::new(), |mut list, Document { name, title, description, .. }| {
        let _ = writeln!(list, "- [{title}]({base}{name}): {description}");
        list
    })
}

/// A text that a client may cache, if it asks each time whether it has changed.
fn text(headers: &HeaderMap, content_type: &'static str, text: impl Into<String>) -> Response {
    let text = text.into();
    answer(headers, content_type, &etag(&text), text)
}

fn answer(headers: &HeaderMap, content_type: &'static str, etag: &str, body: impl Into<Body>) -> Response {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    // RFC 9110: weak comparison.
    let mut known = known.flat_map(|list| list.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    let mut response = match known.any(|tag| tag == "*" || tag == etag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(body.into()),
    };
    let headers = response.headers_mut();
    if let Ok(etag) = HeaderValue::try_from(etag) {
        headers.insert(header::ETAG, etag);
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    response
}

/// Marks a response that depends on what the client accepts.
fn by_accept(mut response: Response) -> Response {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// A strong validator: the beginning of the text's hash.
fn etag(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter().take(12).fold(String::from("\""), |tag, byte| format!("{tag}{byte:02x}")) + "\""
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
