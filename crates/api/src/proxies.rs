//! Requests that come through a proxy: what it says of the client counts if the operator trusts it, and only then.

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

/// How a client reached us, where the request alone does not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Over TLS, to us or to a proxy.
    pub secure: bool,
    /// The host that it asked the proxy for.
    pub host: Option<String>,
}

/// The proxies whose word counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = IpNet>>(networks: T) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Reads one proxy: an address, or a network such as `10.0.0.0/8`.
pub fn parse_proxy(text: &str) -> Result<IpNet, String> {
    let text = text.trim();
    IpNet::from_str(text)
        .or_else(|_| IpAddr::from_str(text).map(|address| IpNet::from(address.to_canonical())))
        .map_err(|_| {
            format!("the trusted proxy {text} is neither an address nor a network such as 10.0.0.0/8 or fd00::/8")
        })
}

impl TrustedProxies {
    /// Whether this is one of them.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Puts the address of the client in the place of the proxy's, and notes how the client reached the proxy.
    pub(crate) fn look_behind(&self, request: &mut Request) {
        let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() else { return };
        if !self.trusts(peer.ip()) {
            if request.headers().contains_key(FORWARDED_FOR) {
                tell_once(peer.ip());
            }
            return;
        }
        let told = Told::by(request.headers());
        let client = self.client(&told.hops).unwrap_or(peer.ip());
        let secure = request.extensions().get::<Reached>().is_some_and(|reached| reached.secure);
        let reached = Reached { secure: told.secure.unwrap_or(secure), host: told.host };
        let extensions = request.extensions_mut();
        extensions.insert(ConnectInfo(SocketAddr::new(client, 0)));
        extensions.insert(reached);
    }

    /// The hop nearest to us that nobody vouches for. What stands before it may be made up by whoever that is.
    fn client(&self, hops: &[Option<IpAddr>]) -> Option<IpAddr> {
        let mut nearest = None;
        for hop in hops.iter().rev() {
            // What is no address was not written by a proxy of ours; the one who sent it is the last known hop.
            let Some(hop) = hop else { break };
            nearest = Some(*hop);
            if !self.trusts(*hop) {
                break;
            }
        }
        nearest
    }
}

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FORWARDED_HOST: &str = "x-forwarded-host";

/// What a proxy tells.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    hops: Vec<Option<IpAddr>>,
    secure: Option<bool>,
    host: Option<String>,
}

impl Told {
    /// `Forwarded` is heard only where none of the older headers is there: a proxy that writes those may well pass on
    /// a `Forwarded` that the client has made up.
    fn by(headers: &HeaderMap) -> Self {
        let older = [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST];
        if older.iter().any(|name| headers.contains_key(*name)) {
            return Self {
                hops: items(headers, FORWARDED_FOR).map(parse_hop).collect(),
                secure: items(headers, FORWARDED_PROTO).last().and_then(is_secure),
                host: items(headers, FORWARDED_HOST).last().filter(|host| is_host(host)).map(ToOwned::to_owned),
            };
        }
        let mut told = Self::default();
        for element in items(headers, header::FORWARDED.as_str()) {
            let mut hop = None;
            for (name, value) in element.split(';').filter_map(|pair| pair.split_once('=')) {
                let value = value.trim().trim_matches('"');
                match name.trim().to_ascii_lowercase().as_str() {
                    "for" => hop = parse_hop(value),
                    "proto" => told.secure = is_secure(value).or(told.secure),
                    "host" if is_host(value) => told.host = Some(value.to_owned()),
                    _ => {}
                }
            }
            told.hops.push(hop);
        }
        told
    }
}

/// The items of a list that may stand in several headers.
fn items<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
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

/// An address, perhaps with a port; one of IPv6 may stand in brackets.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(text, |(address, _)| address);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()));
    address.map(|address| address.to_canonical())
}

/// Everybody behind a proxy that is not trusted counts as one, which an operator should hear of.
fn tell_once(peer: IpAddr) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let near = match peer.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local(),
    };
    if near && !TOLD.swap(true, Ordering::Relaxed) {
        warn!(
            proxy = %peer,
            "requests come through a proxy that trusted-proxies does not name: all its clients count as one address"
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

    fn behind(trusted: &[&str], peer: &str, headers: &[(&str, &str)]) -> (String, Option<Reached>) {
        let mut request = Request::new(Body::empty());
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a name");
            request.headers_mut().append(name, HeaderValue::from_str(value).expect("a value"));
        }
        let peer: IpAddr = peer.parse().expect("an address");
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer, 4321)));
        proxies(trusted).look_behind(&mut request);
        let client = request.extensions().get::<ConnectInfo<SocketAddr>>().expect("an address").0.ip().to_string();
        (client, request.extensions().get::<Reached>().cloned())
    }

    #[test]
    fn the_nearest_hop_that_nobody_vouches_for_is_the_client() {
        let check = |peer: &str, told: &[&str], expected: &str| {
            let headers: Vec<_> = told.iter().map(|text| (FORWARDED_FOR, *text)).collect();
            assert_eq!(behind(&["10.0.0.0/8", "::1"], peer, &headers).0, expected, "{peer} {told:?}");
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
        // A stranger may say what they like.
        check("192.0.2.9", &["10.1.1.1"], "192.0.2.9");
        check("192.0.2.9", &["127.0.0.1"], "192.0.2.9");
    }

    #[test]
    fn scheme_and_host_count_from_trusted_proxies_only() {
        let headers = [("x-forwarded-proto", "https"), ("x-forwarded-host", "forge.example.org")];
        let reached = Reached { secure: true, host: Some("forge.example.org".to_owned()) };
        assert_eq!(behind(&["10.0.0.1"], "10.0.0.1", &headers), ("10.0.0.1".to_owned(), Some(reached)));
        assert_eq!(behind(&["10.0.0.1"], "10.0.0.2", &headers), ("10.0.0.2".to_owned(), None));
        assert_eq!(behind(&[], "127.0.0.1", &headers), ("127.0.0.1".to_owned(), None));
        let odd = [("x-forwarded-proto", "gopher"), ("x-forwarded-host", "a b<c>")];
        assert_eq!(behind(&["10.0.0.1"], "10.0.0.1", &odd).1, Some(Reached::default()));
    }

    #[test]
    fn the_standard_header_is_heard_where_the_older_ones_are_not() {
        let standard = "for=203.0.113.9;proto=http, For=\"[2001:db8::7]:4711\";proto=https;host=forge.example.org";
        let (client, reached) = behind(&["10.0.0.1"], "10.0.0.1", &[("forwarded", standard)]);
        assert_eq!(client, "2001:db8::7");
        assert_eq!(reached, Some(Reached { secure: true, host: Some("forge.example.org".to_owned()) }));
        let both = [("forwarded", standard), ("x-forwarded-for", "192.0.2.7")];
        assert_eq!(behind(&["10.0.0.1"], "10.0.0.1", &both), ("192.0.2.7".to_owned(), Some(Reached::default())));
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        assert!(proxies(&["192.0.2.0/24"]).trusts("192.0.2.200".parse().expect("an address")));
        assert!(proxies(&["fd00::/8"]).trusts("fd12::1".parse().expect("an address")));
        assert!(!proxies(&["192.0.2.1"]).trusts("192.0.2.2".parse().expect("an address")));
        let refusal = parse_proxy("nginx").expect_err("refused");
        assert_eq!(
            refusal,
            "the trusted proxy nginx is neither an address nor a network such as 10.0.0.0/8 or fd00::/8"
        );
    }
}
