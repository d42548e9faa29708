//! The URL under which the client reached the server, for links in responses.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
pub(crate) use model::Site;

use crate::{App, proxies::PublicEndpoint};

impl FromRequestParts<App> for Site {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let site = |root: String| Self::new(root, app.ssh_port()).with_external_ssh(app.external_ssh().cloned());
        if let Some(url) = app.external_url() {
            return Ok(site(url.to_owned()));
        }
        let endpoint = parts.extensions.get::<PublicEndpoint>();
        let host_header = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = endpoint.and_then(|endpoint| endpoint.host.as_deref()).or_else(host_header);
        let host = host.filter(|host| is_host(host)).unwrap_or("localhost");
        let scheme = if endpoint.is_some_and(|endpoint| endpoint.secure) { "https" } else { "http" };
        Ok(site(format!("{scheme}://{host}")))
    }
}

/// Returns whether a `Host` header is safe to use in a link.
pub(crate) fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}
