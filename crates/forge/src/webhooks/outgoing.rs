//! The way out: which hosts the service talks to on somebody's behalf.
//!
//! A name is looked up once, what it leads to is judged, and only that address is then talked to; so what a name leads to
//! a moment later does not matter.

use std::net::{IpAddr, ToSocketAddrs as _};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use model::{addresses::is_talked_to, hooks::LONGEST_URL};
use url::Url;

/// What is wrong with a URL that leads to somewhere that is not talked to.
pub const CLOSED: &str = "leads to an address that this server does not talk to";
/// What is wrong with a URL whose host is nowhere.
pub const UNKNOWN: &str = "names a host that cannot be found";

/// The header that says how many hooks have led to a request, one by the other.
pub const DEPTH: &str = "x-gable-hook-depth";

/// Why somewhere cannot be talked to, in words for whoever named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

/// Somewhere out there, as somebody named it: `http` or `https`, with its credentials kept apart.
#[derive(Clone)]
pub struct Destination {
    url: Url,
    credentials: Option<String>,
    masked: String,
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
    /// Reads the URL of a repository.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        if text.len() > 2048 {
            return Err(invalid());
        }
        let destination = Self::read(text)?;
        // A query may hold a secret, and no repository is told from another by one.
        if destination.url.query().is_some() { Err(invalid()) } else { Ok(destination) }
    }

    /// Reads the URL of a hook. Spaces around it do not count.
    pub fn for_hook(text: &str) -> Result<Self, Refused> {
        let text = text.trim();
        if text.chars().count() > LONGEST_URL {
            return Err(Refused(format!("is too long (maximum is {LONGEST_URL} characters)")));
        }
        Self::read(text)
    }

    fn read(text: &str) -> Result<Self, Refused> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(invalid());
        }
        let mut url = Url::parse(text).map_err(|_| invalid())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused("must be a valid URL that begins with http:// or https://".into()));
        }
        // The parser would look for a host in the path if there is none before it.
        let (scheme, rest) = text.split_once("://").ok_or_else(invalid)?;
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let plain = |host: &str| !host.is_empty() && !host.starts_with(['-', '+', '.']);
        if authority.is_empty() || !url.host_str().is_some_and(plain) {
            return Err(invalid());
        }
        let masked = match authority.rsplit_once('@') {
            Some((_, host)) => format!("{scheme}://*****:*****@{host}{after}"),
            None => text.to_owned(),
        };
        let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decode(url.username()), url.password().map(decode));
        let credentials =
            (!user.is_empty() || password.is_some()).then(|| format!("{user}:{}", password.unwrap_or_default()));
        url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| invalid())?;
        url.set_fragment(None);
        Ok(Self { url, credentials, masked })
    }

    /// The URL without credentials.
    pub fn url(&self) -> &str {
        self.url.as_str()
    }

    /// User name and password with a colon between them, if there were any.
    pub fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }

    /// The URL as it was given, with stars in place of credentials, for everybody to see.
    pub fn masked(&self) -> &str {
        &self.masked
    }

    /// Who is talked to, as `host:port`: the same for every way to write it.
    pub fn receiver(&self) -> String {
        let host = self.url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
        format!("{host}:{}", self.url.port_or_known_default().unwrap_or_default())
    }

    /// Looks the host up and judges what it leads to. Takes a while: the network is asked.
    pub fn pin(&self, allow_local: bool) -> Result<Pinned, Refused> {
        let unknown = || Refused(UNKNOWN.into());
        let host = self.url.host_str().ok_or_else(unknown)?;
        let port = self.url.port_or_known_default().ok_or_else(unknown)?;
        let found = (host.trim_matches(['[', ']']), port).to_socket_addrs().map_err(|_| unknown())?;
        let addresses: Vec<IpAddr> = found.map(|found| found.ip()).collect();
        // One bad address is enough: whoever answers such a name means no good.
        if !addresses.iter().all(|address| is_talked_to(*address, allow_local)) {
            return Err(Refused(CLOSED.into()));
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
        !is_talked_to(address, allow_local)
    }
}

fn invalid() -> Refused {
    Refused("must be a valid URL".into())
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
        let check = |url: &str, closed_to_all: bool| {
            for destination in [Destination::parse(url), Destination::for_hook(url)] {
                let destination = destination.expect(url);
                assert!(destination.is_plainly_closed(false), "{url}");
                assert_eq!(destination.is_plainly_closed(true), closed_to_all, "{url}");
                assert!(destination.pin(false).is_err(), "{url}");
                assert!(!closed_to_all || destination.pin(true).is_err(), "{url}");
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
            assert!(Destination::parse(url).is_err(), "{url:?}");
            assert!(Destination::for_hook(url).is_err(), "{url:?}");
        }
        assert!(Destination::parse("http://example.com/x?token=secret").is_err());
    }

    #[test]
    fn lesson_24_credentials_are_kept_apart() {
        let destination = Destination::parse("https://us%40er:p%3Aw@example.com:8443/a.git#x").expect("a URL");
        assert_eq!(destination.url(), "https://example.com:8443/a.git");
        assert_eq!(destination.credentials(), Some("us@er:p:w"));
        assert_eq!(Destination::parse("https://example.com/a").expect("a URL").credentials(), None);
        assert_eq!(basic("user:password"), "Basic dXNlcjpwYXNzd29yZA==");
    }

    #[test]
    fn the_url_of_a_hook_keeps_its_query_and_loses_its_fragment() {
        let destination = Destination::for_hook(" https://example.com/a?b=c%20d&e#f\n").expect("a URL");
        assert_eq!(destination.url(), "https://example.com/a?b=c%20d&e");
        assert_eq!(destination.credentials(), None);
        let of_length = |length: usize| format!("http://example.com/{}", "é".repeat(length - 19));
        assert!(Destination::for_hook(&of_length(2000)).is_ok());
        let refused = Destination::for_hook(&of_length(2001)).map(|_| ());
        assert_eq!(refused, Err(Refused("is too long (maximum is 2000 characters)".into())));
    }

    #[test]
    fn lesson_24_the_url_of_a_hook_is_shown_without_credentials() {
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
    fn a_receiver_is_the_same_however_it_is_written() {
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
