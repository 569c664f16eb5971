//! The pages of the console: the embedded build, which the browser fetches without a key and which holds no data.
//!
//! Names of scripts and styles contain a hash of their content, so that they can be cached for ever. Every other path below
//! `/console/` is a page of the application: the browser gets `index.html`, which reads the path.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};

/// The folder of the files whose names contain a hash of their content.
const HASHED: &str = "assets/";

/// Path, bytes and gzip bytes of each file of the build.
static FILES: &[(&str, &[u8], &[u8])] = include!(concat!(env!("OUT_DIR"), "/console_files.rs"));

/// Own scripts, styles and requests; nothing inline, and nothing from or to another origin.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
);

/// Whether the console was built in.
pub const HAS_CONSOLE: bool = cfg!(feature = "console");

/// The answer to a request for this path below `/console/`: a file of the build, or the application for any page of it; none
/// for a file that does not exist.
pub fn console_page(path: &str, headers: &HeaderMap) -> Option<Response<Bytes>> {
    let found = file(path).filter(|(name, ..)| *name != INDEX);
    let found = found.or_else(|| if path.starts_with(HASHED) { None } else { file(INDEX) });
    found.map(|file| answer(headers, file))
}

const INDEX: &str = "index.html";

type File = (&'static str, &'static [u8], &'static [u8]);

fn file(path: &str) -> Option<File> {
    FILES.iter().copied().find(|(name, ..)| *name == path)
}

fn answer(request: &HeaderMap, (name, plain, compressed): File) -> Response<Bytes> {
    let zipped = accepts_gzip(request);
    let mut response = Response::new(Bytes::from_static(if zipped { compressed } else { plain }));
    let headers = response.headers_mut();
    let cached = if name.starts_with(HASHED) { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut set = |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, content_type(name));
    set(header::CACHE_CONTROL, cached);
    set(header::VARY, "accept-encoding");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if zipped {
        set(header::CONTENT_ENCODING, "gzip");
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    response
}

pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let refused = weight.trim().strip_prefix("q=").is_some_and(|weight| weight.parse() == Ok(0.0));
        ["gzip", "*"].contains(&name.trim()) && !refused
    })
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_the_application_and_its_files_are_cached_by_hash() {
        let get = |path: &str, encoding: &'static str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static(encoding))]);
            console_page(path, &headers).map(Response::into_parts)
        };
        let (head, index) = get("", "identity").unwrap();
        assert_eq!(head.headers["cache-control"], "no-cache");
        assert_eq!(get("turns/resp_1", "gzip;q=0").unwrap().1, index);
        let hashed = FILES.iter().filter(|(name, ..)| name.starts_with(HASHED));
        assert!(hashed.clone().count() > 3);
        for (name, plain, compressed) in hashed {
            let (head, body) = get(name, "br").unwrap();
            assert_eq!(body, *plain, "{name}");
            assert!(head.headers["cache-control"].to_str().unwrap().contains("immutable"));
            let (head, body) = get(name, "br, gzip").unwrap();
            assert_eq!((head.headers["content-encoding"].to_str().unwrap(), &body[..]), ("gzip", *compressed));
        }
        assert!(get("assets/index-00000000.js", "gzip").is_none());
    }

    #[test]
    fn pages_may_load_nothing_from_elsewhere_and_nothing_inline() {
        let (head, index) = console_page("keys", &HeaderMap::new()).unwrap().into_parts();
        let policy = head.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        let index = String::from_utf8(index.to_vec()).unwrap();
        assert!(!index.contains("http://") && !index.contains("https://") && !index.contains("<style"), "{index}");
    }
}
