//! The public URL of the server, for links in responses and webhook payloads.

use xxhash_rust::xxh3::xxh3_64;

/// The root of all absolute URLs, and the SSH port if SSH is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    root: String,
    ssh_port: Option<u16>,
}

impl Site {
    /// Creates a site; `root` has no trailing slash.
    pub fn new(root: impl Into<String>, ssh_port: Option<u16>) -> Self {
        Self { root: root.into(), ssh_port }
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
        let Some(ssh_port) = self.ssh_port else { return String::new() };
        let authority = self.root.split_once("://").map_or(self.root.as_str(), |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        // The port is that of HTTP; brackets belong to an IPv6 address and stay.
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        match ssh_port {
            22 => format!("git@{host}:{full_path}.git"),
            port => format!("ssh://git@{host}:{port}/{full_path}.git"),
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
