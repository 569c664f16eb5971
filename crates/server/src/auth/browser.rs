//! Browser sessions: the cookie, and when it counts as a credential.
//!
//! A browser attaches cookies by itself, so a cookie proves less than a header that a program sets. It counts only in requests
//! of the server's own pages: a request that may change something has to name the session's CSRF token, which other sites can
//! neither read nor send; a request that only reads may instead be marked `same-origin` by the browser.

use amalgam_administration::{console::csrf_token, keys::Pepper};
use amalgam_pages::session_cookie;
use http::{HeaderName, Method, Request, header};

/// The header with the CSRF token.
pub(crate) const CSRF: HeaderName = HeaderName::from_static("x-amalgam-csrf");

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The token of the request's session, if the cookie counts as a credential.
pub(super) fn token<'r, B>(request: &'r Request<B>, pepper: &Pepper) -> Option<&'r str> {
    let headers = request.headers();
    let token = session_cookie(headers)?;
    // A WebSocket begins with a GET and may change anything afterwards.
    if headers.contains_key(header::UPGRADE) {
        return None;
    }
    let mut given = headers.get_all(CSRF).iter();
    let counts = match (given.next(), given.next()) {
        (Some(given), None) => is_equal(given.as_bytes(), csrf_token(pepper, token).as_bytes()),
        (None, _) => is_safe(request.method()) && headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin"),
        (Some(_), Some(_)) => false,
    };
    counts.then_some(token)
}

/// Whether a method changes nothing.
pub(crate) fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD].contains(method)
}

/// Compares in a time that does not depend on where the difference is.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |difference, (one, other)| difference | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pepper() -> Pepper {
        Pepper::from_bytes(&[7; 32])
    }

    fn accepts(method: Method, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        token(&request.body(()).unwrap(), &pepper()) == Some("abc")
    }

    #[test]
    fn a_cookie_counts_with_the_csrf_token_or_in_a_read_of_the_own_pages() {
        let csrf = csrf_token(&pepper(), "abc");
        let other = csrf_token(&pepper(), "abd");
        let cookie = ("cookie", "x=1; amalgam_console=abc");
        for method in [Method::GET, Method::POST, Method::DELETE] {
            assert!(accepts(method.clone(), &[cookie, ("x-amalgam-csrf", &csrf)]));
            assert!(!accepts(method.clone(), &[cookie, ("x-amalgam-csrf", &other)]));
            assert!(!accepts(method.clone(), &[cookie, ("x-amalgam-csrf", "")]));
            assert!(!accepts(method.clone(), &[cookie, ("x-amalgam-csrf", &csrf), ("x-amalgam-csrf", &csrf)]));
            assert!(!accepts(method, &[cookie]));
        }
        assert!(accepts(Method::GET, &[cookie, ("sec-fetch-site", "same-origin")]));
        assert!(!accepts(Method::POST, &[cookie, ("sec-fetch-site", "same-origin")]));
        assert!(!accepts(Method::GET, &[cookie, ("x-amalgam-csrf", &csrf), ("upgrade", "websocket")]));
        for site in ["none", "same-site", "cross-site"] {
            assert!(!accepts(Method::GET, &[cookie, ("sec-fetch-site", site)]), "{site}");
        }
    }
}
