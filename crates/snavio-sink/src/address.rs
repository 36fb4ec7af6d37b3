//! IP addresses and the rule that decides whether the gateway may call them (QUA-6): public internet
//! addresses, and the networks that an operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network that an operator allows although it is not public: `10.1.0.0/16`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    first: u128,
    bits: u32,
}

impl Network {
    /// Parses `address` or `address/bits`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(longest);
        if bits > longest {
            return None;
        }
        // An IPv4 address is the last 32 bits of its mapped IPv6 address.
        Some(Self { first: to_bits(address), bits: bits + 128 - longest })
    }

    fn contains(self, address: IpAddr) -> bool {
        let differing = to_bits(address) ^ self.first;
        differing.leading_zeros() >= self.bits
    }
}

fn to_bits(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Whether the gateway may call an address over TLS.
pub(crate) fn may_be_called(address: IpAddr, allowed: &[Network]) -> bool {
    is_public(address) || is_allowed(address, allowed)
}

/// Whether an operator allowed the address. Plain HTTP requires this.
pub(crate) fn is_allowed(address: IpAddr, allowed: &[Network]) -> bool {
    allowed.iter().any(|network| network.contains(address))
}

/// Whether an address belongs to a host on the public internet.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // IANA's networks that are not globally reachable, and 168.63.129.16, the address at which one cloud
    // provider serves its own hosts.
    const NOT_PUBLIC: [(Ipv4Addr, u32); 17] = [
        (Ipv4Addr::new(0, 0, 0, 0), 8),
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(168, 63, 129, 16), 32),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
        (Ipv4Addr::new(172, 16, 0, 0), 12),
        (Ipv4Addr::new(192, 0, 0, 0), 24),
        (Ipv4Addr::new(192, 0, 2, 0), 24),
        (Ipv4Addr::new(192, 31, 196, 0), 24),
        (Ipv4Addr::new(192, 88, 99, 0), 24),
        (Ipv4Addr::new(192, 168, 0, 0), 16),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
        (Ipv4Addr::new(198, 51, 100, 0), 24),
        (Ipv4Addr::new(203, 0, 113, 0), 24),
        (Ipv4Addr::new(224, 0, 0, 0), 4),
        (Ipv4Addr::new(240, 0, 0, 0), 4),
    ];
    !NOT_PUBLIC.iter().any(|(first, bits)| (address.to_bits() ^ first.to_bits()).leading_zeros() >= *bits)
}

/// Public are only global unicast addresses (2000::/3), without protocol assignments, documentation addresses
/// and 6to4, which embeds an IPv4 address. Mapped (::ffff:0:0/96) and translated (64:ff9b::/96, NAT64)
/// addresses are outside 2000::/3.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let is_global = a & 0xe000 == 0x2000;
    let is_protocol = a == 0x2001 && b < 0x0200;
    let is_document = (a == 0x2001 && b == 0x0db8) || (a == 0x3fff && b < 0x1000);
    let is_6to4 = a == 0x2002;
    is_global && !is_protocol && !is_document && !is_6to4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QUA-6
    #[test]
    fn only_public_addresses_may_be_called() {
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1", "2a00:1450::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.9.9.9",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::101:101",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "100::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }

    /// QUA-6
    #[test]
    fn network_contains_its_own_addresses() {
        for (network, address, held) in [
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.0.0/16", "::ffff:10.1.0.1", true),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "::1", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe12::1", false),
        ] {
            let held_by = Network::parse(network).unwrap().contains(address.parse().unwrap());
            assert_eq!(held_by, held, "{network} {address}");
        }
        for wrong in ["", "10.0.0.0/33", "10.0.0.0/x", "::/129", "host", "10.0.0.0/"] {
            assert_eq!(Network::parse(wrong), None, "{wrong}");
        }
    }
}
