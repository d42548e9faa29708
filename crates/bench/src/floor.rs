//! The floor, a lower bound for latencies: a bare handler that sends the same bytes without computing them.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
    routing::get,
    serve::ListenerExt as _,
};
use tokio::net::TcpListener;

/// The subcommand that runs the floor.
pub(crate) const SUBCOMMAND: &str = "floor";
/// The text that it prints before its URL.
pub(crate) const READY: &str = "floor ready on ";

/// Serves the content of a file under a path until the process is killed.
pub(crate) fn run(answer: impl AsRef<Path>, path: &str) -> Result<()> {
    let body = std::fs::read(answer).context("cannot read the response")?;
    let body = Bytes::from(body);
    let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{READY}http://{}", listener.local_addr()?);
        let router = Router::new().route(path, get(move || async move { answer_with(body) }));
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await
    });
    served.context("cannot serve")
}

/// Returns a response with as many headers as the server sends, so that both cost the same on the wire.
fn answer_with(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::ETAG, HeaderValue::from_static("W/\"c2e0e656ef56dc474f9887db9b5a1a53\""));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("max-age=0, private, must-revalidate"));
    headers.insert("x-request-id", HeaderValue::from_static("66047d9ea8e55-1a2b3"));
    headers.insert("x-runtime", HeaderValue::from_static("0.000123"));
    response
}
