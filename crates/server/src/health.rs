//! `gable health`: queries the readiness of a server, so that a container needs no other program for that.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, anyhow, bail};
use axum::{body::Bytes, http::Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;
use tls::Roots;

use crate::{
    commands::Health,
    config,
    exit::{CommandResult, Failure, print_line},
    serve,
};

/// The maximum size of a response.
const MAX_RESPONSE_SIZE: usize = 64 << 10;

/// Prints `ready`, or returns why the server is not.
pub(crate) fn run(health: Health) -> CommandResult {
    let url = match health.url {
        Some(url) if !url.is_empty() => url,
        _ => {
            let config = config::load(health.address)?;
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", serve::loopback_if_unspecified(config.listen))
        }
    };
    let uri = readiness_uri(&url).map_err(Failure::Usage)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let result =
        runtime.block_on(async { tokio::time::timeout(health.within.duration(), query_readiness(&url, uri)).await });
    let response = result.map_err(|_| anyhow!("no response from {url} within {}", health.within))??;
    print_line(&response);
    Ok(())
}

/// Returns the readiness report of the server, or an error if it is not ready.
async fn query_readiness(url: &str, uri: Uri) -> Result<String> {
    let https = HttpsConnectorBuilder::new().with_tls_config(tls(&uri)?).https_or_http().enable_http1().build();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(https);
    let response = client.get(uri).await.map_err(|error| {
        let mut reason: &dyn std::error::Error = &error;
        while let Some(source) = reason.source() {
            reason = source;
        }
        anyhow!("cannot reach {url}: {reason}; check that the server is running, or choose another address with --url")
    })?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_SIZE).collect().await;
    let body = body.map_err(|error| anyhow!("cannot read the response of {url}: {error}"))?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    match (status.as_u16(), text.trim()) {
        (200, text) => Ok(text.to_owned()),
        (503, text) => Err(anyhow!("{url} is not ready: {text}")),
        (status, _) => Err(anyhow!("{url} responded with status {status}; is it a gable server?")),
    }
}

/// Returns the URI of the readiness check.
fn readiness_uri(url: &str) -> Result<Uri> {
    // The URL is not repeated: it may contain a password.
    if url.contains('@') {
        bail!("the URL of the server must not contain a user or a password");
    }
    let invalid = || anyhow!("invalid server URL {url}; use one such as http://127.0.0.1:8080");
    let uri: Uri = format!("{}/-/ready", url.trim_end_matches('/')).parse().map_err(|_| invalid())?;
    let plain = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if plain && uri.query().is_none() { Ok(uri) } else { Err(invalid()) }
}

fn tls(uri: &Uri) -> Result<ClientConfig> {
    // The certificate of a server on this machine is issued for its public name, not for loopback, and no secret is sent.
    Ok(match uri.scheme_str() {
        Some("https") if is_loopback(uri) => tls::unauthenticated_client()?,
        Some("https") => tls::verified_client(Roots::system().0)?,
        _ => tls::verified_client(Roots::empty())?,
    })
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    host == "localhost" || format!("{host}:0").parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_urls_are_accepted() {
        assert_eq!(readiness_uri("http://127.0.0.1:8080/").expect("fine"), "http://127.0.0.1:8080/-/ready");
        assert_eq!(readiness_uri("https://host/prefix").expect("fine"), "https://host/prefix/-/ready");
        for invalid in ["", "host", "ftp://host", "http://ann:pw@host", "http://host/?q"] {
            let error = readiness_uri(invalid).expect_err("refused").to_string();
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn certificates_are_verified_unless_the_server_is_on_this_machine() {
        let check = |url: &str, expected: bool| {
            assert_eq!(is_loopback(&url.parse().expect("an address")), expected, "{url}");
        };
        check("https://127.0.0.1:8080/-/ready", true);
        check("https://[::1]:8080/-/ready", true);
        check("https://localhost/-/ready", true);
        check("https://localhost.example.org/-/ready", false);
        check("https://127.0.0.1.example.org/-/ready", false);
        check("https://10.0.0.1/-/ready", false);
    }
}
