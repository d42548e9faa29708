//! Git over smart HTTP.

mod credentials;
mod error;

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    sync::Arc,
};

use axum::{
    body::Body,
    extract::{ConnectInfo, Request},
    http::{HeaderMap, HeaderValue, Method, Uri, header, request::Parts},
    response::{IntoResponse as _, Response},
};
use forge::{
    Caller, ProjectRef, sessions,
    transport::{self, OpenRepository, Service},
};
use futures_util::TryStreamExt as _;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{
    advertise,
    body::{self, ByteStream},
    failed_sign_ins::FailedSignInLimiter,
    fetch,
    log_context::LogContext,
    pkt,
    project_path::{self, Endpoint},
    protocol_version::ProtocolVersion,
    receive_pack::PushReceiver,
    transfers::Transfers,
};
use credentials::BasicAuth;
use error::HttpError;

/// The size of the buffer for responses, in bytes.
const BUFFER: usize = 64 * 1024;

/// Serves git over smart HTTP.
pub struct GitHttp {
    transfers: Transfers,
    failed_sign_ins: FailedSignInLimiter,
}

impl GitHttp {
    /// Creates the service; `failures_per_minute` limits the failed sign-ins of a client network.
    pub fn new(transfers: Transfers, failures_per_minute: Option<NonZeroU32>) -> Self {
        Self { transfers, failed_sign_ins: FailedSignInLimiter::new(failures_per_minute) }
    }

    /// Returns whether a URL is a git endpoint.
    pub fn serves(&self, uri: &Uri) -> bool {
        project_path::parse_url(uri.path()).is_some()
    }

    /// Handles a request.
    pub async fn handle(&self, request: Request) -> Response {
        match self.try_handle(request).await {
            Ok(response) => response,
            Err(error) => error.into_response(),
        }
    }

    async fn try_handle(&self, request: Request) -> Result<Response, HttpError> {
        let (parts, body) = request.into_parts();
        let (project, endpoint) = project_path::parse_url(parts.uri.path()).ok_or(HttpError::NotFound)?;
        let service = match (&parts.method, endpoint) {
            (&Method::GET, Endpoint::InfoRefs) => service(parts.uri.query().unwrap_or_default())?,
            (&Method::POST, Endpoint::UploadPack) => Service::Fetch,
            (&Method::POST, Endpoint::ReceivePack) => Service::Push,
            (_, Endpoint::InfoRefs) => return Err(HttpError::MethodNotAllowed("GET")),
            _ => return Err(HttpError::MethodNotAllowed("POST")),
        };
        if endpoint != Endpoint::InfoRefs
            && !has_content_type(&parts.headers, &format!("application/x-git-{}-request", name(service)))
        {
            return Err(HttpError::UnsupportedMediaType);
        }
        let log = LogContext::new("http", client_address(&parts), &project);
        let (caller, has_credentials) = self.authenticate(&parts, &log).await?;
        let opened = transport::open(self.transfers.forge(), caller.clone(), ProjectRef::Path(project), service).await;
        let repository = Arc::new(opened.map_err(|error| HttpError::from_forge(&error, has_credentials, &log))?);
        let log = log.with_repository(&repository);
        let version =
            parts.headers.get("git-protocol").and_then(|value| value.to_str().ok()).map(ProtocolVersion::from_header);
        let version = version.unwrap_or_default();
        match endpoint {
            Endpoint::InfoRefs => {
                Ok(reply(service, "advertisement", Body::from_stream(advertisement(&repository, service, version))))
            }
            Endpoint::UploadPack => {
                self.fetch(&repository, version, (client_address(&parts), &log), request_body(&parts, body)?).await
            }
            Endpoint::ReceivePack => {
                self.receive(caller, repository, (client_address(&parts), log), request_body(&parts, body)?).await
            }
        }
    }

    /// Authenticates the request; also returns whether it has credentials.
    async fn authenticate(&self, parts: &Parts, log: &LogContext) -> Result<(Caller, bool), HttpError> {
        let (user, password) = match credentials::read_basic_auth(&parts.headers) {
            BasicAuth::Missing => return Ok((Caller::anonymous(), false)),
            BasicAuth::Password { user, password } => (user, password),
            BasicAuth::Invalid => return Err(HttpError::Challenge),
        };
        let attempt = self.failed_sign_ins.admit(client_address(parts)).map_err(|wait| {
            metrics::counter!("gable_limited_requests_total", "kind" => "sign_in").increment(1);
            HttpError::RateLimited(wait)
        })?;
        match transport::sign_in(self.transfers.forge(), &user, &password).await {
            Ok(caller) => Ok((caller, true)),
            Err(forge::Error::Unauthenticated) => {
                attempt.failed();
                sessions::log_failure(self.transfers.forge(), "git over http", client_address(parts), &user).await;
                Err(HttpError::Challenge)
            }
            Err(error) => Err(HttpError::from_forge(&error, true, log)),
        }
    }

    async fn fetch(
        &self,
        repository: &Arc<OpenRepository>,
        version: ProtocolVersion,
        from: (IpAddr, &LogContext),
        request: ByteStream,
    ) -> Result<Response, HttpError> {
        let answer = fetch::respond(&self.transfers, repository, version, from, request).await?;
        Ok(reply(Service::Fetch, "result", Body::from_stream(answer)))
    }

    async fn receive(
        &self,
        caller: Caller,
        repository: Arc<OpenRepository>,
        (address, log): (IpAddr, LogContext),
        request: ByteStream,
    ) -> Result<Response, HttpError> {
        let permit = self.transfers.acquire_push(repository.project_id(), address).await.map_err(HttpError::from)?;
        let input = StreamReader::new(request);
        let (output, answer) = tokio::io::duplex(BUFFER);
        let (transfers, task_log) = (self.transfers.clone(), log.clone());
        // HTTP clients send the whole body before they read the response.
        let receiver = PushReceiver { transfers, caller, repository, log, input, output, drains_first: true };
        tokio::spawn(async move {
            if let Err(error) = receiver.run(permit).await {
                task_log.debug("push aborted", error);
            }
        });
        Ok(reply(Service::Push, "result", Body::from_stream(ReaderStream::with_capacity(answer, BUFFER))))
    }
}

/// Returns the address of the client.
fn client_address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip())
}

/// Returns the response to `info/refs`.
fn advertisement(repository: &OpenRepository, service: Service, version: ProtocolVersion) -> ByteStream {
    let advertisement = match service {
        Service::Fetch => advertise::for_fetch(repository.refs(), version),
        Service::Push => advertise::for_push(repository.refs()),
    };
    // Protocol version 2 has no service line.
    if service == Service::Fetch && version == ProtocolVersion::V2 {
        return body::from_chunks(advertisement);
    }
    let mut line = Vec::new();
    pkt::line(&mut line, format_args!("# service=git-{}", name(service)));
    pkt::flush(&mut line);
    body::from_chunks(advertisement.with_prefix(line))
}

fn name(service: Service) -> &'static str {
    match service {
        Service::Fetch => "upload-pack",
        Service::Push => "receive-pack",
    }
}

/// Parses the service from a query; the dumb protocol, which has none, is not supported.
fn service(query: &str) -> Result<Service, HttpError> {
    match query.split('&').find_map(|pair| pair.strip_prefix("service=")) {
        Some("git-upload-pack") => Ok(Service::Fetch),
        Some("git-receive-pack") => Ok(Service::Push),
        _ => Err(HttpError::DumbProtocol),
    }
}

fn has_content_type(headers: &HeaderMap, expected: &str) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|found| found.as_bytes() == expected.as_bytes())
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, HttpError> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip" | b"x-gzip") => Ok(true),
        Some(_) => Err(HttpError::UnsupportedMediaType),
    }
}

/// Returns the decompressed body of a request.
fn request_body(parts: &Parts, body: Body) -> Result<ByteStream, HttpError> {
    Ok(body::decompress(body.into_data_stream().map_err(io::Error::other), is_gzip(&parts.headers)?))
}

fn reply(service: Service, what: &str, body: Body) -> Response {
    let content_type = format!("application/x-git-{}-{what}", name(service));
    let headers = [(header::CONTENT_TYPE, content_type.as_str()), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_two_services_are_offered() {
        assert_eq!(service("service=git-upload-pack").ok(), Some(Service::Fetch));
        assert_eq!(service("a=b&service=git-receive-pack").ok(), Some(Service::Push));
        for other in ["", "service=", "service=git-upload-archive", "service=upload-pack", "xservice=git-upload-pack"] {
            assert!(matches!(service(other), Err(HttpError::DumbProtocol)), "{other}");
        }
    }

    #[test]
    fn a_body_is_plain_or_gzip() {
        let encoded = |value: &'static str| {
            is_gzip(&HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(matches!(is_gzip(&HeaderMap::new()), Ok(false)));
        assert!(matches!((encoded("gzip"), encoded("x-gzip"), encoded("identity")), (Ok(true), Ok(true), Ok(false))));
        assert!(matches!(encoded("br"), Err(HttpError::UnsupportedMediaType)));
    }
}
