//! The public URL of the server, for links in responses and webhook payloads.

use std::{fmt, sync::Arc};

use xxhash_rust::xxh3::xxh3_64;

/// The port of SSH, which URLs in the form of scp imply.
pub const DEFAULT_SSH_PORT: u16 = 22;

/// The root of all absolute URLs, and the SSH port if SSH is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    root: String,
    ssh_port: Option<u16>,
    external_ssh: Option<SshEndpoint>,
}

/// The host and port at which clients reach SSH, if they differ from the host of the site and the port of the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshEndpoint {
    /// The host; an IPv6 address is in brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
}

impl fmt::Display for SshEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if *port == DEFAULT_SSH_PORT { write!(f, "ssh://{host}") } else { write!(f, "ssh://{host}:{port}") }
    }
}

impl Site {
    /// Creates a site; `root` has no trailing slash.
    pub fn new(root: impl Into<String>, ssh_port: Option<u16>) -> Self {
        Self { root: root.into(), ssh_port, external_ssh: None }
    }

    /// Sets where clients reach SSH; `None` leaves the host of the site and the port of the listener.
    #[must_use]
    pub fn with_external_ssh(self, external_ssh: Option<SshEndpoint>) -> Self {
        Self { external_ssh, ..self }
    }

    /// Returns the root URL, without a trailing slash.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Returns the URL of the page of a user or a project.
    pub fn page(&self, path: &str) -> String {
        [self.root.as_str(), "/", path].concat()
    }

    /// Returns the URL of a path, which begins with a slash.
    pub fn url(&self, path: &str) -> String {
        [self.root.as_str(), path].concat()
    }

    /// Returns the URL of the page of a group.
    pub fn group_page(&self, path: &str) -> String {
        [self.root.as_str(), "/groups/", path].concat()
    }

    /// Returns the SSH URL of a repository; empty if SSH is not served.
    pub fn ssh_url(&self, full_path: &str) -> String {
        let (host, port) = match (&self.external_ssh, self.ssh_port) {
            (Some(SshEndpoint { host, port }), _) => (&**host, *port),
            (None, Some(port)) => (self.host(), port),
            (None, None) => return String::new(),
        };
        if port == DEFAULT_SSH_PORT {
            format!("git@{host}:{full_path}.git")
        } else {
            format!("ssh://git@{host}:{port}/{full_path}.git")
        }
    }

    /// Returns the host of the root URL.
    fn host(&self) -> &str {
        let authority = self.root.split_once("://").map_or(self.root.as_str(), |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        // The port is that of HTTP; brackets belong to an IPv6 address and stay.
        match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        }
    }
}

/// Returns the path of the generated avatar of a user.
pub fn identicon_path(username: &str) -> String {
    ["/-/identicon/", &name_hash(username), ".svg"].concat()
}

/// Returns a hash of a name as sixteen hex digits.
fn name_hash(name: &str) -> String {
    format!("{:016x}", xxh3_64(name.to_lowercase().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_urls_have_the_host_of_the_site_unless_clients_reach_ssh_elsewhere() {
        let check = |root: &str, ssh_port: Option<u16>, external_ssh: Option<(&str, u16)>, expected: &str| {
            let external_ssh = external_ssh.map(|(host, port)| SshEndpoint { host: host.into(), port });
            let site = Site::new(root, ssh_port).with_external_ssh(external_ssh);
            assert_eq!(site.ssh_url("ann/rocket"), expected);
        };
        check("https://code.example.com", Some(22), None, "git@code.example.com:ann/rocket.git");
        check("https://code.example.com:8443/sub", Some(22), None, "git@code.example.com:ann/rocket.git");
        check("http://[2001:db8::1]:80", Some(2222), None, "ssh://git@[2001:db8::1]:2222/ann/rocket.git");
        check("https://code.example.com", None, None, "");
        let balancer = Some(("git.example.com", 22));
        check("https://code.example.com", Some(2222), balancer, "git@git.example.com:ann/rocket.git");
        check("https://code.example.com", None, balancer, "git@git.example.com:ann/rocket.git");
        let other_port = Some(("[2001:db8::2]", 2022));
        check("https://code.example.com", Some(22), other_port, "ssh://git@[2001:db8::2]:2022/ann/rocket.git");
    }
}
