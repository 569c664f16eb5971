//! A URL, parsed once. All checks and the connection use these parts.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{HeaderValue, Uri, uri::PathAndQuery};

use super::EgressError;

/// A longer URL is data, not an address.
const MAX_URL_BYTES: usize = 8 * 1024;

/// The target of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) tls: bool,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) path: PathAndQuery,
}

/// The host of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// In lower case, without a final dot.
    Name(String),
    Address(IpAddr),
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, EgressError> {
        if url.len() > MAX_URL_BYTES {
            return Err(EgressError::BadUrl("it is too long"));
        }
        let uri: Uri = url.parse().map_err(|_| EgressError::BadUrl("it is not valid"))?;
        let (tls, default_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(EgressError::BadUrl("only https is used")),
        };
        let authority = uri.authority().ok_or(EgressError::BadUrl("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(EgressError::BadUrl("it holds a user name or password"));
        }
        let host_text = authority.host();
        let port = match authority.as_str().strip_prefix(host_text) {
            Some("") => default_port,
            Some(rest) => rest.strip_prefix(':').and_then(port).ok_or(EgressError::BadUrl("its port is not valid"))?,
            None => return Err(EgressError::BadUrl("it is not valid")),
        };
        let host = host(host_text).ok_or(EgressError::BadUrl("its host is not valid"))?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self { tls, host, port, path })
    }

    /// The value of the `Host` header.
    pub(super) fn host_header(&self) -> HeaderValue {
        let host = &self.host;
        let text = match (self.tls, self.port) {
            (true, 443) | (false, 80) => host.to_string(),
            (_, port) => format!("{host}:{port}"),
        };
        HeaderValue::from_str(&text).expect("a checked host is plain ASCII")
    }
}

/// Endings of names that public servers do not have: RFC 6761, RFC 6762 with its appendix G, RFC 8375.
const PRIVATE_ENDINGS: [&str; 9] =
    ["localhost", "local", "internal", "intranet", "private", "corp", "home", "lan", "home.arpa"];

impl Host {
    /// Whether this is a name of a private network: a single label, or a private ending.
    pub(super) fn is_private(&self) -> bool {
        let Self::Name(name) = self else { return false };
        let ends_in = |end: &&str| name.strip_suffix(*end).is_some_and(|rest| rest.ends_with('.'));
        !name.contains('.') || PRIVATE_ENDINGS.iter().any(ends_in)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// A port in decimal digits, other than zero.
pub(super) fn port(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?.filter(|port| *port != 0)
}

/// Parses the host of a URL.
///
/// Resolvers accept `127.1`, `0177.0.0.1`, `0x7f000001` and `2130706433` as addresses. Here a host that ends in a
/// number must be an address in the usual four parts, so that none of these forms counts as a name.
pub(super) fn host(text: &str) -> Option<Host> {
    if let Some(inner) = text.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(Host::Address(address.into()));
    }
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    if ends_in_a_number(&name) {
        return name.parse::<Ipv4Addr>().ok().map(|address| Host::Address(address.into()));
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    (name.len() <= 253 && name.split('.').all(label)).then_some(Host::Name(name))
}

fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal =
        last.strip_prefix("0x").is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    hexadecimal || !last.is_empty() && last.bytes().all(|digit| digit.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_is_taken_apart() {
        let target = Target::parse("HTTPS://Images.Example.COM.:8443/a/b.png?c=d#e").unwrap();
        let expected = Target {
            tls: true,
            host: Host::Name("images.example.com".into()),
            port: 8443,
            path: PathAndQuery::from_static("/a/b.png?c=d"),
        };
        assert_eq!(target, expected);
        assert_eq!(target.host_header(), "images.example.com:8443");
    }

    #[test]
    fn ports_and_paths_have_their_defaults() {
        let (secure, plain) = (Target::parse("https://a.example").unwrap(), Target::parse("http://[::1]").unwrap());
        assert_eq!(
            (secure.port, secure.path.as_str(), secure.host_header()),
            (443, "/", HeaderValue::from_static("a.example"))
        );
        assert_eq!(
            (plain.port, plain.path.as_str(), plain.host_header()),
            (80, "/", HeaderValue::from_static("[::1]"))
        );
    }

    // S17
    #[test]
    fn what_two_parsers_could_read_in_two_ways_is_refused() {
        let long = format!("https://a.example/{}", "x".repeat(MAX_URL_BYTES));
        let urls = [
            "",
            "/a",
            "a.example",
            "//a.example",
            "https://",
            "https:///a",
            "https:a.example",
            "ftp://a.example",
            "file:///etc/passwd",
            "data:image/png;base64,AAAA",
            "gopher://a.example",
            "https://user@a.example",
            "https://user:secret@a.example",
            "https://a.example@127.0.0.1",
            "https://a.example\\@127.0.0.1",
            "https://a.example:0",
            "https://a.example:",
            "https://a.example:65536",
            "https://a.example:+443",
            "https://a.example:443:80",
            "https://a b",
            "https://a.example\r\nhost: b",
            "https://a_b..c",
            "https://-a.example",
            "https://%31%32%37.0.0.1",
            "https://[::1",
            "https://[fe80::1%25eth0]",
            "https://[127.0.0.1]",
            "https://\u{ff11}27.0.0.1",
            "https://127。0。0。1",
            "https://b\u{fc}cher.example",
            " https://a.example",
            &long,
        ];
        for url in urls {
            assert!(matches!(Target::parse(url), Err(EgressError::BadUrl(_))), "{url}");
        }
    }

    // S17
    #[test]
    fn an_address_in_an_odd_notation_is_refused() {
        let hosts = [
            "2130706433",
            "0x7f000001",
            "0X7F000001",
            "017700000001",
            "127.1",
            "127.0.1",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "127.0.0.01",
            "127.0.0.1.1",
            "127.0.0.256",
            "1.2.3.4.",
            "a.1",
            "0x",
            "127.0.0.0x1",
            "00000000000000000001",
        ];
        for text in hosts {
            let url = format!("https://{text}/");
            match Target::parse(&url) {
                Err(EgressError::BadUrl(_)) => {}
                // A final dot does not change a plain address.
                Ok(target) => assert_eq!((text, target.host), ("1.2.3.4.", Host::Address([1, 2, 3, 4].into()))),
                Err(error) => panic!("{text}: {error}"),
            }
        }
    }

    proptest! {
        // S17
        #[test]
        fn no_notation_of_a_number_becomes_a_name(bits: u32, cut in 0..4_usize) {
            let [a, b, c, d] = bits.to_be_bytes();
            let forms = [
                format!("{bits}"), format!("{bits:#x}"), format!("0{bits:o}"), format!("{a}.{}", bits & 0xff_ffff),
                format!("{a}.{b}.{}", bits & 0xffff), format!("0{a:o}.{b}.{c}.{d}"), format!("{a:#x}.{b}.{c}.{d:#x}"),
                format!("{a}.{b}.{c}.0{d:o}"), format!("{a}.{b}.{c}.{d}"),
            ];
            for form in &forms {
                prop_assert!(!matches!(host(form), Some(Host::Name(_))), "{}", form);
                let upper = form.to_ascii_uppercase();
                prop_assert!(!matches!(host(&upper), Some(Host::Name(_))), "{}", upper);
            }
            let tail: Vec<_> = [a, b, c, d].iter().skip(cut).map(u8::to_string).collect();
            prop_assert!(!matches!(host(&tail.join(".")), Some(Host::Name(_))));
        }

        #[test]
        fn any_text_is_refused_or_gives_a_host_that_reads_back_the_same(url in "https?://[ -~]{0,30}(/[ -~]{0,10})?") {
            if let Ok(target) = Target::parse(&url) {
                let host_text = target.host.to_string();
                prop_assert_eq!(host(&host_text), Some(target.host.clone()));
                prop_assert!(!host_text.contains(['@', '/', '\\', '?', '#', ' ', '%']), "{}", host_text);
            }
        }
    }
}
