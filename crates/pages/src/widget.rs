//! The widget: one script that pages of every origin load, and the hash by which they can pin it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use sha2::{Digest as _, Sha384};

use crate::{
    cached::{answer, etag},
    console::accepts_gzip,
};

static SCRIPT: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../widget/dist/widget.js"));
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/widget.js.gz"));

/// A browser asks after five minutes whether there is a newer one.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// The script. The form without compression has a tag of its own, since a tag names bytes.
pub fn widget_script(headers: &HeaderMap) -> Response<Bytes> {
    let zipped = accepts_gzip(headers);
    let bytes = if zipped { COMPRESSED } else { SCRIPT };
    let mut response = answer(headers, "text/javascript; charset=utf-8", &etag(bytes), Bytes::from_static(bytes));
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if zipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    for_every_page(response)
}

/// The version of the server, the path of the script, and its hash for the attribute `integrity`.
pub fn widget_about(headers: &HeaderMap, version: &str) -> Response<Bytes> {
    let integrity = STANDARD.encode(Sha384::digest(SCRIPT));
    let about = format!(
        "{{\"version\":\"{version}\",\"script\":\"/widget.js\",\"integrity\":\"sha384-{integrity}\",\"bytes\":{},\"gzip_bytes\":{}}}",
        SCRIPT.len(),
        COMPRESSED.len()
    );
    for_every_page(answer(headers, "application/json", &etag(about.as_bytes()), about))
}

fn for_every_page(mut response: Response<Bytes>) -> Response<Bytes> {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, CACHED);
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("cross-origin"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widget_is_small_and_pages_of_every_origin_may_load_it() {
        assert!(COMPRESSED.len() <= 45_000, "{} bytes", COMPRESSED.len());
        let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip"))]);
        let (head, body) = widget_script(&headers).into_parts();
        assert_eq!((head.headers["content-encoding"].to_str().unwrap(), &body[..]), ("gzip", COMPRESSED));
        let (head, body) = widget_script(&HeaderMap::new()).into_parts();
        assert_eq!(body, SCRIPT);
        assert_eq!(head.headers["access-control-allow-origin"], "*");
        assert_eq!(head.headers["cross-origin-resource-policy"], "cross-origin");
        let known = HeaderMap::from_iter([(header::IF_NONE_MATCH, head.headers["etag"].clone())]);
        assert_eq!(widget_script(&known).status(), 304);
    }
}
