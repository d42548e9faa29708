//! `gable health`: asks a running server, as a monitor would, so that a container needs no other program for it.

use std::net::SocketAddr;

use axum::{body::Bytes, http::Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::{client::legacy, rt::TokioExecutor};
use rustls::ClientConfig;
use tls::Roots;

use crate::{
    commands::Health,
    config,
    exit::{Ending, Failure},
    serve,
};

/// How much of an answer is looked at.
const LARGEST_ANSWER: usize = 64 << 10;

/// Says `ready`, or why the server is not.
pub(crate) fn run(health: Health) -> Ending {
    let url = match health.url {
        Some(url) if !url.is_empty() => url,
        _ => {
            let config = config::load(health.address.into())?;
            let scheme = if config.tls.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", serve::reachable(config.listen))
        }
    };
    let uri = readiness(&url).map_err(Failure::Misused)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    let asked = runtime.block_on(async { tokio::time::timeout(health.within.duration(), ask(&url, uri)).await });
    let answer = asked.map_err(|_| format!("no answer from {url} within {}", health.within))??;
    serve::say(&answer);
    Ok(())
}

/// What the server says of itself, if it can serve.
async fn ask(url: &str, uri: Uri) -> Result<String, String> {
    let https = HttpsConnectorBuilder::new().with_tls_config(tls(&uri)?).https_or_http().enable_http1().build();
    let client = legacy::Client::builder(TokioExecutor::new()).build::<_, Empty<Bytes>>(https);
    let answer = client.get(uri).await.map_err(|error| {
        let mut reason: &dyn std::error::Error = &error;
        while let Some(below) = reason.source() {
            reason = below;
        }
        format!("{url} cannot be reached: {reason}; see that the server runs, or name another address with --url")
    })?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    let body = body.map_err(|error| format!("the answer of {url} broke off: {error}"))?.to_bytes();
    let text = String::from_utf8_lossy(&body);
    match (status.as_u16(), text.trim()) {
        (200, text) => Ok(text.to_owned()),
        (503, text) => Err(format!("{url} is not ready: {text}")),
        (status, _) => Err(format!("{url} answered with {status}; is it a gable?")),
    }
}

/// Where a server tells whether it is ready.
fn readiness(url: &str) -> Result<Uri, String> {
    // Not repeated where it may hold a password.
    if url.contains('@') {
        return Err("the address of the server must not hold a user or a password; nobody needs one to ask".to_owned());
    }
    let wrong = || format!("{url} is not the address of a server; give one such as http://127.0.0.1:8080");
    let uri: Uri = format!("{}/-/ready", url.trim_end_matches('/')).parse().map_err(|_| wrong())?;
    let plain = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if plain && uri.query().is_none() { Ok(uri) } else { Err(wrong()) }
}

fn tls(uri: &Uri) -> Result<ClientConfig, String> {
    // The certificate of a server on this machine was made out for the name that clients use, not for loopback, and
    // nothing is told to the server here.
    match uri.scheme_str() {
        Some("https") if is_loopback(uri) => tls::lenient(),
        Some("https") => tls::strict(Roots::of_the_machine().0),
        _ => tls::strict(Roots::none()),
    }
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    host == "localhost" || format!("{host}:0").parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_asked() {
        assert_eq!(readiness("http://127.0.0.1:8080/").expect("fine"), "http://127.0.0.1:8080/-/ready");
        assert_eq!(readiness("https://host/prefix").expect("fine"), "https://host/prefix/-/ready");
        for wrong in ["", "host", "ftp://host", "http://ann:pw@host", "http://host/?q"] {
            let error = readiness(wrong).expect_err("refused");
            assert!(!error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn certificates_count_unless_the_server_is_on_this_machine() {
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
