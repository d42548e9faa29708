//! Which addresses of the network belong to everybody, and which are somebody's own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Ranges of the old protocol that are not for everybody: this network, private ones, carriers', loopback, link-local,
/// documentation, benchmarks, groups, and the rest that has no meaning.
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

/// Ranges of the old protocol where nobody has a receiver, or where clouds keep the secrets of their machines.
const NEVER_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(192, 0, 0, 192), 32),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];
/// The same of the new protocol.
const NEVER_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 128),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128),
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 112),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];
/// Further ranges of the new protocol that hold an address of the old one, and how many bits follow it. What is in them
/// belongs to nobody, but a network may lead it to that address all the same.
const HOLDERS: &[(Ipv6Addr, u32, u32)] = &[
    (Ipv6Addr::UNSPECIFIED, 96, 0),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, 0),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, 0),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, 80),
];

/// Whether an address is talked to on somebody's behalf; `allow_local` if that may also be one that is somebody's own.
pub fn is_talked_to(address: IpAddr, allow_local: bool) -> bool {
    if allow_local { is_ever_reached(address) } else { is_public(address) }
}

/// Whether an address belongs to everybody, in whatever way it is written.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(inner) => is_ever_reached(address) && !CLOSED_V4.iter().any(|range| holds_v4(*range, inner)),
        IpAddr::V6(address) => {
            if let Some(inner) = written_as_new(address) {
                return is_public(inner.into());
            }
            holds_v6(OPEN_V6, address) && !CLOSED_V6.iter().any(|range| holds_v6(*range, address))
        }
    }
}

/// Whether there may be something behind an address that wants to hear from us, at least for whoever may talk to the
/// network of the service itself: loopback and private addresses, but none that only lead to harm.
pub fn is_ever_reached(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NEVER_V4.iter().any(|range| holds_v4(*range, address)),
        IpAddr::V6(address) => {
            if address == Ipv6Addr::LOCALHOST {
                return true;
            }
            let held = HOLDERS.iter().find(|(start, bits, _)| holds_v6((*start, *bits), address));
            let held = held.map(|(_, _, after)| low_v4(address.to_bits() >> after));
            written_as_new(address).or(held).is_none_or(|inner| is_ever_reached(inner.into()))
                && !NEVER_V6.iter().any(|range| holds_v6(*range, address))
        }
    }
}

/// The address of the old protocol that one of the new protocol stands for.
fn written_as_new(address: Ipv6Addr) -> Option<Ipv4Addr> {
    address.to_ipv4_mapped().or_else(|| holds_v6(NAT64, address).then(|| low_v4(address.to_bits())))
}

fn low_v4(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
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
            let parsed = address.parse().expect("an address");
            assert_eq!(is_public(parsed), expected, "{address}");
            assert_eq!(is_talked_to(parsed, false), expected, "{address}");
            // Whoever may go everywhere may also go where everybody may.
            assert!(!expected || is_talked_to(parsed, true), "{address}");
        };
        for own in [
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

    #[test]
    fn lesson_10_some_addresses_are_never_reached_in_any_spelling() {
        let check = |address: &str, expected: bool| {
            assert_eq!(is_ever_reached(address.parse().expect("an address")), expected, "{address}");
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
        for sometimes in [
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
            check(sometimes, true);
        }
    }
}
