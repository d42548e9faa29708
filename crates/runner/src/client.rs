//! How the runner talks to its server: bounded in time and in size, without proxies, following no redirects.

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

/// Until there is a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// For how long an idle connection is kept; shorter than what widespread servers wait before they hang up.
const IDLE: Duration = Duration::from_secs(4);
/// How large an answer may be that is read as a whole.
const LARGEST_ANSWER: usize = 16 << 20;
/// How long nothing may arrive of a file under way.
const STALL: Duration = Duration::from_secs(60);

/// What is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A server, as its runner reaches it.
#[derive(Clone)]
pub(crate) struct Client {
    pool: legacy::Client<HttpsConnector<HttpConnector>, Body>,
    /// The address without a slash at its end.
    root: Arc<str>,
}

/// One call, before it is made.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(HeaderName, String)>,
    pub(crate) body: Body,
    pub(crate) within: Duration,
}

/// What the server said.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Nothing was heard, for this reason.
#[derive(Debug)]
pub(crate) struct Unreachable(pub(crate) String);

impl Answer {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Whether the same call may go better later.
    pub(crate) fn is_passing(&self) -> bool {
        passing(self.status)
    }
}

/// How the fetch of a file ended.
pub(crate) enum Fetched {
    /// All of it is there.
    Whole,
    /// The server has an answer of its own.
    Said(StatusCode),
    /// It is larger than what is taken.
    TooLarge,
}

/// Whether the same call may go better later.
pub(crate) fn passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

impl Client {
    /// A client of the server at this address.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let root = check(url)?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        // Reading the machine's authorities takes a while, and not everybody needs them.
        let roots = if root.starts_with("https://") { roots() } else { Roots::none() };
        let tls = tls::strict(roots).map_err(Error::Setup)?;
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { pool, root: root.into() })
    }

    /// The address without a slash at its end.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// Calls and takes the whole answer.
    pub(crate) async fn call(&self, call: Call) -> Result<Answer, Unreachable> {
        let end = Instant::now() + call.within;
        let response = self.send(call).await?;
        let (head, body) = response.into_parts();
        let body = timeout_at(end, Limited::new(body, LARGEST_ANSWER).collect())
            .await
            .map_err(|_| Unreachable("the answer did not come to its end in time".to_owned()))?
            .map_err(|error| Unreachable(format!("the answer broke off: {error}")))?;
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes() })
    }

    /// Brings a file here, as far as it is not larger than this.
    pub(crate) async fn fetch(&self, call: Call, into: &mut File, largest: u64) -> Result<Fetched, Unreachable> {
        let mut response = self.send(call).await?;
        if response.status() != StatusCode::OK {
            return Ok(Fetched::Said(response.status()));
        }
        let broken = |error: &dyn Display| Unreachable(format!("the file broke off: {error}"));
        let mut taken = 0;
        while let Some(frame) = timeout(STALL, response.frame()).await.map_err(|_| broken(&"nothing more came"))? {
            let Ok(piece) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            taken += piece.len() as u64;
            if taken > largest {
                return Ok(Fetched::TooLarge);
            }
            into.write_all(&piece).await.map_err(|error| broken(&error))?;
        }
        into.flush().await.map_err(|error| broken(&error))?;
        Ok(Fetched::Whole)
    }

    async fn send(&self, call: Call) -> Result<Response<Incoming>, Unreachable> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.root, call.path))
            .header(USER_AGENT, concat!("gable-runner/", env!("CARGO_PKG_VERSION")));
        for (name, value) in call.headers {
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| Unreachable("a header holds characters that cannot be sent".to_owned()))?;
            // Some of them are tokens.
            value.set_sensitive(true);
            request = request.header(name, value);
        }
        let request = request.body(call.body).map_err(|error| Unreachable(format!("cannot be asked: {error}")))?;
        timeout(call.within, self.pool.request(request))
            .await
            .map_err(|_| Unreachable(format!("no answer within {} seconds", call.within.as_secs())))?
            .map_err(|error| Unreachable(innermost(&error)))
    }
}

/// A body that is there already.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A file as the only part of a form, and the headers that belong to it.
pub(crate) fn form(file: File, size: u64, name: &str) -> Result<(Vec<(HeaderName, String)>, Body), io::Error> {
    let boundary = format!("----gable{}", random()?);
    let name: String = name.chars().filter(|letter| !letter.is_control() && !matches!(letter, '"' | '\\')).collect();
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\
         Content-Type: application/octet-stream\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let length = head.len() as u64 + size + tail.len() as u64;
    let (head, tail) = (Bytes::from(head), Bytes::from(tail));
    let once = |piece: Bytes| stream::once(async { Ok::<_, io::Error>(piece) });
    let file = ReaderStream::with_capacity(file.take(size), 64 << 10);
    let pieces = once(head).chain(file).chain(once(tail));
    let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
    let headers =
        vec![(CONTENT_TYPE, format!("multipart/form-data; boundary={boundary}")), (CONTENT_LENGTH, length.to_string())];
    Ok((headers, body))
}

/// Something that nobody can guess, in hexadecimal digits.
pub(crate) fn random() -> Result<String, io::Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(format!("{:x}", Bytes::copy_from_slice(&bytes)))
}

/// The address of a server, or why it is none.
fn check(text: &str) -> Result<String, Error> {
    let wrong =
        || Error::Setup(format!("{text} is not the address of a server; give one such as https://git.example.com"));
    let url = Url::parse(text).map_err(|_| wrong())?;
    let plain = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    if !plain || url.fragment().is_some() {
        return Err(wrong());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Error::Setup("the address of the server must not hold a user or a password".to_owned()));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// The authorities of the machine; without any, that is told before the first call fails.
fn roots() -> Roots {
    let (roots, problems) = Roots::of_the_machine();
    if roots.is_empty() {
        warn!(?problems, "no root certificates are found on this machine, so the server cannot prove who it is");
    }
    roots
}

/// The reason at the bottom of an error: "client error (Connect)" helps nobody.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(below) = at.source() {
        at = below;
    }
    at.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_servers() {
        assert_eq!(check("http://127.0.0.1:8080/").expect("fine"), "http://127.0.0.1:8080");
        assert_eq!(check("https://host/prefix/").expect("fine"), "https://host/prefix");
        for wrong in ["host", "ftp://host", "http://", "http://host/?q", "http://ann:pw@host", "http://host/#x"] {
            let error = check(wrong).expect_err("refused").to_string();
            assert!(!error.contains("pw") || !wrong.contains('@'), "{error}");
        }
    }
}
