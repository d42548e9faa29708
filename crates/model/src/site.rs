//! The URL under which the service is reached, for links in answers and in what hooks tell.

use xxhash_rust::xxh3::xxh3_64;

/// The root of all absolute URLs, without a slash at its end, and the port for SSH where that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    root: String,
    ssh_port: Option<u16>,
}

impl Site {
    /// A site with this root.
    pub fn new(root: impl Into<String>, ssh_port: Option<u16>) -> Self {
        Self { root: root.into(), ssh_port }
    }

    /// The root, without a slash at its end.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The page of a user, a group or a project.
    pub fn page(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// A picture for somebody who has uploaded none.
    pub fn identicon(&self, username: &str) -> String {
        format!("{}/-/identicon/{}.svg", self.root, seed(username))
    }

    /// The page of a group.
    pub fn group_page(&self, path: &str) -> String {
        format!("{}/groups/{path}", self.root)
    }

    /// Where a repository is reached over SSH; empty if SSH is not served.
    pub fn ssh_url(&self, full_path: &str) -> String {
        let Some(ssh_port) = self.ssh_port else { return String::new() };
        let authority = self.root.split_once("://").map_or(self.root.as_str(), |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        // A port belongs to HTTP; brackets belong to an address of version 6.
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

/// Sixteen hex digits that stand for a name.
fn seed(name: &str) -> String {
    format!("{:016x}", xxh3_64(name.to_lowercase().as_bytes()))
}
