//! The URL under which the client reached us, for links in answers.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{header, request::Parts},
};
pub(crate) use model::Site;

use crate::{App, proxies::Reached};

impl FromRequestParts<App> for Site {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let ssh_port = app.ssh_port();
        if let Some(url) = app.external_url() {
            return Ok(Self::new(url, ssh_port));
        }
        let reached = parts.extensions.get::<Reached>();
        let told = || parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let host = reached.and_then(|reached| reached.host.as_deref()).or_else(told);
        let host = host.filter(|host| is_host(host)).unwrap_or("localhost");
        let scheme = if reached.is_some_and(|reached| reached.secure) { "https" } else { "http" };
        Ok(Self::new(format!("{scheme}://{host}"), ssh_port))
    }
}

/// Whether a host header can go into a link.
pub(crate) fn is_host(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}
