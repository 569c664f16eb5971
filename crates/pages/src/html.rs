//! Pages for browsers: one stylesheet inside, no script, no request for anything else.

use std::sync::LazyLock;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use sha2::{Digest as _, Sha256};

use crate::{
    cached::cached_text,
    documentation::{DocumentationPage, guides_and_internals},
};

const STYLE: &str = include_str!("../templates/style.css");
const HOME: &str = include_str!("../templates/home.html");

/// The entry of the console, where it is served.
const CONSOLE: &str =
    "<li><a href=\"console/\">Console</a><br>Turns, usage, playground, profiles, tools and keys in the browser</li>\n";

/// Allows the page its own stylesheet, known by its hash, and nothing else.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(policy).expect("the policy is plain ASCII")
});

/// Whether the home page links to the console, which is not on every listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleLink {
    /// The listener serves it.
    Shown,
    /// It does not.
    Hidden,
}

/// An HTML page.
pub struct HtmlPage {
    title: String,
    body: String,
}

impl HtmlPage {
    /// The page at `/`. `address` is the URL by which clients reach the server.
    pub fn home(version: &str, summary: &str, address: &str, console: ConsoleLink) -> Self {
        let link = if console == ConsoleLink::Shown { CONSOLE } else { "" };
        let home = HOME.replace("{console}", link);
        let values = [("{version}", version), ("{summary}", summary), ("{address}", address)];
        let body = values.iter().fold(home, |body, (name, value)| body.replace(name, &escaped(value)));
        Self { title: "Amalgam".to_owned(), body }
    }

    /// The list of the documentation's pages.
    pub fn index(version: &str, base: &str) -> Self {
        let (guides, internals) = guides_and_internals();
        // The list is at `/docs/` and at `/docs`: links to the home page differ as those to the pages do.
        let home = if base.is_empty() { "../" } else { "./" };
        let body = format!(
            "<header><h1><a href=\"{home}\">Amalgam</a></h1><span class=\"version\">{}</span></header>\n\
             <h2>Guides</h2>\n<ul>\n{}</ul>\n<h2>Internals</h2>\n<ul>\n{}</ul>\n",
            escaped(version),
            entries(&guides, base),
            entries(&internals, base),
        );
        Self { title: "Amalgam: documentation".to_owned(), body }
    }

    /// The page as a response to a request with these headers.
    pub fn answer(self, headers: &HeaderMap) -> Response<Bytes> {
        let Self { title, body } = self;
        let html = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
        );
        let mut response = cached_text(headers, "text/html; charset=utf-8", html);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
        response
    }
}

fn entries(documents: &[&DocumentationPage], base: &str) -> String {
    let entry = |document: &&DocumentationPage| {
        let (name, title) = (escaped(document.name), escaped(document.title));
        format!("<li><a href=\"{base}{name}\">{title}</a><br>{}</li>\n", with_code(&document.description))
    };
    documents.iter().map(entry).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Markdown's code spans as HTML.
fn with_code(text: &str) -> String {
    let spans = text.split('`').enumerate().map(|(number, span)| match number % 2 {
        0 => escaped(span),
        _ => format!("<code>{}</code>", escaped(span)),
    });
    spans.collect()
}

/// Whether a client names HTML among what it accepts, and prefers it to JSON. Programs that accept anything do not
/// name it.
pub fn prefers_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(String, f32)> = values.flat_map(|value| value.split(',')).map(media_range).collect();
    let weight =
        |name: &str| ranges.iter().filter(|(range, _)| range == name).map(|(_, weight)| *weight).fold(0.0, f32::max);
    let html = weight("text/html");
    html > 0.0 && html > weight("application/json")
}

/// The name of a media range and its weight.
fn media_range(text: &str) -> (String, f32) {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    (name, weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_html_and_programs_do_not() {
        let cases = [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("text/html", true),
            ("TEXT/HTML; q=0.5", true),
            ("application/json;q=0.5, text/html", true),
            ("*/*", false),
            ("text/*", false),
            ("application/json", false),
            ("application/json, text/html", false),
            ("text/html;q=0", false),
            ("text/html;q=x", false),
            ("", false),
        ];
        for (accept, expected) in cases {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(prefers_html(&headers), expected, "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }

    #[test]
    fn values_cannot_bring_markup_into_a_page() {
        let page = HtmlPage::home("1", "<b>&", "http://x/\"><script>", ConsoleLink::Shown);
        assert!(!page.body.contains("<script>") && page.body.contains("&quot;&gt;&lt;script&gt;"));
        assert!(page.body.contains("&lt;b&gt;&amp;"));
        assert_eq!(with_code("a `<b>` & `c`"), "a <code>&lt;b&gt;</code> &amp; <code>c</code>");
    }
}
