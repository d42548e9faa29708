//! The way out: which hosts the service talks to on somebody's behalf.
//!
//! A name is looked up once, what it leads to is judged, and only that address is then talked to; so what a name leads to
//! a moment later does not matter.

use std::net::{IpAddr, ToSocketAddrs as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::addresses::is_public;
use url::Url;

/// Why somewhere cannot be talked to, in words for whoever named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Somewhere out there, as somebody named it: `http` or `https`, with its credentials kept apart.
#[derive(Clone)]
pub struct Destination {
    url: Url,
    credentials: Option<String>,
}

/// Somewhere that may be talked to, at this address and no other.
pub struct Pinned {
    /// The URL without credentials.
    pub url: String,
    /// The host as the URL names it, and the port.
    pub host: (String, u16),
    /// Where it is.
    pub address: IpAddr,
}

impl Destination {
    /// Reads a URL.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let invalid = || Refused("must be a valid URL".into());
        if text.len() > 2048 || text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(invalid());
        }
        let mut url = Url::parse(text).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused("must be a valid URL that begins with http:// or https://".into()));
        }
        // A query may hold a secret, and no repository is told from another by one.
        let plain = |host: &str| !host.is_empty() && !host.starts_with(['-', '+', '.']);
        if !url.host_str().is_some_and(plain) || url.query().is_some() {
            return Err(invalid());
        }
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decode(url.username()), url.password().map(decode));
        let credentials =
            (!user.is_empty() || password.is_some()).then(|| format!("{user}:{}", password.unwrap_or_default()));
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| invalid())?;
        url.set_fragment(None);
        Ok(Self { url, credentials })
    }

    /// The URL without credentials.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// User name and password with a colon between them, if there were any.
    pub fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// Looks the host up and judges what it leads to. Takes a while: the network is asked.
    pub fn pin(&self, allow_local: bool) -> Result<Pinned, Refused> {
        let unknown = || Refused("names a host that cannot be found".into());
        let host = self.url.host_str().ok_or_else(unknown)?;
        let port = self.url.port_or_known_default().ok_or_else(unknown)?;
        let found = (host.trim_matches(['[', ']']), port).to_socket_addrs().map_err(|_| unknown())?;
        let addresses: Vec<IpAddr> = found.map(|found| found.ip()).collect();
        // One bad address is enough: whoever answers such a name means no good.
        if !allow_local && !addresses.iter().copied().all(is_public) {
            return Err(Refused("leads to an address that this server does not talk to".into()));
        }
        let address = addresses.iter().copied().find(IpAddr::is_ipv4).or_else(|| addresses.first().copied());
        let address = address.ok_or_else(unknown)?;
        Ok(Pinned { url: self.url.to_string(), host: (host.to_owned(), port), address })
    }

    /// Whether the address stands in the URL itself and is none that is talked to; no name has to be looked up.
    pub fn is_plainly_closed(&self, allow_local: bool) -> bool {
        let address = match self.url.host() {
            Some(url::Host::Ipv4(address)) => IpAddr::V4(address),
            Some(url::Host::Ipv6(address)) => IpAddr::V6(address),
            Some(url::Host::Domain(name)) => return !allow_local && is_local_name(name),
            None => return true,
        };
        !allow_local && !is_public(address)
    }
}

fn is_local_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// The header that shows credentials.
pub fn basic(credentials: &str) -> String {
    format!("Basic {}", STANDARD.encode(credentials))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lesson_10_what_leads_inside_is_refused_however_it_is_spelled() {
        for url in [
            "http://127.0.0.1/x",
            "http://2130706433/x",
            "http://0x7f.1/x",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://169.254.169.254/latest",
            "http://10.0.0.1:8080/",
            "http://localhost/",
            "http://LOCALHOST./x",
            "http://a.localhost/",
            "http://[fe80::1]/",
            "http://100.64.0.1/",
        ] {
            let destination = Destination::parse(url).expect(url);
            assert!(destination.is_plainly_closed(false), "{url}");
            assert!(!destination.is_plainly_closed(true), "{url}");
            assert!(destination.pin(false).is_err(), "{url}");
        }
        assert!(!Destination::parse("https://example.com/a.git").expect("a URL").is_plainly_closed(false));
    }

    #[test]
    fn what_is_no_address_on_the_web_is_refused() {
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
            "http://example.com/x?token=secret",
            "http://example.com/\nx",
            "javascript:1",
            "ftp://example.com/",
            "http:\\\\a\\b",
        ] {
            assert!(Destination::parse(url).is_err(), "{url:?}");
        }
    }

    #[test]
    fn lesson_24_credentials_are_kept_apart() {
        let destination = Destination::parse("https://us%40er:p%3Aw@example.com:8443/a.git#x").expect("a URL");
        assert_eq!(destination.url(), "https://example.com:8443/a.git");
        assert_eq!(destination.credentials(), Some("us@er:p:w"));
        assert_eq!(Destination::parse("https://example.com/a").expect("a URL").credentials(), None);
        assert_eq!(basic("user:password"), "Basic dXNlcjpwYXNzd29yZA==");
    }
}
