//! The floor: a bare handler that answers the same bytes and does nothing for them.

use std::{net::SocketAddr, path::Path};

use axum::{
    Router,
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
    routing::get,
    serve::ListenerExt as _,
};
use tokio::net::TcpListener;

use crate::Outcome;

/// The argument that makes this program the floor.
pub(crate) const WORD: &str = "floor";
/// What it prints before its URL.
pub(crate) const READY: &str = "floor ready on ";

/// Serves the content of a file under a path until it is killed.
pub(crate) fn run(answer: impl AsRef<Path>, path: &str) -> Outcome {
    let body = std::fs::read(answer).map_err(|error| format!("cannot read the answer: {error}"))?;
    let body = Bytes::from(body);
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start: {error}"))?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        println!("{READY}http://{}", listener.local_addr()?);
        let router = Router::new().route(path, get(move || async move { answer_with(body) }));
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await
    });
    served.map_err(|error| format!("cannot serve: {error}"))
}

/// As many headers as the real answer has, so that both cost the same on the wire.
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
