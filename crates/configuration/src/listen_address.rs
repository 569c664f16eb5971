//! The address of a listener: a TCP address, or the path of a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// What a Unix socket's address starts with.
const UNIX: &str = "unix:";

/// Where a listener accepts connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of TCP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Reads `HOST:PORT` or `unix:PATH`.
    pub fn read(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return (cfg!(unix) && !path.is_empty() && !path.contains('\0')).then(|| Self::Unix(path.into()));
        }
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().ok().map(Self::Tcp)
    }

    /// Whether only this machine can reach it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// The URL for clients on this machine.
    pub fn url(&self, scheme: &str) -> String {
        let Self::Tcp(address) = self else { return format!("{scheme}://localhost") };
        let host = match address.ip() {
            // A client cannot use the wildcard address.
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("{scheme}://{}", SocketAddr::new(host, address.port()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "{UNIX}{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_port_or_a_path_after_unix() {
        for (text, local, url) in [
            ("127.0.0.1:8080", true, "http://127.0.0.1:8080"),
            ("localhost:80", true, "http://127.0.0.1:80"),
            ("[::ffff:127.0.0.1]:1", true, "http://[::ffff:127.0.0.1]:1"),
            ("0.0.0.0:443", false, "http://127.0.0.1:443"),
            ("unix:/run/amalgam.sock", true, "http://localhost"),
        ] {
            let address = ListenAddress::read(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((address.is_local(), address.url("http").as_str()), (local, url), "{text}");
        }
        for wrong in ["", "8080", "unix:", "unix:a\0b", "example.com:80", "UNIX:/a"] {
            assert_eq!(ListenAddress::read(wrong), None, "{wrong:?}");
        }
    }
}
