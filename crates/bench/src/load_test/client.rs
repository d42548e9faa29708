//! An HTTP client with persistent connections that opens a new one if none is idle.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::request_generator::ApiRequest;

/// The maximum time to wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of bytes of a body that are kept for inspection: of JSON, and of other content.
const MAX_KEPT_BYTES: (usize, usize) = (4 << 20, 64 << 10);

/// An HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    pub(crate) method: &'static str,
    pub(crate) target: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Bytes,
}

impl From<&ApiRequest> for HttpRequest {
    fn from(request: &ApiRequest) -> Self {
        let mut headers = vec![("private-token", request.token.clone())];
        let body = match &request.body {
            Some((kind, text)) => {
                headers.push(("content-type", (*kind).to_owned()));
                Bytes::from(text.clone())
            }
            None => Bytes::new(),
        };
        Self { method: request.method, target: format!("/api/v3{}", request.target), headers, body }
    }
}

/// An HTTP response.
#[derive(Clone, Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    /// The time of the first byte.
    pub(crate) first: Instant,
    /// The times of the first and the last byte of the body.
    pub(crate) body: Instant,
    pub(crate) end: Instant,
    /// The beginning of the body.
    pub(crate) start: Vec<u8>,
    pub(crate) last: Option<u8>,
    pub(crate) length: usize,
}

/// A client of one server.
pub(crate) struct Client {
    address: SocketAddr,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, idle: Mutex::default() }
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn send(&self, http_request: &HttpRequest) -> Result<HttpResponse> {
        timeout(RESPONSE_TIMEOUT, self.exchange(http_request))
            .await
            .unwrap_or_else(|_| Err(anyhow!("no response within 30 s")))
    }

    async fn exchange(&self, http_request: &HttpRequest) -> Result<HttpResponse> {
        let (mut sender, response) = loop {
            let idle_sender = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let was_idle = idle_sender.is_some();
            let mut sender = match idle_sender {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.send_request(request(http_request)?).await {
                Ok(response) => break (sender, response),
                // The server may have closed an idle connection; then it has read nothing of the request.
                Err(error) if was_idle && (error.is_closed() || error.is_canceled()) => {}
                Err(error) => bail!("connection lost: {error}"),
            }
        };
        let first = Instant::now();
        let response = read(response, first).await?;
        if sender.ready().await.is_ok() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        }
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let context = "cannot connect";
        let stream = TcpStream::connect(self.address).await.context(context)?;
        stream.set_nodelay(true).context(context)?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.context("cannot connect")?;
        tokio::spawn(connection);
        Ok(sender)
    }
}

fn request(http_request: &HttpRequest) -> Result<Request<Full<Bytes>>> {
    let mut builder =
        Request::builder().method(http_request.method).uri(&http_request.target).header("host", "localhost");
    for (name, value) in &http_request.headers {
        builder = builder.header(*name, value);
    }
    let body = Full::new(http_request.body.clone());
    builder.body(body).with_context(|| format!("invalid request {}", http_request.target))
}

async fn read(response: Response<Incoming>, first: Instant) -> Result<HttpResponse> {
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let (mut start, mut last, mut length, mut body_start) = (Vec::new(), None, 0, None);
    while let Some(frame) = body.frame().await {
        let frame = frame.context("response interrupted")?;
        let Some(chunk) = frame.data_ref() else { continue };
        body_start = body_start.or_else(|| Some(Instant::now()));
        let is_json = matches!(start.first().or(chunk.first()), Some(b'[' | b'{'));
        let max = if is_json { MAX_KEPT_BYTES.0 } else { MAX_KEPT_BYTES.1 };
        start.extend_from_slice(&chunk[..chunk.len().min(max - start.len())]);
        last = chunk.last().copied().or(last);
        length += chunk.len();
    }
    let end = Instant::now();
    Ok(HttpResponse { status, first, body: body_start.unwrap_or(end), end, start, last, length })
}
