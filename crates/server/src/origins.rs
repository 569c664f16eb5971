//! Decides which web pages may call the server.
//!
//! A browser sends requests to any address on behalf of any page, also to a server on the user's own machine that needs
//! no key. The headers `Origin` and `Sec-Fetch-Site` name the page, and no page can change or remove them. Programs
//! that are not browsers send neither.

use amalgam_core::{Fault, FaultKind};
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};

use crate::wires::takes_client_secrets;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");
const REQUEST_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// How long a browser may cache a preflight response, in seconds.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("600");
const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE");

/// What a page may send with a browser token.
const CLIENT_METHODS: HeaderValue = HeaderValue::from_static("GET, POST");
const CLIENT_HEADERS: HeaderValue =
    HeaderValue::from_static("accept, authorization, content-type, idempotency-key, last-event-id, x-request-id");

/// The origins whose pages may call the server, besides its own.
#[derive(Debug, Clone, Default)]
pub struct AllowedOrigins {
    /// Other origins, whose pages get CORS headers.
    others: Vec<String>,
    /// The server's own origin, if a proxy changes `Host`.
    own: Option<String>,
}

/// The page that sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Page {
    /// No page, or one of the server's own.
    Own,
    /// A page of an allowed origin, which may read the response.
    Allowed(HeaderValue),
    /// A page of any origin, which asks whether it may send a browser token.
    Asking(HeaderValue),
}

impl AllowedOrigins {
    /// `others` are origins such as `https://app.example.com`; `public_url` is the address that callers use.
    pub fn new(others: impl IntoIterator<Item = String>, public_url: Option<&str>) -> Self {
        let others = others.into_iter().map(|origin| origin.to_ascii_lowercase()).collect();
        Self { others, own: public_url.and_then(origin_of) }
    }

    /// Refuses a request of a page of another site. `page_route` says whether the path may be opened in a browser by
    /// links on other sites.
    pub(crate) fn check<B>(&self, request: &Request<B>, page_route: bool) -> Result<Page, Fault> {
        let headers = request.headers();
        if let Some(origin) = headers.get(header::ORIGIN) {
            let mut all = headers.get_all(header::ORIGIN).iter();
            if !all.all(|one| one == origin) {
                return Err(refused());
            }
            let text = origin.to_str().unwrap_or_default();
            if self.others.iter().any(|other| other.eq_ignore_ascii_case(text)) {
                return Ok(Page::Allowed(origin.clone()));
            }
            if !self.is_own(text, headers) {
                return Err(refused());
            }
        }
        let from_elsewhere = headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none");
        match from_elsewhere && !(page_route && is_navigation(request)) {
            true => Err(refused()),
            false => Ok(Page::Own),
        }
    }

    fn is_own(&self, origin: &str, headers: &HeaderMap) -> bool {
        if self.own.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(origin)) {
            return true;
        }
        let Some(("http" | "https", authority)) = origin.split_once("://") else { return false };
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| host.eq_ignore_ascii_case(authority))
    }
}

/// A link that was followed in a browser's own window or tab: the page with the link cannot read the response.
fn is_navigation<B>(request: &Request<B>) -> bool {
    let is = |name: &HeaderName, expected: &str| request.headers().get(name).is_some_and(|value| value == expected);
    request.method() == Method::GET && is(&SEC_FETCH_MODE, "navigate") && is(&SEC_FETCH_DEST, "document")
}

fn refused() -> Fault {
    let message = "A web page of another site sent this request, and its origin is not among `allowed_origins`.";
    Fault::new(FaultKind::Forbidden, message).code("origin_not_allowed")
}

/// Scheme, host and port of a URL.
fn origin_of(url: &str) -> Option<String> {
    let uri: http::Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_ascii_lowercase())
}

impl Page {
    /// The page of a preflight request for a route that takes browser tokens.
    pub(crate) fn asking<B>(request: &Request<B>) -> Option<Self> {
        let headers = request.headers();
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        let wanted = Method::from_bytes(wanted.as_bytes()).ok()?;
        let asks = request.method() == Method::OPTIONS && takes_client_secrets(&wanted, request.uri().path());
        match (origins.next(), origins.next()) {
            (Some(origin), None) if asks => Some(Self::Asking(origin.clone())),
            _ => None,
        }
    }

    /// The response to a CORS preflight request of an allowed page.
    pub(crate) fn preflight<B>(&self, request: &Request<B>) -> Option<Response> {
        let headers = request.headers();
        if *self == Self::Own
            || request.method() != Method::OPTIONS
            || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let response_headers = response.headers_mut();
        response_headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        response_headers.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS);
        if let Self::Asking(_) = self {
            response_headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, CLIENT_METHODS);
            response_headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, CLIENT_HEADERS);
            return Some(response);
        }
        if let Some(requested) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            response_headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        if headers.contains_key(REQUEST_PRIVATE_NETWORK) {
            response_headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
        }
        Some(response)
    }

    /// Adds the CORS headers for an allowed page.
    pub(crate) fn mark(self, headers: &mut HeaderMap) {
        if let Self::Allowed(origin) | Self::Asking(origin) = self {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
            headers.append(header::VARY, HeaderValue::from_static("origin"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: Method, page_route: bool, headers: &[(&str, &str)]) -> Result<Page, FaultKind> {
        let allowed = AllowedOrigins::new(["https://App.example.com".to_owned()], Some("https://ai.example.com/v1"));
        let mut request = Request::builder().method(method).header("host", "127.0.0.1:8080");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        allowed.check(&request.body(()).unwrap(), page_route).map_err(|fault| fault.kind)
    }

    // right E1
    #[test]
    fn only_own_and_allowed_pages_may_call() {
        let own: [&[(&str, &str)]; 6] = [
            &[],
            &[("origin", "http://127.0.0.1:8080"), ("sec-fetch-site", "same-origin")],
            &[("origin", "https://127.0.0.1:8080")],
            &[("origin", "https://ai.example.com")],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-mode", "cors")],
        ];
        for headers in own {
            assert_eq!(check(Method::POST, false, headers), Ok(Page::Own), "{headers:?}");
        }
        let allowed = [("origin", "https://app.example.com"), ("sec-fetch-site", "cross-site")];
        assert_eq!(check(Method::POST, false, &allowed), Ok(Page::Allowed(HeaderValue::from_static(allowed[0].1))));
        let refused: [&[(&str, &str)]; 11] = [
            &[("origin", "https://evil.example")],
            &[("origin", "http://127.0.0.1:8081")],
            &[("origin", "http://127.0.0.1")],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "file://127.0.0.1:8080")],
            &[("origin", "http://127.0.0.1:8080"), ("origin", "https://evil.example")],
            &[("origin", "https://app.example.com"), ("origin", "https://evil.example")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:8080")],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        ];
        for headers in refused {
            for page_route in [true, false] {
                assert_eq!(check(Method::GET, page_route, headers), Err(FaultKind::Forbidden), "{headers:?}");
            }
        }
    }

    // right E1
    #[test]
    fn a_link_on_another_site_opens_pages_and_nothing_else() {
        let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frame = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        assert_eq!(check(Method::GET, true, &link), Ok(Page::Own));
        assert_eq!(check(Method::GET, false, &link), Err(FaultKind::Forbidden));
        assert_eq!(check(Method::POST, true, &link), Err(FaultKind::Forbidden));
        assert_eq!(check(Method::GET, true, &frame), Err(FaultKind::Forbidden));
    }
}
