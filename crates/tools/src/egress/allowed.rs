//! The configured exceptions: private targets that egress may reach.

use std::{net::IpAddr, net::SocketAddr, str::FromStr};

use super::address::Block;
use super::target::{self, Host, Target};

/// One exception: `10.0.0.7:9000`, `10.0.0.7`, `10.0.0.0/8`, `[fd00::1]:9000`, `files.internal:9000`, `files.internal`.
///
/// Without a port, every port is allowed. A name is compared with the host in the URL, whatever it resolves to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    host: AllowedHost,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AllowedHost {
    Block(Block),
    Name(String),
}

/// The text has none of the accepted forms.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an address, a block such as `10.0.0.0/8`, or a host name, each with or without a port")]
pub struct AllowedError(String);

impl Allowed {
    pub(super) fn matches(&self, target: &Target, address: IpAddr) -> bool {
        let placed = match (&self.host, &target.host) {
            (AllowedHost::Block(block), _) => block.contains(address.to_canonical()),
            (AllowedHost::Name(name), Host::Name(host)) => name == host,
            (AllowedHost::Name(_), Host::Address(_)) => false,
        };
        placed && self.port.is_none_or(|port| port == target.port)
    }

    /// Whether the exception names the host in the URL, whatever it resolves to.
    pub(super) fn names(&self, target: &Target) -> bool {
        matches!((&self.host, &target.host), (AllowedHost::Name(name), Host::Name(host)) if name == host)
            && self.port.is_none_or(|port| port == target.port)
    }
}

impl From<SocketAddr> for Allowed {
    /// Exactly this address and port.
    fn from(address: SocketAddr) -> Self {
        Self { host: AllowedHost::Block(Block::single(address.ip().to_canonical())), port: Some(address.port()) }
    }
}

impl FromStr for Allowed {
    type Err = AllowedError;

    fn from_str(text: &str) -> Result<Self, AllowedError> {
        let error = || AllowedError(text.to_owned());
        let single = |address: IpAddr| AllowedHost::Block(Block::single(address.to_canonical()));
        if let Ok(address) = text.parse::<SocketAddr>() {
            let port = Some(address.port()).filter(|port| *port != 0).ok_or_else(error)?;
            return Ok(Self { host: single(address.ip()), port: Some(port) });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: single(address), port: None });
        }
        if let Some((first, prefix)) = text.split_once('/') {
            let block =
                first.parse().ok().zip(prefix.parse().ok()).and_then(|(first, prefix)| Block::new(first, prefix));
            return Ok(Self { host: AllowedHost::Block(block.ok_or_else(error)?), port: None });
        }
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an address in brackets do not separate a port.
            Some((host, port)) if !text.ends_with(']') => (host, Some(target::port(port).ok_or_else(error)?)),
            _ => (text, None),
        };
        match target::host(host) {
            Some(Host::Name(name)) => Ok(Self { host: AllowedHost::Name(name), port }),
            Some(Host::Address(address)) => Ok(Self { host: single(address), port }),
            None => Err(error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(allowed: &str, url: &str, address: &str) -> bool {
        allowed.parse::<Allowed>().unwrap().matches(&Target::parse(url).unwrap(), address.parse().unwrap())
    }

    #[test]
    fn an_exception_matches_its_own_address_and_port_and_nothing_beside_it() {
        let cases = [
            ("127.0.0.1:9000", "http://127.0.0.1:9000/", "127.0.0.1", true),
            ("127.0.0.1:9000", "http://127.0.0.1:9001/", "127.0.0.1", false),
            ("127.0.0.1:9000", "http://127.0.0.2:9000/", "127.0.0.2", false),
            ("127.0.0.1:9000", "http://name:9000/", "127.0.0.1", true),
            ("127.0.0.1:9000", "http://name:9000/", "::ffff:127.0.0.1", true),
            ("127.0.0.1", "http://127.0.0.1:1/", "127.0.0.1", true),
            ("10.0.0.0/8", "https://name/", "10.200.3.4", true),
            ("10.0.0.0/8", "https://name/", "11.0.0.1", false),
            ("[::1]:9000", "http://[::1]:9000/", "::1", true),
            ("[::1]", "http://[::1]:9000/", "::1", true),
            ("fd00::/8", "http://name/", "fd12::1", true),
            ("Files.Internal:80", "http://files.internal/", "10.0.0.1", true),
            ("files.internal:80", "http://files.internal:81/", "10.0.0.1", false),
            ("files.internal", "http://other.internal/", "10.0.0.1", false),
            ("files.internal", "http://10.0.0.1/", "10.0.0.1", false),
        ];
        for (allowed, url, address, expected) in cases {
            assert_eq!(matches(allowed, url, address), expected, "{allowed} {url} {address}");
        }
    }

    #[test]
    fn what_is_no_target_is_refused_by_name() {
        for text in ["", ":80", "host:0", "host:99999", "10.0.0.1/8", "10.0.0.0/33", "http://host", "a b", "127.1", "*"]
        {
            let error = text.parse::<Allowed>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{text}`")), "{error}");
        }
    }
}
