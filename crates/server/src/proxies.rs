//! The proxies in front of the server that are believed about where a request comes from.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use http::{HeaderMap, HeaderName};

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Networks whose machines are proxies of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<Network>);

/// A network, or one address: `10.0.0.0/8`, `192.0.2.7`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

/// A text that is no network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotANetwork;

impl fmt::Display for NotANetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("expected a network such as 10.0.0.0/8, or an address")
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix.parse::<u32>().map_err(|_| NotANetwork)?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        match prefix.unwrap_or(bits) {
            prefix if prefix <= bits => Ok(Self { address, prefix }),
            _ => Err(NotANetwork),
        }
    }
}

impl Network {
    /// Every address of version 4.
    pub fn any() -> Self {
        Self { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), prefix: 0 }
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(32 - self.prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(128 - self.prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl TrustedProxies {
    /// Machines of these networks.
    pub fn new(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Whether a machine is one of them.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Where a request comes from: the machine at the other end of the connection, or the one behind our proxies as they
    /// tell it in `X-Forwarded-For`. What a machine that is no proxy of ours says there counts for nothing.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        if self.0.is_empty() {
            return peer;
        }
        let told = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
        let told: Vec<&str> = told.flat_map(|value| value.split(',')).collect();
        let mut client = peer;
        for hop in told.into_iter().rev() {
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

/// What counts as one client: an address, and of version 6 a network, since one client has all addresses of it.
pub(crate) fn network(address: IpAddr) -> IpAddr {
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
            assert_eq!(wrong.parse::<Network>(), Err(NotANetwork), "{wrong}");
        }
    }

    // right E4
    #[test]
    fn only_our_own_proxies_tell_where_a_request_comes_from() {
        let trusted = proxies(&["127.0.0.0/8", "10.0.0.0/8"]);
        let client = |peer: &str, told: &[&str]| {
            let headers = told.iter().map(|value| (FORWARDED_FOR, value.parse().unwrap())).collect();
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
