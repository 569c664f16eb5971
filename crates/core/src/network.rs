//! Networks of addresses in the configuration.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

/// A network, or one address: `10.0.0.0/8`, `192.0.2.7`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u32,
}

/// A text that is not a network.
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
    /// All IPv4 addresses.
    pub fn any() -> Self {
        Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 }
    }

    /// Whether the network contains this address.
    pub fn contains(&self, other: IpAddr) -> bool {
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
