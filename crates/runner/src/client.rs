//! The HTTP client of the runner: limits time and size, uses no proxies and follows no redirects.

use std::{fmt::Display, io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tls::Roots;
use tokio::{
    fs::File,
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout, timeout_at},
};
use tokio_util::io::ReaderStream;
use tracing::warn;
use url::Url;

use crate::Error;

/// The timeout of establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept; shorter than the keep-alive of common servers.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum size of a response that is read into memory.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// How long a download may receive no data.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The body of a request.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Client {
    pool: legacy::Client<HttpsConnector<HttpConnector>, Body>,
    /// The base URL without a trailing slash.
    base_url: Arc<str>,
}

/// A request to the server.
pub(crate) struct ApiCall {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, String)>,
    pub(crate) body: Body,
    pub(crate) timeout: Duration,
}

/// A response of the server.
pub(crate) struct ApiResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// No response was received; contains the reason.
#[derive(Debug)]
pub(crate) struct ConnectionError(pub(crate) String);

impl ApiResponse {
    /// Returns a header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        is_transient(self.status)
    }
}

/// The result of a download.
pub(crate) enum DownloadOutcome {
    /// The file is complete.
    Complete,
    /// The server responded with another status.
    Status(StatusCode),
    /// The file exceeds the size limit.
    TooLarge,
}

/// Returns whether the same request may succeed later.
pub(crate) fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

impl Client {
    /// Creates a client of the server at this URL.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let base_url = validate_url(url)?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        // Reading the system's certificates takes time and only HTTPS needs them.
        let roots = if base_url.starts_with("https://") { roots() } else { Roots::empty() };
        let tls = tls::verified_client(roots)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self { pool, base_url: base_url.into() })
    }

    /// Returns the base URL without a trailing slash.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn call(&self, call: ApiCall) -> Result<ApiResponse, ConnectionError> {
        let deadline = Instant::now() + call.timeout;
        let response = self.send(call).await?;
        let (head, body) = response.into_parts();
        let body = timeout_at(deadline, Limited::new(body, MAX_RESPONSE_BYTES).collect())
            .await
            .map_err(|_| ConnectionError("timed out while reading the response".to_owned()))?
            .map_err(|error| ConnectionError(format!("the response ended early: {error}")))?;
        Ok(ApiResponse { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Downloads a file up to a maximum size.
    pub(crate) async fn fetch(
        &self,
        call: ApiCall,
        into: &mut File,
        max_bytes: u64,
    ) -> Result<DownloadOutcome, ConnectionError> {
        let mut response = self.send(call).await?;
        if response.status() != StatusCode::OK {
            return Ok(DownloadOutcome::Status(response.status()));
        }
        let fail = |error: &dyn Display| ConnectionError(format!("the download ended early: {error}"));
        let mut received = 0;
        while let Some(frame) = timeout(STALL_TIMEOUT, response.frame()).await.map_err(|_| fail(&"timed out"))? {
            let Ok(chunk) = frame.map_err(|error| fail(&error))?.into_data() else { continue };
            received += chunk.len() as u64;
            if received > max_bytes {
                return Ok(DownloadOutcome::TooLarge);
            }
            into.write_all(&chunk).await.map_err(|error| fail(&error))?;
        }
        into.flush().await.map_err(|error| fail(&error))?;
        Ok(DownloadOutcome::Complete)
    }

    async fn send(&self, call: ApiCall) -> Result<Response<Incoming>, ConnectionError> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.base_url, call.path))
            .header(USER_AGENT, concat!("gable-runner/", env!("CARGO_PKG_VERSION")));
        for (name, value) in call.headers {
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| ConnectionError("a header value contains invalid characters".to_owned()))?;
            // Some headers are tokens.
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let request =
            request.body(call.body).map_err(|error| ConnectionError(format!("cannot build the request: {error}")))?;
        timeout(call.timeout, self.pool.request(request))
            .await
            .map_err(|_| ConnectionError(format!("no response within {} seconds", call.timeout.as_secs())))?
            .map_err(|error| ConnectionError(root_cause(&error)))
    }
}

/// Returns a body from bytes in memory.
pub(crate) fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Returns a file as the only part of a multipart form, with its headers.
pub(crate) fn multipart_body(
    file: File,
    size: u64,
    name: &str,
) -> Result<(Vec<(HeaderName, String)>, Body), io::Error> {
    let boundary = format!("----gable{}", random_hex()?);
    let name: String = name.chars().filter(|ch| !ch.is_control() && !matches!(ch, '"' | '\\')).collect();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let length = head.len() as u64 + size + tail.len() as u64;
    let (head, tail) = (Bytes::from(head), Bytes::from(tail));
    let once = |chunk: Bytes| stream::once(async { Ok::<_, io::Error>(chunk) });
    let file = ReaderStream::with_capacity(file.take(size), 64 << 10);
    let chunks = once(head).chain(file).chain(once(tail));
    let body = StreamBody::new(chunks.map_ok(Frame::data)).boxed_unsync();
    let headers =
        vec![(CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}")), (CONTENT_LENGTH, length.to_string())];
    Ok((headers, body))
}

/// Returns 128 random bits in hexadecimal.
pub(crate) fn random_hex() -> Result<String, io::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:x}", Bytes::copy_from_slice(&bytes)))
}

/// Validates and normalizes the URL of a server.
fn validate_url(text: &str) -> Result<String, Error> {
    let invalid = || Error::Setup(format!("{text} is not a valid server URL; use one such as https://git.example.com"));
    let url = Url::parse(text).map_err(|_| invalid())?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    if !is_plain || url.fragment().is_some() {
        return Err(invalid());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Setup("the server URL must not contain a user name or a password".to_owned()));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Returns the system's root certificates; warns if there are none.
fn roots() -> Roots {
    let (roots, problems) = Roots::system();
    if roots.is_empty() {
        warn!(?problems, "no root certificates found on this machine; the server cannot be verified");
    }
    roots
}

/// Returns the innermost cause of an error: "client error (Connect)" is not helpful.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_urls_are_valid() {
        assert_eq!(validate_url("http://127.0.0.1:8080/").expect("fine"), "http://127.0.0.1:8080");
        assert_eq!(validate_url("https://host/prefix/").expect("fine"), "https://host/prefix");
        for invalid in ["host", "ftp://host", "http://", "http://host/?q", "http://ann:pw@host", "http://host/#x"] {
            let error = validate_url(invalid).expect_err("rejected").to_string();
            assert!(!error.contains("pw") || !invalid.contains('@'), "{error}");
        }
    }
}
