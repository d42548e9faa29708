//! Classifies IP addresses for outgoing requests (public, private, never to be contacted), and groups clients for rate limits.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 ranges that are not public: this network, private networks, carrier-grade NAT, loopback, link-local,
/// documentation, benchmarking, multicast and reserved.
const NON_PUBLIC_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The only IPv6 range that is globally routed.
const GLOBAL_UNICAST_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Exceptions within it: tunnels to addresses that cannot be inspected here, and documentation.
const NON_PUBLIC_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// The prefix under which NAT64 embeds IPv4 addresses.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// IPv4 ranges that are never contacted: no receiver can be there, or cloud providers serve instance metadata there.
const BLOCKED_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(192, 0, 0, 192), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];
/// The same for IPv6.
const BLOCKED_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 128),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 112),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];
/// Further IPv6 ranges that embed an IPv4 address, with the number of bits after it. They are not public, but a network
/// may still route them to the embedded address.
const V4_EMBEDDING_RANGES: &[(Ipv6Addr, u32, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 96, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, 0),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, 0),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 80),
];

/// Returns whether the server may connect to an address on behalf of a user; `allow_local` also permits private addresses.
pub fn may_connect_to(address: IpAddr, allow_local: bool) -> bool {
    if allow_local { is_connectable(address) } else { is_public(address) }
}

/// Returns whether an address is public, in whatever form it is written.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(inner) => is_connectable(address) && !NON_PUBLIC_V4.iter().any(|range| contains_v4(*range, inner)),
        IpAddr::V6(address) => {
            if let Some(inner) = translated_v4(address) {
                return is_public(inner.into());
            }
            contains_v6(GLOBAL_UNICAST_V6, address) && !NON_PUBLIC_V6.iter().any(|range| contains_v6(*range, address))
        }
    }
}

/// Returns whether an address may be contacted if local networks are allowed: public, loopback and private addresses,
/// but no metadata services, link-local or multicast addresses.
pub fn is_connectable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !BLOCKED_V4.iter().any(|range| contains_v4(*range, address)),
        IpAddr::V6(address) => {
            if address == Ipv6Addr::LOCALHOST {
                return true;
            }
            let embedded = V4_EMBEDDING_RANGES.iter().find(|(start, bits, _)| contains_v6((*start, *bits), address));
            let embedded = embedded.map(|(_, _, after)| low_v4(address.to_bits() >> after));
            translated_v4(address).or(embedded).is_none_or(|inner| is_connectable(inner.into()))
                && !BLOCKED_V6.iter().any(|range| contains_v6(*range, address))
        }
    }
}

/// Returns the IPv4 address that an IPv4-mapped or NAT64 address stands for.
fn translated_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address.to_ipv4_mapped().or_else(|| contains_v6(NAT64, address).then(|| low_v4(address.to_bits())))
}

fn low_v4(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

fn contains_v4((start, bits): (Ipv4Addr, u32), address: Ipv4Addr) -> bool {
    (start.to_bits() ^ address.to_bits()) >> (32 - bits) == 0
}

fn contains_v6((start, bits): (Ipv6Addr, u32), address: Ipv6Addr) -> bool {
    (start.to_bits() ^ address.to_bits()) >> (128 - bits) == 0
}

/// Returns the network of a client, the key of rate limits: an IPv4 address, or the /64 of an IPv6 address, since one host
/// usually has all of it.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_recognized_in_every_notation() {
        let check = |address: &str, expected: bool| {
            let parsed = address.parse().expect("an address");
            assert_eq!(is_public(parsed), expected, "{address}");
            assert_eq!(may_connect_to(parsed, false), expected, "{address}");
            // Allowing local networks never forbids a public address.
            assert!(!expected || may_connect_to(parsed, true), "{address}");
        };
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "203.0.113.7",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "4000::1",
        ] {
            check(private, false);
        }
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "192.169.0.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2606:4700::1111",
            "2a00:1450::1",
        ] {
            check(public, true);
        }
    }

    #[test]
    fn metadata_and_multicast_addresses_are_refused_in_every_notation() {
        let check = |address: &str, expected: bool| {
            assert_eq!(is_connectable(address.parse().expect("an address")), expected, "{address}");
        };
        for never in [
            "0.0.0.0",
            "0.1.2.3",
            "100.100.100.200",
            "168.63.129.16",
            "169.254.0.1",
            "169.254.169.254",
            "169.254.255.255",
            "192.0.0.192",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::169.254.169.254",
            "::ffff:0.0.0.0",
            "::ffff:100.100.100.200",
            "::ffff:169.254.169.254",
            "::ffff:224.0.0.1",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b::192.0.0.192",
            "64:ff9b::0.0.0.0",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "fd00:c1::a9fe:a9fe",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fe80::1",
            "febf::1",
            "ff02::1",
        ] {
            check(never, false);
        }
        for connectable in [
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.199",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.16.0.1",
            "192.0.0.191",
            "192.168.0.1",
            "223.255.255.255",
            "8.8.8.8",
            "::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::8.8.8.8",
            "2002:a00:1::1",
            "2606:4700::1111",
            "fc00::1",
            "fd00:ec3::254",
            "fec0::1",
        ] {
            check(connectable, true);
        }
    }

    #[test]
    fn clients_of_one_ipv6_network_share_a_key() {
        let check = |address: &str, expected: &str| {
            let parse = |text: &str| text.parse::<IpAddr>().expect("an address");
            assert_eq!(client_network(parse(address)), parse(expected), "{address}");
        };
        check("192.0.2.7", "192.0.2.7");
        check("::ffff:192.0.2.7", "192.0.2.7");
        check("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::");
    }
}
