//! Requests through a reverse proxy: its `X-Forwarded-*` and `Forwarded` headers count only if the operator trusts it.

use std::{
    net::{IpAddr, SocketAddr},
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
};

use axum::{
    extract::{ConnectInfo, Request},
    http::{HeaderMap, HeaderValue, header},
};
use ipnet::IpNet;
use tracing::warn;

use crate::site::is_host;

/// The endpoint under which the client reached the server, as far as the request itself does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicEndpoint {
    /// Whether the client used TLS, to the server or to a proxy.
    pub secure: bool,
    /// The host that the client requested from the proxy.
    pub host: Option<String>,
}

/// The proxies whose forwarding headers are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// A trusted proxy is neither an address nor a network; holds its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the trusted proxy {0} is neither an address nor a network such as 10.0.0.0/8 or fd00::/8")]
pub struct InvalidProxy(String);

/// Parses a proxy: an address, or a network such as `10.0.0.0/8`.
pub fn parse_proxy(text: &str) -> Result<IpNet, InvalidProxy> {
    let text = text.trim();
    IpNet::from_str(text)
        .or_else(|_| IpAddr::from_str(text).map(|address| IpNet::from(address.to_canonical())))
        .map_err(|_| InvalidProxy(text.to_owned()))
}

impl TrustedProxies {
    /// Returns whether an address belongs to a trusted proxy.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Replaces the peer address by that of the client and records how the client reached the proxy, if the peer is trusted.
    pub(crate) fn apply_forwarded_headers(&self, request: &mut Request) {
        let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() else { return };
        if !self.trusts(peer.ip()) {
            if request.headers().contains_key(FORWARDED_FOR) {
                warn_once(peer.ip());
            }
            return;
        }
        let forwarded = ForwardedHeaders::parse(request.headers());
        let client_address = self.client_address(&forwarded.hops).unwrap_or(peer.ip());
        let secure = request.extensions().get::<PublicEndpoint>().is_some_and(|endpoint| endpoint.secure);
        let endpoint = PublicEndpoint { secure: forwarded.secure.unwrap_or(secure), host: forwarded.host };
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(SocketAddr::new(client_address, 0)));
        extensions.insert(endpoint);
    }

    /// Returns the closest hop that is not a trusted proxy. Entries before it may be forged by that hop.
    fn client_address(&self, hops: &[Option<IpAddr>]) -> Option<IpAddr> {
        let mut closest = None;
        for hop in hops.iter().rev() {
            // A trusted proxy writes only addresses, so the last known hop sent this.
            let Some(hop) = hop else { break };
            closest = Some(*hop);
            if !self.trusts(*hop) {
                break;
            }
        }
        closest
    }
}

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_HOST: &str = "x-forwarded-host";

/// The forwarding headers of a proxy.
#[derive(Debug, Default, PartialEq, Eq)]
struct ForwardedHeaders {
    hops: Vec<Option<IpAddr>>,
    secure: Option<bool>,
    host: Option<String>,
}

impl ForwardedHeaders {
    /// Parses the headers. `Forwarded` counts only without any of the `X-Forwarded-*` headers: a proxy that writes those may
    /// pass on a `Forwarded` that the client has forged.
    fn parse(headers: &HeaderMap) -> Self {
        let legacy = [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST];
        if legacy.iter().any(|name| headers.contains_key(*name)) {
            return Self {
                hops: list_items(headers, FORWARDED_FOR).map(parse_hop).collect(),
                secure: list_items(headers, FORWARDED_PROTO).last().and_then(is_secure),
                host: list_items(headers, FORWARDED_HOST).last().filter(|host| is_host(host)).map(ToOwned::to_owned),
            };
        }
        let mut forwarded = Self::default();
        for element in list_items(headers, header::FORWARDED.as_str()) {
            let mut hop = None;
            for (name, value) in element.split(';').filter_map(|pair| pair.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "for" => hop = parse_hop(value),
                    "proto" => forwarded.secure = is_secure(value).or(forwarded.secure),
                    "host" if is_host(value) => forwarded.host = Some(value.to_owned()),
                    _ => {}
                }
            }
            forwarded.hops.push(hop);
        }
        forwarded
    }
}

/// Returns the items of a comma-separated list that may span several headers.
fn list_items<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let texts = headers.get_all(name).iter().map(HeaderValue::to_str);
    texts.flat_map(|text| text.unwrap_or("?").split(',')).map(str::trim)
}

fn is_secure(scheme: &str) -> Option<bool> {
    match scheme.to_ascii_lowercase().as_str() {
        "https" => Some(true),
        "http" => Some(false),
        _ => None,
    }
}

/// Parses an address with an optional port; an IPv6 address may be in brackets.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

/// Warns that all clients behind an untrusted local proxy count as one address.
fn warn_once(peer: IpAddr) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let is_local = match peer.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
    };
    if is_local && !WARNED.swap(true, Ordering::Relaxed) {
        warn!(
            proxy = %peer,
            "requests come through a proxy that is not in trusted-proxies; all its clients count as one address"
        );
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::HeaderName};

    use super::*;

    fn proxies(texts: &[&str]) -> TrustedProxies {
        texts.iter().map(|text| parse_proxy(text).expect("a network")).collect()
    }

    fn resolve(trusted: &[&str], peer: &str, headers: &[(&str, &str)]) -> (String, Option<PublicEndpoint>) {
        let mut request = Request::new(Body::empty());
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let peer: IpAddr = peer.parse().expect("an address");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 4321)));
        proxies(trusted).apply_forwarded_headers(&mut request);
        let client_address =
            request.extensions().get::<ConnectInfo<SocketAddr>>().expect("an address").0.ip().to_string();
        (client_address, request.extensions().get::<PublicEndpoint>().cloned())
    }

    #[test]
    fn the_closest_untrusted_hop_is_the_client() {
        let check = |peer: &str, forwarded: &[&str], expected: &str| {
            let headers: Vec<_> = forwarded.iter().map(|text| (FORWARDED_FOR, *text)).collect();
            assert_eq!(resolve(&["10.0.0.0/8", "::1"], peer, &headers).0, expected, "{peer} {forwarded:?}");
        };
        check("10.1.1.1", &["192.0.2.7"], "192.0.2.7");
        check("::ffff:10.1.1.1", &["192.0.2.7"], "192.0.2.7");
        check("::1", &["2001:db8::7"], "2001:db8::7");
        check("10.1.1.1", &["198.51.100.1, 192.0.2.7, 10.2.2.2"], "192.0.2.7");
        check("10.1.1.1", &["198.51.100.1", "192.0.2.7", "10.2.2.2"], "192.0.2.7");
        check("10.1.1.1", &["10.3.3.3, 10.2.2.2"], "10.3.3.3");
        check("10.1.1.1", &["192.0.2.7:4711"], "192.0.2.7");
        check("10.1.1.1", &["[2001:db8::7]:4711"], "2001:db8::7");
        check("10.1.1.1", &["192.0.2.7, nonsense, 10.2.2.2"], "10.2.2.2");
        check("10.1.1.1", &["nonsense"], "10.1.1.1");
        check("10.1.1.1", &[], "10.1.1.1");
        // The headers of an untrusted peer are ignored.
        check("192.0.2.9", &["10.1.1.1"], "192.0.2.9");
        check("192.0.2.9", &["127.0.0.1"], "192.0.2.9");
    }

    #[test]
    fn scheme_and_host_count_from_trusted_proxies_only() {
        let headers = [("x-forwarded-proto", "https"), ("x-forwarded-host", "forge.example.org")];
        let endpoint = PublicEndpoint { secure: true, host: Some("forge.example.org".to_owned()) };
        assert_eq!(resolve(&["10.0.0.1"], "10.0.0.1", &headers), ("10.0.0.1".to_owned(), Some(endpoint)));
        assert_eq!(resolve(&["10.0.0.1"], "10.0.0.2", &headers), ("10.0.0.2".to_owned(), None));
        assert_eq!(resolve(&[], "127.0.0.1", &headers), ("127.0.0.1".to_owned(), None));
        let odd = [("x-forwarded-proto", "gopher"), ("x-forwarded-host", "a b<c>")];
        assert_eq!(resolve(&["10.0.0.1"], "10.0.0.1", &odd).1, Some(PublicEndpoint::default()));
    }

    #[test]
    fn the_forwarded_header_counts_only_without_the_x_forwarded_headers() {
        let standard = "for=203.0.113.9;proto=http, For=\"[2001:db8::7]:4711\";proto=https;host=forge.example.org";
        let (client_address, endpoint) = resolve(&["10.0.0.1"], "10.0.0.1", &[("forwarded", standard)]);
        assert_eq!(client_address, "2001:db8::7");
        assert_eq!(endpoint, Some(PublicEndpoint { secure: true, host: Some("forge.example.org".to_owned()) }));
        let both = [("forwarded", standard), ("x-forwarded-for", "192.0.2.7")];
        assert_eq!(
            resolve(&["10.0.0.1"], "10.0.0.1", &both),
            ("192.0.2.7".to_owned(), Some(PublicEndpoint::default()))
        );
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        assert!(proxies(&["192.0.2.0/24"]).trusts("192.0.2.200".parse().expect("an address")));
        assert!(proxies(&["fd00::/8"]).trusts("fd12::1".parse().expect("an address")));
        assert!(!proxies(&["192.0.2.1"]).trusts("192.0.2.2".parse().expect("an address")));
        let refusal = parse_proxy("nginx").expect_err("refused");
        assert_eq!(
            refusal.to_string(),
            "the trusted proxy nginx is neither an address nor a network such as 10.0.0.0/8 or fd00::/8"
        );
    }
}
