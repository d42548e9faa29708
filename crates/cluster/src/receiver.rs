//! The receiver of webhooks.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::ledger::RefChange;

/// A running receiver; it accepts every delivery.
#[derive(Clone, Default)]
pub(crate) struct Receiver {
    deliveries: Arc<Mutex<BTreeMap<RefChange, u32>>>,
}

impl Receiver {
    pub(crate) async fn start(address: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let receiver = Self::default();
        let of_server = receiver.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let receiver = of_server.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| receiver.clone().answer(request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(connection), service).await;
                });
            }
        });
        Ok(receiver)
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        // A delivery that ends too early is repeated.
        if let Ok(body) = request.into_body().collect().await
            && let Some(change) = parse_push(&serde_json::from_slice(&body.to_bytes()).unwrap_or_default())
        {
            *self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).entry(change).or_default() += 1;
        }
        Ok(Response::new(Full::default()))
    }

    /// Returns how often a change was delivered.
    pub(crate) fn count(&self, change: &RefChange) -> u32 {
        self.deliveries.lock().unwrap_or_else(PoisonError::into_inner).get(change).copied().unwrap_or_default()
    }
}

/// Returns the change that a payload describes, or that an event of the API describes.
pub(crate) fn parse_push(payload: &Value) -> Option<RefChange> {
    let text = |name: &str| payload[name].as_str().map(ToOwned::to_owned);
    Some(RefChange {
        project: payload["project_id"].as_i64()?,
        name: text("ref")?,
        before: text("before")?,
        after: text("after")?,
    })
}
