//! The cookie of a browser session of the console.

use http::{HeaderMap, HeaderValue, header};

/// The cookie on a connection without TLS, and with it: browsers accept the latter name only for this host and only with
/// `Secure`.
const COOKIE: &str = "amalgam_console";
const SECURE_COOKIE: &str = "__Host-amalgam_console";

/// The maximum length of a token; longer cookies are ignored.
const MAX_TOKEN: usize = 128;

/// The token in the request's cookie.
pub fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let known: Vec<(&str, &str)> = pairs.filter(|(name, _)| [COOKIE, SECURE_COOKIE].contains(name)).collect();
    // A page on a neighbouring host can set a cookie with the short name, but not one with the prefix.
    let secure = known.iter().find(|(name, _)| *name == SECURE_COOKIE);
    let (_, token) = secure.or(known.first())?;
    (!token.is_empty() && token.len() <= MAX_TOKEN).then_some(token)
}

/// The header that sets the cookie for so many seconds; an empty token and 0 seconds remove it.
pub fn set_session_cookie(token: &str, seconds: u64, secure: bool) -> HeaderValue {
    let (name, suffix) = if secure { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    let text = format!("{name}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{suffix}");
    HeaderValue::try_from(text).expect("a token has letters and digits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_this_host_wins_over_one_that_a_neighbour_may_have_set() {
        let read = |value: &'static str| {
            let headers = HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(value))]);
            session_cookie(&headers).map(str::to_owned)
        };
        assert_eq!(read("amalgam_console=evil; __Host-amalgam_console=good").as_deref(), Some("good"));
        assert_eq!(read("a=b; amalgam_console=t"), Some("t".to_owned()));
        for nothing in ["", "a=b", "amalgam_console=", "amalgam_console"] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
