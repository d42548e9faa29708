//! Who counts as one when something is counted by address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::{extract::ConnectInfo, http::Extensions};

/// Whoever has one address of an IPv6 network has all of them.
pub fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// The address of whoever sent a request, behind proxies that are trusted.
pub(crate) fn address_in(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip().to_canonical())
}
