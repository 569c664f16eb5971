//! Which addresses belong to the public internet.
//!
//! Follows the registries of special-purpose addresses; an address that is not clearly public is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses that share their first bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    first: IpAddr,
    prefix: u8,
}

impl Block {
    /// The block that starts at `first`; `None` if no block of this size starts there.
    pub(super) fn new(first: IpAddr, prefix: u8) -> Option<Self> {
        let free_bits = width(first).checked_sub(u32::from(prefix))?;
        let free = 1_u128.checked_shl(free_bits).map_or(u128::MAX, |next| next - 1);
        (as_number(first) & free == 0).then_some(Self { first, prefix })
    }

    /// The block of one address.
    pub(super) fn single(address: IpAddr) -> Self {
        Self { first: address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && self.shifted(address) == self.shifted(self.first)
    }

    fn shifted(&self, address: IpAddr) -> u128 {
        as_number(address).checked_shr(width(address) - u32::from(self.prefix)).unwrap_or(0)
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn as_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Block {
    Block { first: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Block {
    Block { first: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), prefix }
}

const NOT_PUBLIC_V4: [Block; 16] = [
    v4(0, 0, 0, 0, 8),        // this network
    v4(10, 0, 0, 0, 8),       // private
    v4(100, 64, 0, 0, 10),    // shared by carriers
    v4(127, 0, 0, 0, 8),      // loopback
    v4(168, 63, 129, 16, 32), // the host of an Azure machine, public only by its looks
    v4(169, 254, 0, 0, 16),   // link-local, metadata of clouds
    v4(172, 16, 0, 0, 12),    // private
    v4(192, 0, 0, 0, 24),     // protocol assignments
    v4(192, 0, 2, 0, 24),     // documentation
    v4(192, 88, 99, 0, 24),   // 6to4 relays, given up
    v4(192, 168, 0, 0, 16),   // private
    v4(198, 18, 0, 0, 15),    // benchmarks
    v4(198, 51, 100, 0, 24),  // documentation
    v4(203, 0, 113, 0, 24),   // documentation
    v4(224, 0, 0, 0, 4),      // multicast
    v4(240, 0, 0, 0, 4),      // reserved, broadcast
];

/// All assigned unicast addresses; loopback, link-local, unique local and others are outside.
const GLOBAL_V6: Block = v6(0x2000, 0, 0, 3);

const NOT_PUBLIC_V6: [Block; 4] = [
    v6(0x2001, 0, 0, 23),     // protocol assignments, Teredo, benchmarks, ORCHID
    v6(0x2001, 0xdb8, 0, 32), // documentation
    v6(0x2002, 0, 0, 16),     // 6to4: an IPv4 address in disguise
    v6(0x3fff, 0, 0, 20),     // documentation
];

/// IPv6 addresses that NAT64 translates to the IPv4 address in their last 32 bits.
const NAT64: Block = v6(0x64, 0xff9b, 0, 96);

/// Whether an address is public. An IPv4 address inside an IPv6 address is checked as IPv4.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        address @ IpAddr::V4(_) => !NOT_PUBLIC_V4.iter().any(|block| block.contains(address)),
        IpAddr::V6(inner) if NAT64.contains(IpAddr::V6(inner)) => {
            is_public(IpAddr::V4(Ipv4Addr::from_bits(inner.to_bits() as u32)))
        }
        address => GLOBAL_V6.contains(address) && !NOT_PUBLIC_V6.iter().any(|block| block.contains(address)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // S17
    #[test]
    fn first_and_last_address_of_every_special_block_are_not_public_and_their_neighbours_are() {
        let blocks = [
            ("0.0.0.0", "0.255.255.255", None, Some("1.0.0.0")),
            ("10.0.0.0", "10.255.255.255", Some("9.255.255.255"), Some("11.0.0.0")),
            ("100.64.0.0", "100.127.255.255", Some("100.63.255.255"), Some("100.128.0.0")),
            ("127.0.0.0", "127.255.255.255", Some("126.255.255.255"), Some("128.0.0.0")),
            ("168.63.129.16", "168.63.129.16", Some("168.63.129.15"), Some("168.63.129.17")),
            ("169.254.0.0", "169.254.255.255", Some("169.253.255.255"), Some("169.255.0.0")),
            ("172.16.0.0", "172.31.255.255", Some("172.15.255.255"), Some("172.32.0.0")),
            ("192.0.0.0", "192.0.0.255", Some("191.255.255.255"), Some("192.0.1.0")),
            ("192.0.2.0", "192.0.2.255", Some("192.0.1.255"), Some("192.0.3.0")),
            ("192.88.99.0", "192.88.99.255", Some("192.88.98.255"), Some("192.88.100.0")),
            ("192.168.0.0", "192.168.255.255", Some("192.167.255.255"), Some("192.169.0.0")),
            ("198.18.0.0", "198.19.255.255", Some("198.17.255.255"), Some("198.20.0.0")),
            ("198.51.100.0", "198.51.100.255", Some("198.51.99.255"), Some("198.51.101.0")),
            ("203.0.113.0", "203.0.113.255", Some("203.0.112.255"), Some("203.0.114.0")),
            ("224.0.0.0", "255.255.255.255", Some("223.255.255.255"), None),
            ("::", "1fff:ffff::", None, Some("2000::")),
            ("2001::", "2001:1ff:ffff::", Some("2000:ffff::"), Some("2001:200::")),
            ("2001:db8::", "2001:db8:ffff::", Some("2001:db7::"), Some("2001:db9::")),
            ("2002::", "2002:ffff::", Some("2001:ffff::"), Some("2003::")),
            ("3fff::", "3fff:fff:ffff::", Some("3ffe::"), Some("3fff:1000::")),
            ("4000::", "ffff:ffff::", None, None),
        ];
        for (first, last, before, after) in blocks {
            assert!(!is_public(ip(first)), "{first}");
            assert!(!is_public(ip(last)), "{last}");
            for neighbour in [before, after].into_iter().flatten() {
                assert!(is_public(ip(neighbour)), "{neighbour}");
            }
        }
    }

    #[test]
    fn well_known_traps_are_not_public() {
        let traps = [
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "100::1",
            "5f00::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::8.8.8.8",
            "2002:7f00:1::",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "169.254.169.254",
            "100.100.100.200",
        ];
        for trap in traps {
            assert!(!is_public(ip(trap)), "{trap}");
        }
    }

    #[test]
    fn ordinary_addresses_are_public() {
        for address in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00:1450:4001::200e", "64:ff9b::8.8.8.8"] {
            assert!(is_public(ip(address)), "{address}");
        }
    }

    #[test]
    fn a_block_starts_where_its_size_allows() {
        for (first, prefix) in
            [("10.0.0.0", 8), ("10.0.0.1", 32), ("0.0.0.0", 0), ("fd00::", 8), ("::", 0), ("::1", 128)]
        {
            let block = Block::new(ip(first), prefix).unwrap();
            assert!(block.contains(ip(first)), "{first}/{prefix}");
        }
        for (first, prefix) in
            [("10.0.0.1", 8), ("10.0.0.0", 33), ("1.0.0.0", 0), ("fd00::1", 8), ("::", 129), ("::1", 0)]
        {
            assert_eq!(Block::new(ip(first), prefix), None, "{first}/{prefix}");
        }
    }

    proptest! {
        // S17
        #[test]
        fn an_ipv4_address_counts_the_same_in_every_disguise(bits: u32) {
            let plain = is_public(Ipv4Addr::from_bits(bits).into());
            let mapped = Ipv6Addr::from_bits(0xffff_0000_0000 | u128::from(bits));
            let translated = Ipv6Addr::from_bits(0x64_ff9b_u128 << 96 | u128::from(bits));
            prop_assert_eq!(is_public(mapped.into()), plain);
            prop_assert_eq!(is_public(translated.into()), plain);
        }

        #[test]
        fn what_the_standard_library_calls_special_is_never_public(bits: u32, high: u128) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_loopback() || address.is_private() || address.is_link_local()
                || address.is_multicast() || address.is_unspecified() || address.is_documentation()
                || address.is_broadcast();
            prop_assert!(!(special && is_public(address.into())), "{}", address);
            let address = Ipv6Addr::from_bits(high);
            let special = address.is_loopback() || address.is_multicast() || address.is_unspecified()
                || address.is_unique_local() || address.is_unicast_link_local();
            prop_assert!(!(special && is_public(address.into())), "{}", address);
        }

        #[test]
        fn no_tunnel_is_public(low: u128) {
            let low = low >> 16;
            prop_assert!(!is_public(Ipv6Addr::from_bits(0x2002 << 112 | low).into()));
            prop_assert!(!is_public(Ipv6Addr::from_bits(0x2001_0000 << 96 | low >> 16).into()));
        }

        #[test]
        fn a_block_contains_exactly_the_addresses_that_share_its_prefix(bits: u128, other: u128, prefix in 0_u8..=128) {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            let block = Block::new(Ipv6Addr::from_bits(bits & mask).into(), prefix).unwrap();
            prop_assert_eq!(block.contains(Ipv6Addr::from_bits(other).into()), bits & mask == other & mask);
            prop_assert!(block.contains(Ipv6Addr::from_bits(bits).into()));
        }
    }
}
