//! The heads of requests to one upstream. They are cached, because requests differ only in their length.

use std::sync::OnceLock;

use amalgam_core::{Delivery, ModelError, TraceContext};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, PROXY_AUTHORIZATION, TRANSFER_ENCODING},
};

use super::proxy::Proxy;

/// Headers that an adapter adds.
pub(super) type ExtraHeaders = [(HeaderName, HeaderValue)];

/// Everything that all requests to one upstream share.
pub(super) struct Requests {
    base: Base,
    /// The configured headers and our own, such as `user-agent`.
    headers: HeaderMap,
    bearer: Option<HeaderValue>,
    target: Target,
    /// The first head of streamed and of whole answers. An adapter always sends the same headers, so later requests
    /// reuse it.
    cached: [OnceLock<CachedHead>; 2],
}

/// The form of the request target.
enum Target {
    /// The path, for the upstream itself.
    Path,
    /// The absolute address, for a proxy.
    Address,
}

struct CachedHead {
    path: String,
    added: Vec<(HeaderName, HeaderValue)>,
    head: Vec<u8>,
}

impl Requests {
    /// Requests below `base`. Configured headers must not change how the body is framed.
    pub(super) fn new(base: Base, mut headers: HeaderMap, bearer: Option<HeaderValue>) -> Self {
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        Self { base, headers, bearer, target: Target::Path, cached: Default::default() }
    }

    /// The same requests for a forwarding proxy.
    pub(super) fn forwarded_by(mut self, proxy: &Proxy) -> Self {
        self.target = Target::Address;
        if let Some(authorization) = &proxy.authorization {
            self.headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        self
    }

    /// The head of a request with a JSON body of `length` bytes.
    pub(super) fn post(
        &self,
        path: &str,
        added: &ExtraHeaders,
        delivery: Delivery,
        length: usize,
        trace: Option<(TraceContext, Option<&str>)>,
    ) -> Result<Bytes, ModelError> {
        let (accept, cached) = match (delivery, &self.cached) {
            (Delivery::Stream, [cached, _]) => ("text/event-stream", cached),
            (Delivery::Whole, [_, cached]) => ("application/json", cached),
        };
        let mut head = match cached.get() {
            Some(cached) if cached.path == path && cached.added == added => with_capacity(&cached.head),
            _ => {
                let json = HeaderValue::from_static("application/json");
                let mut head = self.write(&Method::POST, path, added, accept, Some(json))?;
                head.extend_from_slice(b"content-length: ");
                let _ = cached.set(CachedHead { path: path.to_owned(), added: added.to_vec(), head: head.clone() });
                head
            }
        };
        head.extend_from_slice(length.to_string().as_bytes());
        // Not among the cached headers: each request has its own.
        if let Some((trace, state)) = trace {
            head.extend_from_slice(format!("\r\n{}: {trace}", TraceContext::HEADER).as_bytes());
            if let Some(state) = state {
                head.extend_from_slice(format!("\r\n{}: {state}", TraceContext::STATE_HEADER).as_bytes());
            }
        }
        head.extend_from_slice(b"\r\n\r\n");
        Ok(head.into())
    }

    /// The head of a request without a body.
    pub(super) fn get(&self, path: &str, added: &ExtraHeaders) -> Result<Bytes, ModelError> {
        let mut head = self.write(&Method::GET, path, added, "application/json", None)?;
        head.extend_from_slice(b"\r\n");
        Ok(head.into())
    }

    /// Writes a head without the headers that depend on the body's length.
    fn write(
        &self,
        method: &Method,
        path: &str,
        added: &ExtraHeaders,
        accept: &'static str,
        content_type: Option<HeaderValue>,
    ) -> Result<Vec<u8>, ModelError> {
        let uri = self.base.with(path)?;
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host(&uri)?);
        headers.extend(self.headers.clone());
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        for (name, value) in added {
            headers.insert(name, value.clone());
        }
        let adapter_identifies = added.iter().any(|(name, _)| is_credential(name));
        if let Some(bearer) = &self.bearer
            && !adapter_identifies
            && !headers.contains_key(AUTHORIZATION)
        {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, content_type);
        }
        let target = match self.target {
            Target::Path => uri.path_and_query().map_or("/", |target| target.as_str()).to_owned(),
            Target::Address => uri.to_string(),
        };
        let mut head = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
        for (name, value) in &headers {
            for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                head.extend_from_slice(piece);
            }
        }
        Ok(head)
    }
}

/// A copy with capacity for the length and the end of the head.
fn with_capacity(head: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(head.len() + 24);
    copy.extend_from_slice(head);
    copy
}

/// The `Host` header: without the port if it is the scheme's default.
fn host(uri: &Uri) -> Result<HeaderValue, ModelError> {
    let host = uri.host().unwrap_or_default();
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    match uri.port_u16().filter(|port| *port != default) {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::try_from(host),
    }
    .map_err(|error| ModelError::Unreachable(format!("`{host}` is not a host: {error}")))
}

/// Headers that authenticate: never logged, and at most one of them is sent.
pub(super) fn is_credential(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "authorization" | "proxy-authorization" | "x-api-key" | "api-key" | "x-goog-api-key" | "cookie"
    )
}

/// The base address, to which paths are added. Its query, such as an API version, stays at the end.
pub(super) struct Base {
    before: String,
    query: String,
}

impl Base {
    /// Parses a configured address.
    pub(super) fn read(base_url: &str) -> Result<Self, String> {
        let uri: Uri = base_url.parse().map_err(|error| format!("base_url cannot be read: {error}"))?;
        let authority = uri.authority().ok_or("base_url has no host")?;
        if authority.as_str().contains('@') {
            return Err("base_url must not hold a credential".to_owned());
        }
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("base_url must begin with http:// or https://".to_owned());
        }
        let (before, query) = match base_url.split_once('?') {
            Some((before, query)) => (before, format!("?{query}")),
            None => (base_url, String::new()),
        };
        Ok(Self { before: before.trim_end_matches('/').to_owned(), query })
    }

    /// The address of `path`.
    pub(super) fn with(&self, path: &str) -> Result<Uri, ModelError> {
        let Self { before, query } = self;
        Uri::try_from(format!("{before}{path}{query}"))
            .map_err(|error| ModelError::Unreachable(format!("`{path}` is not a path: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(headers: &[(&'static str, &'static str)]) -> Requests {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
        let bearer = Some(HeaderValue::from_static("Bearer sk-1"));
        Requests::new(Base::read("http://host:80/v1?version=2").unwrap(), headers, bearer)
    }

    fn text(head: Result<Bytes, ModelError>) -> String {
        String::from_utf8(head.unwrap().to_vec()).unwrap()
    }

    #[test]
    fn a_path_goes_between_the_base_and_its_query() {
        for (base, expected) in [
            ("http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/responses"),
            ("http://127.0.0.1:1/v1/", "http://127.0.0.1:1/v1/responses"),
            ("https://host/openai/v1?api-version=preview", "https://host/openai/v1/responses?api-version=preview"),
        ] {
            assert_eq!(Base::read(base).unwrap().with("/responses").unwrap().to_string(), expected);
        }
    }

    #[test]
    fn a_base_that_cannot_be_used_is_refused() {
        for base in ["", "/v1", "ftp://host/v1", "http://user:password@host/v1", "host/v1"] {
            assert!(Base::read(base).is_err(), "{base}");
        }
    }

    #[test]
    fn a_head_is_the_same_when_it_is_written_again() {
        let requests = requests(&[("x-extra", "1"), ("content-length", "7"), ("accept", "x/y")]);
        let expected = |length: usize| {
            format!(
                "POST /v1/chat?version=2 HTTP/1.1\r\nhost: host\r\nx-extra: 1\r\naccept: text/event-stream\r\n\
                 authorization: Bearer sk-1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            )
        };
        for length in [0, 12, 345] {
            let head = text(requests.post("/chat", &[], Delivery::Stream, length, None));
            let sorted = |head: &str| {
                let mut lines: Vec<String> = head.split("\r\n").map(str::to_owned).collect();
                lines.sort_unstable();
                lines
            };
            assert_eq!(sorted(&head), sorted(&expected(length)));
            assert!(head.starts_with("POST ") && head.ends_with(&format!("content-length: {length}\r\n\r\n")));
        }
    }

    #[test]
    fn another_way_of_asking_is_not_taken_for_the_usual_one() {
        let requests = requests(&[]);
        let _usual = text(requests.post("/chat", &[], Delivery::Whole, 1, None));
        let own = [(HeaderName::from_static("x-api-key"), HeaderValue::from_static("sk-2"))];
        let other = text(requests.post("/chat", &own, Delivery::Whole, 1, None));
        assert!(other.contains("x-api-key: sk-2\r\n") && !other.contains("authorization"), "{other}");
        assert!(text(requests.post("/other", &[], Delivery::Whole, 1, None)).starts_with("POST /v1/other?version=2 "));
        let document = text(requests.get("/models", &[]));
        assert!(document.starts_with("GET /v1/models?version=2 HTTP/1.1\r\n") && document.ends_with("\r\n\r\n"));
        assert!(!document.contains("content-"), "{document}");
    }

    #[test]
    fn a_proxy_that_forwards_requests_reads_the_whole_address_and_its_credentials() {
        let proxy = Proxy::read("http://user:pass@proxy:3128").unwrap();
        let head = text(requests(&[]).forwarded_by(&proxy).post("/chat", &[], Delivery::Whole, 1, None));
        assert!(head.starts_with("POST http://host:80/v1/chat?version=2 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("host: host\r\n") && head.contains("authorization: Bearer sk-1\r\n"), "{head}");
        assert!(head.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), "{head}");
    }

    #[test]
    fn the_host_is_named_with_its_port_unless_that_goes_without_saying() {
        for (uri, expected) in [
            ("http://host/v1", "host"),
            ("http://host:80/v1", "host"),
            ("https://host:443/v1", "host"),
            ("http://host:443/v1", "host:443"),
            ("http://[::1]:8000/v1", "[::1]:8000"),
        ] {
            assert_eq!(host(&uri.parse().unwrap()).unwrap(), expected, "{uri}");
        }
    }
}
