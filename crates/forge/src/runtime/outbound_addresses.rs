//! Destinations that the server connects to on behalf of users.
//!
//! A host name is resolved once, all its addresses are checked, and only a checked address is connected to; a later
//! change of the DNS entry has no effect.

use std::net::{IpAddr, ToSocketAddrs as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::{addresses::may_connect_to, hooks::MAX_URL_LENGTH};
use url::Url;

/// The maximum length of the URL of a repository in bytes.
const MAX_REPOSITORY_URL_LENGTH: usize = 2048;

/// The request header with the recursion depth: the number of webhooks in the chain of requests.
pub const HOOK_DEPTH_HEADER: &str = "x-gable-hook-depth";

/// Why a URL cannot be used as a destination; the text is to be appended to "the URL".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It is not a valid URL.
    #[error("must be a valid URL")]
    InvalidUrl,
    /// Its scheme is neither `http` nor `https`.
    #[error("must be a valid URL that begins with http:// or https://")]
    UnsupportedScheme,
    /// It is longer than the URL of a hook may be.
    #[error("is too long (maximum is {MAX_URL_LENGTH} characters)")]
    TooLong,
    /// Its host cannot be resolved.
    #[error("names a host that cannot be found")]
    UnknownHost,
    /// Its host has an address that the server may not connect to.
    #[error("leads to an address that this server does not connect to")]
    ForbiddenAddress,
}

/// An `http` or `https` URL given by a user, with its credentials split off.
#[derive(Clone)]
pub struct Destination {
    url: Url,
    credentials: Option<String>,
    masked: String,
}

/// A destination with the address to connect to.
pub struct ResolvedDestination {
    /// The URL without credentials.
    pub url: String,
    /// Host and port as in the URL.
    pub host: (String, u16),
    /// The checked address.
    pub address: IpAddr,
}

impl Destination {
    /// Parses the URL of a repository to import.
    pub fn for_import(text: &str) -> Result<Self, DestinationError> {
        if text.len() > MAX_REPOSITORY_URL_LENGTH {
            return Err(DestinationError::InvalidUrl);
        }
        let destination = Self::parse_http(text)?;
        // A query may hold a secret, and repositories do not need one.
        if destination.url.query().is_some() { Err(DestinationError::InvalidUrl) } else { Ok(destination) }
    }

    /// Parses the URL of a hook. Surrounding whitespace is ignored.
    pub fn for_hook(text: &str) -> Result<Self, DestinationError> {
        let text = text.trim();
        if text.chars().count() > MAX_URL_LENGTH {
            return Err(DestinationError::TooLong);
        }
        Self::parse_http(text)
    }

    fn parse_http(text: &str) -> Result<Self, DestinationError> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(DestinationError::InvalidUrl);
        }
        let mut url = Url::parse(text).map_err(|_| DestinationError::InvalidUrl)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(DestinationError::UnsupportedScheme);
        }
        // Without an authority the parser would take the host from the path.
        let (scheme, rest) = text.split_once("://").ok_or(DestinationError::InvalidUrl)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let is_valid = |host: &str| !host.is_empty() && !host.starts_with(['-', '+', '.']);
        if authority.is_empty() || !url.host_str().is_some_and(is_valid) {
            return Err(DestinationError::InvalidUrl);
        }
        let masked = match authority.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://*****:*****@{host}{path}"),
            None => text.to_owned(),
        };
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decode(url.username()), url.password().map(decode));
        let credentials =
            (!user.is_empty() || password.is_some()).then(|| format!("{user}:{}", password.unwrap_or_default()));
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| DestinationError::InvalidUrl)?;
        url.set_fragment(None);
        Ok(Self { url, credentials, masked })
    }

    /// Returns the URL without credentials and fragment.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the credentials as `user:password`, if any.
    pub fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// Returns the URL as it was given, with credentials masked.
    pub fn masked(&self) -> &str {
        &self.masked
    }

    /// Returns the normalized `host:port`.
    pub fn receiver(&self) -> String {
        let host = self.url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        format!("{host}:{}", self.url.port_or_known_default().unwrap_or_default())
    }

    /// Resolves the host and checks its addresses. Blocks on the network.
    pub fn resolve(&self, allow_local: bool) -> Result<ResolvedDestination, DestinationError> {
        let host = self.url.host_str().ok_or(DestinationError::UnknownHost)?;
        let port = self.url.port_or_known_default().ok_or(DestinationError::UnknownHost)?;
        let found = (host.trim_matches(['[', ']']), port).to_socket_addrs();
        let found = found.map_err(|_| DestinationError::UnknownHost)?;
        let addresses: Vec<IpAddr> = found.map(|found| found.ip()).collect();
        // A single forbidden address is enough to refuse a name: legitimate names do not mix them.
        if !addresses.iter().all(|address| may_connect_to(*address, allow_local)) {
            return Err(DestinationError::ForbiddenAddress);
        }
        let address = addresses.iter().copied().find(IpAddr::is_ipv4).or_else(|| addresses.first().copied());
        let address = address.ok_or(DestinationError::UnknownHost)?;
        Ok(ResolvedDestination { url: self.url.to_string(), host: (host.to_owned(), port), address })
    }

    /// Returns whether the host is forbidden without resolving it: an IP address, or a name such as `localhost`.
    pub fn has_forbidden_host(&self, allow_local: bool) -> bool {
        let address = match self.url.host() {
            Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
            Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
            Some(url::Host::Domain(name)) => return !allow_local && is_local_name(name),
            None => return true,
        };
        !may_connect_to(address, allow_local)
    }
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Returns the value of an `Authorization` header with the scheme `Basic`.
pub fn basic_authorization(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_addresses_are_refused_in_every_spelling() {
        let check = |url: &str, always_forbidden: bool| {
            for destination in [Destination::for_import(url), Destination::for_hook(url)] {
                let destination = destination.expect(url);
                assert!(destination.has_forbidden_host(false), "{url}");
                assert_eq!(destination.has_forbidden_host(true), always_forbidden, "{url}");
                assert!(destination.resolve(false).is_err(), "{url}");
                assert!(!always_forbidden || destination.resolve(true).is_err(), "{url}");
            }
        };
        for url in [
            "http://127.0.0.1/x",
            "http://2130706433/x",
            "http://0x7f.1/x",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://%31%32%37.0.0.1/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://10.0.0.1:8080/",
            "http://localhost/",
            "http://LOCALHOST./x",
            "http://a.localhost/",
            "http://100.64.0.1/",
        ] {
            check(url, false);
        }
        for url in [
            "http://0/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://169.254.169.254/latest",
            "http://2852039166/latest",
            "http://0xa9fea9fe/latest",
            "http://[::ffff:169.254.169.254]/latest",
            "http://[64:ff9b::a9fe:a9fe]/latest",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/latest",
            "http://100.100.100.200/latest",
            "http://192.0.0.192/latest",
            "http://224.0.0.1/",
            "http://255.255.255.255/",
            "http://[ff02::1]/",
        ] {
            check(url, true);
        }
        assert!(!Destination::for_import("https://example.com/a.git").expect("a URL").has_forbidden_host(false));
    }

    #[test]
    fn invalid_urls_are_refused() {
        for url in [
            "",
            "x",
            "file:///etc/passwd",
            "ssh://git@example.com/x",
            "git://example.com/x",
            "http://",
            "http://a b/",
            "ext::sh -c id",
            "--upload-pack=id",
            "http://example.com/\nx",
            "javascript:1",
            "ftp://example.com/",
            "http:\\\\a\\b",
            "http:example.com",
            "http:/example.com",
            "http:///example.com",
            "http://?x",
            "http://#x",
            "http://:80/",
            "http://user@/",
            "http://user:password@:80/",
            "http://-x/",
            "http://exa\u{0}mple.com/",
            "http://example.com/\u{7f}",
            "http://example.com/a b",
            "http://example.com/a\u{a0}b",
            "http://example.com\\@127.0.0.1/",
            "http://example.com:port/",
            "http://example.com:65536/",
            "http://[::1/",
            "http://[fe80::1%25eth0]/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
        ] {
            assert!(Destination::for_import(url).is_err(), "{url:?}");
            assert!(Destination::for_hook(url).is_err(), "{url:?}");
        }
        assert!(Destination::for_import("http://example.com/x?token=secret").is_err());
    }

    #[test]
    fn credentials_are_split_off_the_url() {
        let destination = Destination::for_import("https://us%40er:p%3Aw@example.com:8443/a.git#x").expect("a URL");
        assert_eq!(destination.url(), "https://example.com:8443/a.git");
        assert_eq!(destination.credentials(), Some("us@er:p:w"));
        assert_eq!(Destination::for_import("https://example.com/a").expect("a URL").credentials(), None);
        assert_eq!(basic_authorization("user:password"), "Basic dXNlcjpwYXNzd29yZA==");
    }

    #[test]
    fn the_url_of_a_hook_keeps_its_query_and_loses_its_fragment() {
        let destination = Destination::for_hook(" https://example.com/a?b=c%20d&e#f\n").expect("a URL");
        assert_eq!(destination.url(), "https://example.com/a?b=c%20d&e");
        assert_eq!(destination.credentials(), None);
        let of_length = |length: usize| format!("http://example.com/{}", "é".repeat(length - 19));
        assert!(Destination::for_hook(&of_length(2000)).is_ok());
        let refused = Destination::for_hook(&of_length(2001)).map(|_| ());
        assert_eq!(refused, Err(DestinationError::TooLong));
        assert_eq!(DestinationError::TooLong.to_string(), "is too long (maximum is 2000 characters)");
    }

    #[test]
    fn the_url_of_a_hook_is_shown_without_credentials() {
        let check = |given: &str, credentials: Option<&str>, shown: &str| {
            let destination = Destination::for_hook(given).expect(given);
            assert_eq!(destination.credentials(), credentials, "{given}");
            assert_eq!(destination.masked(), shown, "{given}");
            assert!(!destination.url().contains('@') || credentials.is_none(), "{given}");
        };
        check("http://example.com", None, "http://example.com");
        check("HTTP://Example.com:80/a?b@c#d", None, "HTTP://Example.com:80/a?b@c#d");
        check("http://example.com/@a:b@", None, "http://example.com/@a:b@");
        check("https://user:pw@example.com", Some("user:pw"), "https://*****:*****@example.com");
        check("https://user@example.com/a?b#c", Some("user:"), "https://*****:*****@example.com/a?b#c");
        check("https://:pw@example.com:1/", Some(":pw"), "https://*****:*****@example.com:1/");
        check("https://a%40b:p%3Aw%2F@example.com/", Some("a@b:p:w/"), "https://*****:*****@example.com/");
        check("https://a@b:c@d@example.com/", Some("a@b:c@d"), "https://*****:*****@example.com/");
    }

    #[test]
    fn equal_receivers_have_the_same_host_and_port() {
        let check = |url: &str, receiver: &str| {
            assert_eq!(Destination::for_hook(url).expect(url).receiver(), receiver, "{url}");
        };
        check("http://example.com", "example.com:80");
        check("https://u:p@EXAMPLE.com./a?b", "example.com:443");
        check("https://example.com:8443/", "example.com:8443");
        check("http://0x7f.1:8080/", "127.0.0.1:8080");
        check("http://[0:0::1]/", "[::1]:80");
        check("http://bücher.example/", "xn--bcher-kva.example:80");
    }
}
