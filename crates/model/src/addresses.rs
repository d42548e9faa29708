//! Which addresses of the network belong to everybody, and which are somebody's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of the old protocol that are not for everybody: this network, private ones, carriers', loopback, link-local
/// (where clouds keep their secrets), documentation, benchmarks, groups, and the rest that has no meaning.
const CLOSED_V4: &[(Ipv4Addr, u32)] = &[
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

/// Only this range of the new protocol is given out to everybody.
const OPEN_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// What is closed within it: tunnels to addresses that cannot be seen here, and documentation.
const CLOSED_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// How a network of the new protocol writes addresses of the old one.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether an address belongs to everybody, in whatever way it is written.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !CLOSED_V4.iter().any(|range| holds_v4(*range, address)),
        IpAddr::V6(address) => {
            if let Some(inner) = address.to_ipv4_mapped() {
                return is_public(inner.into());
            }
            if holds_v6(NAT64, address) {
                let [.., a, b] = address.segments();
                let ([a, b], [c, d]) = (a.to_be_bytes(), b.to_be_bytes());
                return is_public(Ipv4Addr::new(a, b, c, d).into());
            }
            holds_v6(OPEN_V6, address) && !CLOSED_V6.iter().any(|range| holds_v6(*range, address))
        }
    }
}

fn holds_v4((start, bits): (Ipv4Addr, u32), address: Ipv4Addr) -> bool {
    (start.to_bits() ^ address.to_bits()) >> (32 - bits) == 0
}

fn holds_v6((start, bits): (Ipv6Addr, u32), address: Ipv6Addr) -> bool {
    (start.to_bits() ^ address.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lesson_10_addresses_that_are_somebodys_own_are_known_in_every_spelling() {
        let check = |address: &str, expected: bool| {
            assert_eq!(is_public(address.parse().expect("an address")), expected, "{address}");
        };
        for own in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
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
            check(own, false);
        }
        for open in [
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
            check(open, true);
        }
    }
}
