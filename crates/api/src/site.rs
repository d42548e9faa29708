//! The URL under which the client reached us, for links in answers.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::App;

/// The root of all absolute URLs, without a slash at its end.
#[derive(Clone)]
pub(crate) struct Site {
    root: String,
    ssh_port: Option<u16>,
}

impl Site {
    /// The page of a user or group.
    pub(crate) fn page(&self, path: &str) -> String {
        format!("{}/{path}", self.root)
    }

    /// A picture for somebody who has uploaded none.
    pub(crate) fn identicon(&self, username: &str) -> String {
        format!("{}/-/identicon/{}.svg", self.root, seed(username))
    }

    /// The page of a group.
    pub(crate) fn group_page(&self, path: &str) -> String {
        format!("{}/groups/{path}", self.root)
    }

    /// Where a repository is reached over SSH.
    pub(crate) fn ssh_url(&self, full_path: &str) -> String {
        let authority = self.root.split_once("://").map_or(self.root.as_str(), |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        // A port belongs to HTTP; brackets belong to an address of version 6.
        let host = match authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => authority,
        };
        match self.ssh_port {
            None | Some(22) => format!("git@{host}:{full_path}.git"),
            Some(port) => format!("ssh://git@{host}:{port}/{full_path}.git"),
        }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }
}

impl FromRequestParts<App> for Site {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let ssh_port = app.ssh_port();
        if let Some(url) = app.external_url() {
            return Ok(Self { root: url.to_owned(), ssh_port });
        }
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = host.filter(|host| is_host(host)).unwrap_or("localhost");
        Ok(Self { root: format!("http://{host}"), ssh_port })
    }
}

/// Whether a host header can go into a link.
fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}

/// Sixteen hex digits that stand for a name.
fn seed(name: &str) -> String {
    format!("{:016x}", xxh3_64(name.to_lowercase().as_bytes()))
}
