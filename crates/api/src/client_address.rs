//! The address of a client.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::{extract::ConnectInfo, http::Extensions};

/// Returns the address of the client, behind trusted proxies.
pub(crate) fn client_address(extensions: &Extensions) -> IpAddr {
    let peer = extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip().to_canonical())
}
