//! Proxies to upstreams, with curl's semantics of `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`. The configuration reads
//! the environment; this module does not.

use std::{fmt, sync::Arc};

use http::{HeaderValue, Uri, uri::Scheme};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};

/// Which upstreams are reached through which proxy.
#[derive(Debug, Clone)]
pub struct Proxies(Arc<Matcher>);

impl Proxies {
    /// The proxies for `http://` and `https://` addresses, and a comma-separated list of hosts that are reached
    /// directly. An empty text means none. Addresses have the format of [`Proxy::read`].
    pub fn new(http: &str, https: &str, direct: &str) -> Self {
        Self(Arc::new(Matcher::builder().http(http).https(https).no(direct).build()))
    }

    /// The proxy that leads to an upstream.
    pub fn for_upstream(&self, base_url: &str) -> Option<Proxy> {
        self.0.intercept(&base_url.parse().ok()?).map(Proxy::from)
    }
}

impl Default for Proxies {
    fn default() -> Self {
        Self::new("", "", "")
    }
}

/// An HTTP proxy. Shown without its credentials.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub(super) address: Uri,
    /// The `Proxy-Authorization` header, if the address has credentials.
    pub(super) authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Parses the address of a proxy: `http://[USER:PASSWORD@]HOST[:PORT]`, with or without `http://`.
    pub fn read(address: &str) -> Result<Self, &'static str> {
        let all = Matcher::builder().http(address).build();
        let proxy = all.intercept(&Uri::from_static("http://upstream/")).map(Self::from);
        match proxy {
            Some(proxy) if proxy.address.scheme() == Some(&Scheme::HTTP) => Ok(proxy),
            Some(_) => Err("only proxies whose address begins with http:// are supported"),
            None => Err("must be the address of a proxy, such as `http://proxy.example.com:3128`"),
        }
    }
}

impl From<Intercept> for Proxy {
    fn from(intercept: Intercept) -> Self {
        Self { address: intercept.uri().clone(), authorization: intercept.basic_auth().cloned() }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.address.authority().map_or("", |authority| authority.as_str());
        write!(formatter, "http://{host}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_of_an_upstream_chooses_the_proxy_and_some_hosts_have_none() {
        let proxies = Proxies::new("http://plain:1", "secure:2", "localhost, .example.com,10.0.0.0/8,::1");
        let shown = |base_url: &str| proxies.for_upstream(base_url).map(|proxy| proxy.to_string());
        for (base_url, expected) in [
            ("http://host/v1", Some("http://plain:1")),
            ("https://host/v1", Some("http://secure:2")),
            ("https://127.0.0.1:8000/v1", Some("http://secure:2")),
            ("http://localhost:11434/v1", None),
            ("https://api.example.com/v1", None),
            ("https://example.com/v1", None),
            ("https://notexample.com/v1", Some("http://secure:2")),
            ("http://10.1.2.3/v1", None),
            ("http://[::1]:8000/v1", None),
            ("", None),
        ] {
            assert_eq!(shown(base_url).as_deref(), expected, "{base_url}");
        }
        assert!(Proxies::default().for_upstream("https://host/v1").is_none());
        assert!(Proxies::new("plain", "secure", "*").for_upstream("https://host/v1").is_none());
    }

    #[test]
    fn credentials_of_a_proxy_are_sent_and_never_shown() {
        let proxy = Proxy::read("http://user:p%40ss@proxy:3128").unwrap();
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic dXNlcjpwQHNz");
        assert_eq!(proxy.to_string(), "http://proxy:3128");
        let shown = format!("{proxy:?} {:?}", Proxies::new("http://user:p%40ss@proxy:3128", "", ""));
        assert!(!shown.contains("p%40ss") && !shown.contains("dXNlcjpwQHNz"), "{shown}");
    }

    #[test]
    fn what_is_no_address_of_an_http_proxy_is_refused() {
        for address in ["http://", "socks5://proxy:1080", "https://proxy:3129", "ftp://proxy", "a b", "/path"] {
            assert!(Proxy::read(address).is_err(), "{address}");
        }
        for address in ["proxy:3128", "http://proxy", "http://[::1]:3128", "127.0.0.1:3128"] {
            assert!(Proxy::read(address).is_ok(), "{address}");
        }
    }
}
