//! A reverse proxy in front of the store that can be told to fail. Requests are passed on unchanged, because signatures
//! cover the `Host` header.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::BoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Frame, Incoming},
    client::conn::http1 as client,
    server::conn::http1 as server,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type ResponseBody = BoxBody<Bytes, BoxError>;

/// What goes wrong with all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum StoreFault {
    #[default]
    None,
    /// They are answered with 503, and nothing is done.
    Unavailable,
    /// They are answered after a delay.
    Slow(Duration),
    /// They are executed, and the answer ends in the middle.
    Torn,
    /// Listings leave out objects that were stored since this time (in the format of S3).
    StaleListing(String),
}

/// A running proxy.
pub(crate) struct FaultProxy {
    state: Arc<State>,
}

struct State {
    store: SocketAddr,
    fault: Mutex<StoreFault>,
    /// The number of requests that a fault has affected.
    affected: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy for a store.
    pub(crate) async fn start(address: SocketAddr, store: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let state = Arc::new(State { store, fault: Mutex::default(), affected: AtomicU64::new(0) });
        let proxy = Self { state: Arc::clone(&state) };
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(Arc::clone(&state), request));
                    // An error closes the connection, which is what some faults want.
                    let _ = server::Builder::new().serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        Ok(proxy)
    }

    pub(crate) fn set_fault(&self, fault: StoreFault) {
        *self.state.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// Returns the number of requests that a fault has affected so far.
    pub(crate) fn affected(&self) -> u64 {
        self.state.affected.load(Ordering::Relaxed)
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<ResponseBody>, BoxError> {
    let fault = state.fault.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let is_listing =
        request.method() == Method::GET && request.uri().query().is_some_and(|query| query.contains("list-type=2"));
    let is_affected = match fault {
        StoreFault::None => false,
        StoreFault::StaleListing(_) => is_listing,
        StoreFault::Unavailable | StoreFault::Slow(_) | StoreFault::Torn => true,
    };
    state.affected.fetch_add(is_affected.into(), Ordering::Relaxed);
    match fault {
        StoreFault::Unavailable => {
            let body = Full::from("<Error><Code>ServiceUnavailable</Code></Error>");
            let mut response = Response::new(body.map_err(|never| match never {}).boxed());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            Ok(response)
        }
        StoreFault::Slow(delay) => {
            tokio::time::sleep(delay).await;
            pass_on(&state, request).await
        }
        StoreFault::Torn => {
            let (head, body) = pass_on(&state, request).await?.into_parts();
            let content = body.collect().await?.to_bytes();
            if content.is_empty() {
                return Err("torn".into());
            }
            Ok(Response::from_parts(head, TornBody(Some(content)).boxed()))
        }
        StoreFault::StaleListing(since) if is_listing => {
            let (mut head, body) = pass_on(&state, request).await?.into_parts();
            let content = body.collect().await?.to_bytes();
            let content = without_newer(&String::from_utf8_lossy(&content), &since);
            head.headers.remove("content-length");
            Ok(Response::from_parts(head, Full::from(content).map_err(|never| match never {}).boxed()))
        }
        StoreFault::None | StoreFault::StaleListing(_) => pass_on(&state, request).await,
    }
}

async fn pass_on(state: &State, request: Request<Incoming>) -> Result<Response<ResponseBody>, BoxError> {
    let stream = TcpStream::connect(state.store).await?;
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| body.map_err(Into::into).boxed()))
}

/// Returns a listing without the objects that were stored at or after a time.
fn without_newer(listing: &str, since: &str) -> String {
    let mut parts = listing.split("<Contents>");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entry, rest) = part.split_once("</Contents>").unwrap_or((part, ""));
        let modified = entry.split_once("<LastModified>").and_then(|(_, rest)| rest.split('<').next());
        // Times in this format are ordered like texts.
        if modified.is_none_or(|modified| modified < since) {
            text += &format!("<Contents>{entry}</Contents>");
        }
        text += rest;
    }
    text
}

/// A body that fails after half of its content.
struct TornBody(Option<Bytes>);

impl Body for TornBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Poll::Ready(Some(match self.0.take() {
            Some(content) => Ok(Frame::data(content.slice(..content.len() / 2))),
            None => Err("torn".into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_listing_lacks_new_objects() {
        let entry = |key: &str, time: &str| {
            format!("<Contents><Key>{key}</Key><LastModified>2026-01-01T{time}.000Z</LastModified></Contents>")
        };
        let (old, new) = (entry("old", "10:00:00"), entry("new", "10:00:05"));
        let listing = |entries: &str| format!("<ListBucketResult><Name>b</Name>{entries}</ListBucketResult>");
        let found = without_newer(&listing(&format!("{new}{old}{new}")), "2026-01-01T10:00:05.000Z");
        assert_eq!(found, listing(&old));
        assert_eq!(without_newer(&listing(""), "2026"), listing(""));
    }
}
