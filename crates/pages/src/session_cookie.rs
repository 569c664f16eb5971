//! The cookies of the console: that of a browser session, and that of a sign-in by the OpenID Connect provider.

use http::{HeaderMap, HeaderValue, header};

/// A cookie of this host.
struct HostCookie {
    /// The name on a connection without TLS.
    name: &'static str,
    /// The name with TLS: browsers accept it only for this host and only with `Secure`.
    secure_name: &'static str,
    /// The maximum length of the value; longer cookies are ignored.
    max_length: usize,
}

const SESSION: HostCookie =
    HostCookie { name: "amalgam_console", secure_name: "__Host-amalgam_console", max_length: 128 };

const SIGN_IN: HostCookie =
    HostCookie { name: "amalgam_sign_in", secure_name: "__Host-amalgam_sign_in", max_length: 2048 };

impl HostCookie {
    fn read<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let known: Vec<(&str, &str)> = pairs.filter(|(name, _)| [self.name, self.secure_name].contains(name)).collect();
        // A page on a neighbouring host can set a cookie with the short name, but not one with the prefix.
        let secure = known.iter().find(|(name, _)| *name == self.secure_name);
        let (_, value) = secure.or(known.first())?;
        (!value.is_empty() && value.len() <= self.max_length).then_some(value)
    }

    fn set(&self, value: &str, seconds: u64, secure: bool) -> HeaderValue {
        let (name, suffix) = if secure { (self.secure_name, "; Secure") } else { (self.name, "") };
        let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{suffix}");
        HeaderValue::try_from(text).expect("a value has letters, digits and dots")
    }
}

/// The token in the request's cookie of a session.
pub fn session_cookie(headers: &HeaderMap) -> Option<&str> {
    SESSION.read(headers)
}

/// The header that sets the cookie of a session for so many seconds; an empty token and 0 seconds remove it.
pub fn set_session_cookie(token: &str, seconds: u64, secure: bool) -> HeaderValue {
    SESSION.set(token, seconds, secure)
}

/// The value of the request's cookie of a sign-in by the OpenID Connect provider.
pub fn sign_in_cookie(headers: &HeaderMap) -> Option<&str> {
    SIGN_IN.read(headers)
}

/// The header that sets the cookie of a sign-in for so many seconds; an empty value and 0 seconds remove it.
pub fn set_sign_in_cookie(value: &str, seconds: u64, secure: bool) -> HeaderValue {
    SIGN_IN.set(value, seconds, secure)
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
