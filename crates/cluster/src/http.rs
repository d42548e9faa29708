//! An HTTP client with one connection per request, so that each request is balanced and fails on its own.

use std::{fmt, net::SocketAddr, time::Duration};

use anyhow::{Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{HeaderMap, Method, Request, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// The boundary of multipart forms.
const BOUNDARY: &str = "c1uster-b0undary";

/// A response with its whole body.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    /// Returns the body as JSON, or null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = String::from_utf8_lossy(&self.body);
        write!(f, "{} {}", self.status, text.chars().take(300).collect::<String>())
    }
}

/// A request without a response: the connection failed, or the response took too long.
#[derive(Debug)]
pub(crate) struct NoResponse(pub(crate) String);

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoResponse {}

/// A client of one address.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<&'static str>,
    pub(crate) timeout: Duration,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: Option<&'static str>) -> Self {
        Self { address, token, timeout: Duration::from_secs(30) }
    }

    pub(crate) fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Response, NoResponse> {
        self.send(Method::GET, path, &[], Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Response, NoResponse> {
        self.send(Method::POST, path, &[("content-type", "application/json")], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Response, NoResponse> {
        self.send(Method::PUT, path, &[("content-type", "application/json")], body.to_string()).await
    }

    /// Sends a file in a form.
    pub(crate) async fn upload(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        name: &str,
        content: &[u8],
    ) -> Result<Response, NoResponse> {
        let head =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n");
        let end = format!("\r\n--{BOUNDARY}--\r\n");
        let body = [head.as_bytes(), content, end.as_bytes()].concat();
        let content_type = format!("multipart/form-data; boundary={BOUNDARY}");
        self.send(Method::POST, path, &[&[("content-type", content_type.as_str())], headers].concat(), body).await
    }

    /// Sends a request that must succeed, for preparations.
    pub(crate) async fn create(&self, path: &str, body: &Value) -> Result<Value> {
        let response = self.post(path, body).await?;
        if !response.is_success() {
            bail!("POST {path}: {response}");
        }
        Ok(response.json())
    }

    /// Sends a request.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Response, NoResponse> {
        let exchange = exchange(self, method, path, headers, body.into());
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(NoResponse(format!("no response within {} s", self.timeout.as_secs()))),
        }
    }
}

async fn exchange(
    client: &Client,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Response, NoResponse> {
    let failed = |error: &dyn fmt::Display| NoResponse(error.to_string());
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, client.address.to_string());
    if let Some(token) = client.token {
        request = request.header("private-token", token);
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body)).map_err(|error| failed(&error))?;
    let stream = TcpStream::connect(client.address).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let response = async {
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Response { status: head.status.as_u16(), headers: head.headers, body })
    };
    let response = response.await.map_err(|error| failed(&error));
    connection.abort();
    response
}
