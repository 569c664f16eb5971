//! The proxies in front of the server, whose `X-Forwarded-For` is trusted.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use amalgam_core::Network;
use http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The networks of trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

impl TrustedProxies {
    /// Trusts the addresses of these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether an address is a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// The address of the client: the peer of the connection, or the address before the trusted proxies, by their
    /// `X-Forwarded-For`. Entries of untrusted addresses are ignored.
    pub fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.0.is_empty() {
            return peer;
        }
        let hops = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let hops: Vec<&str> = hops.flat_map(|value| value.split(',')).collect();
        let mut client = peer;
        for hop in hops.into_iter().rev() {
            if !self.contains(client) {
                break;
            }
            match address_of(hop.trim()) {
                Some(address) => client = address,
                None => break,
            }
        }
        client.to_canonical()
    }
}

/// What counts as one client: an IPv4 address, or an IPv6 network, since one client has all addresses of it.
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// An address, possibly with a port.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(networks: &[&str]) -> TrustedProxies {
        TrustedProxies::new(networks.iter().map(|network| network.parse().unwrap()).collect())
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // right E3
    #[test]
    fn a_network_has_its_addresses_and_no_others() {
        let trusted = proxies(&["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
        for inside in ["10.255.0.1", "192.0.2.7", "::ffff:10.1.1.1", "2001:db8:1::1"] {
            assert!(trusted.contains(address(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.8", "2001:db9::1", "::1"] {
            assert!(!trusted.contains(address(outside)), "{outside}");
        }
        assert!(proxies(&["0.0.0.0/0"]).contains(address("203.0.113.1")));
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/", "::/129", "proxy.internal"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }

    // right E4
    #[test]
    fn only_our_own_proxies_tell_where_a_request_comes_from() {
        let trusted = proxies(&["127.0.0.0/8", "10.0.0.0/8"]);
        let client = |peer: &str, forwarded: &[&str]| {
            let headers = forwarded.iter().map(|value| (FORWARDED_FOR, value.parse().unwrap())).collect();
            trusted.client(address(peer), &headers).to_string()
        };
        assert_eq!(client("203.0.113.1", &["198.51.100.1"]), "203.0.113.1");
        assert_eq!(client("127.0.0.1", &[]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["198.51.100.1"]), "198.51.100.1");
        assert_eq!(client("127.0.0.1", &["192.0.2.66, 198.51.100.1", "10.0.0.3"]), "198.51.100.1");
        assert_eq!(client("127.0.0.1", &["198.51.100.1:4711"]), "198.51.100.1");
        assert_eq!(client("127.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(client("127.0.0.1", &["198.51.100.1, unknown"]), "127.0.0.1");
        assert_eq!(client("127.0.0.1", &["10.0.0.9, 10.0.0.3"]), "10.0.0.9");
    }
}
