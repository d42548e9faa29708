//! Git over smart HTTP.

mod credentials;
mod refusal;

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
    transport::{self, Hosted, Service},
};
use futures_util::TryStreamExt as _;
use tokio_util::io::{ReaderStream, StreamReader};

use crate::{
    address::{self, Door},
    advertise,
    body::{self, Pieces},
    fetch,
    origin::Origin,
    pkt,
    receive::Receiver,
    throttle::Throttle,
    transfers::Transfers,
    version::Version,
};
use credentials::Shown;
use refusal::Refusal;

/// How much of an answer may wait for the client.
const BUFFER: usize = 64 * 1024;

/// Answers requests of git.
pub struct GitHttp {
    transfers: Transfers,
    throttle: Throttle,
}

impl GitHttp {
    /// Answers for a forge; an address may get so many passwords wrong per minute.
    pub fn new(transfers: Transfers, failures_per_minute: Option<NonZeroU32>) -> Self {
        Self { transfers, throttle: Throttle::new(failures_per_minute) }
    }

    /// Whether a request for this is one of git.
    pub fn serves(&self, uri: &Uri) -> bool {
        address::door(uri.path()).is_some()
    }

    /// Answers a request.
    pub async fn answer(&self, request: Request) -> Response {
        match self.handle(request).await {
            Ok(response) => response,
            Err(refusal) => refusal.into_response(),
        }
    }

    async fn handle(&self, request: Request) -> Result<Response, Refusal> {
        let (parts, body) = request.into_parts();
        let (project, door) = address::door(parts.uri.path()).ok_or(Refusal::NotFound)?;
        let service = match (&parts.method, door) {
            (&Method::GET, Door::Refs) => service(parts.uri.query().unwrap_or_default())?,
            (&Method::POST, Door::UploadPack) => Service::Fetch,
            (&Method::POST, Door::ReceivePack) => Service::Push,
            (_, Door::Refs) => return Err(Refusal::Method("GET")),
            _ => return Err(Refusal::Method("POST")),
        };
        if door != Door::Refs && !has_type(&parts.headers, &format!("application/x-git-{}-request", name(service))) {
            return Err(Refusal::Type);
        }
        let origin = Origin::new("http", address(&parts), &project);
        let (caller, shown) = self.caller(&parts, &origin).await?;
        let opened = transport::open(self.transfers.forge(), caller.clone(), ProjectRef::Path(project), service).await;
        let hosted = Arc::new(opened.map_err(|error| Refusal::of(&error, shown, &origin))?);
        let origin = origin.of(&hosted);
        let version = parts.headers.get("git-protocol").and_then(|value| value.to_str().ok()).map(Version::asked_for);
        let version = version.unwrap_or_default();
        match door {
            Door::Refs => Ok(reply(service, "advertisement", Body::from_stream(greeting(&hosted, service, version)))),
            Door::UploadPack => self.fetch(&hosted, version, (address(&parts), &origin), pieces(&parts, body)?).await,
            Door::ReceivePack => self.receive(caller, hosted, (address(&parts), origin), pieces(&parts, body)?).await,
        }
    }

    /// Who asks, and whether they have shown anything.
    async fn caller(&self, parts: &Parts, origin: &Origin) -> Result<(Caller, bool), Refusal> {
        let (user, password) = match credentials::shown(&parts.headers) {
            Shown::Nothing => return Ok((Caller::anonymous(), false)),
            Shown::Password { user, password } => (user, password),
            Shown::Something => return Err(Refusal::Challenge),
        };
        let attempt = self.throttle.admit(address(parts)).map_err(|wait| {
            metrics::counter!("gable_limited_requests_total", "kind" => "sign_in").increment(1);
            Refusal::Throttled(wait)
        })?;
        match transport::sign_in(self.transfers.forge(), &user, &password).await {
            Ok(caller) => Ok((caller, true)),
            Err(forge::Error::Unauthenticated) => {
                attempt.failed();
                sessions::note_failure(self.transfers.forge(), "git over http", address(parts), &user).await;
                Err(Refusal::Challenge)
            }
            Err(error) => Err(Refusal::of(&error, true, origin)),
        }
    }

    async fn fetch(
        &self,
        hosted: &Arc<Hosted>,
        version: Version,
        from: (IpAddr, &Origin),
        request: Pieces,
    ) -> Result<Response, Refusal> {
        let answer = fetch::answer(&self.transfers, hosted, version, from, request).await?;
        Ok(reply(Service::Fetch, "result", Body::from_stream(answer)))
    }

    async fn receive(
        &self,
        caller: Caller,
        hosted: Arc<Hosted>,
        (address, origin): (IpAddr, Origin),
        request: Pieces,
    ) -> Result<Response, Refusal> {
        let turn = self.transfers.push_turn(hosted.project_id(), address).await.map_err(Refusal::from)?;
        let input = StreamReader::new(request);
        let (output, answer) = tokio::io::duplex(BUFFER);
        let (transfers, told) = (self.transfers.clone(), origin.clone());
        // The body of a request has an end, and until then clients do not look at the answer.
        let receiver = Receiver { transfers, caller, hosted, origin, input, output, drains_first: true };
        tokio::spawn(async move {
            if let Err(error) = receiver.run(turn).await {
                told.debug("a push was not ended", error);
            }
        });
        Ok(reply(Service::Push, "result", Body::from_stream(ReaderStream::with_capacity(answer, BUFFER))))
    }
}

/// From where a request comes.
fn address(parts: &Parts) -> IpAddr {
    let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip())
}

/// What is said first.
fn greeting(hosted: &Hosted, service: Service, version: Version) -> Pieces {
    let greeting = match service {
        Service::Fetch => advertise::for_fetch(hosted.refs(), version),
        Service::Push => advertise::for_push(hosted.refs()),
    };
    // The second version has done away with the line before.
    if service == Service::Fetch && version == Version::Two {
        return body::of(greeting);
    }
    let mut line = Vec::new();
    pkt::line(&mut line, format_args!("# service=git-{}", name(service)));
    pkt::flush(&mut line);
    body::of(greeting.after(line))
}

fn name(service: Service) -> &'static str {
    match service {
        Service::Fetch => "upload-pack",
        Service::Push => "receive-pack",
    }
}

/// The service that a query asks for; the dumb protocol, which asks for none, is not spoken.
fn service(query: &str) -> Result<Service, Refusal> {
    match query.split('&').find_map(|pair| pair.strip_prefix("service=")) {
        Some("git-upload-pack") => Ok(Service::Fetch),
        Some("git-receive-pack") => Ok(Service::Push),
        _ => Err(Refusal::Dumb),
    }
}

fn has_type(headers: &HeaderMap, expected: &str) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|found| found.as_bytes() == expected.as_bytes())
}

fn is_gzip(headers: &HeaderMap) -> Result<bool, Refusal> {
    match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip" | b"x-gzip") => Ok(true),
        Some(_) => Err(Refusal::Type),
    }
}

/// The body of a request, unpacked.
fn pieces(parts: &Parts, body: Body) -> Result<Pieces, Refusal> {
    Ok(body::unpacked(body.into_data_stream().map_err(io::Error::other), is_gzip(&parts.headers)?))
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
            assert!(matches!(service(other), Err(Refusal::Dumb)), "{other}");
        }
    }

    #[test]
    fn a_body_is_plain_or_gzip() {
        let encoded = |value: &'static str| {
            is_gzip(&HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static(value))]))
        };
        assert!(matches!(is_gzip(&HeaderMap::new()), Ok(false)));
        assert!(matches!((encoded("gzip"), encoded("x-gzip"), encoded("identity")), (Ok(true), Ok(true), Ok(false))));
        assert!(matches!(encoded("br"), Err(Refusal::Type)));
    }
}
