//! Texts that a client may cache, if it asks each time whether they have changed.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use sha2::{Digest as _, Sha256};

/// A text that a client may cache, if it asks each time whether it has changed.
pub fn cached_text(headers: &HeaderMap, content_type: &'static str, text: impl Into<Bytes>) -> Response<Bytes> {
    let text = text.into();
    answer(headers, content_type, &etag(&text), text)
}

/// The same with a known tag.
pub(crate) fn answer(
    headers: &HeaderMap,
    content_type: &'static str,
    etag: &str,
    text: impl Into<Bytes>,
) -> Response<Bytes> {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    // RFC 9110: weak comparison.
    let mut known = known.flat_map(|list| list.split(',')).map(|tag| tag.trim().trim_start_matches("W/"));
    let is_known = known.any(|tag| tag == "*" || tag == etag);
    let mut response = Response::new(if is_known { Bytes::new() } else { text.into() });
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
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
pub fn by_accept<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// A strong validator: the beginning of the text's hash.
pub(crate) fn etag(text: &[u8]) -> String {
    let hash = Sha256::digest(text);
    hash.iter().take(12).fold(String::from("\""), |tag, byte| format!("{tag}{byte:02x}")) + "\""
}
