//! The HTTP client that sends deliveries.
//!
//! The addresses that a name resolves to are checked in the same lookup whose result is connected to, so a changed DNS
//! entry cannot bypass the check. Redirects are not followed, and proxy settings of the environment are ignored.

mod errors;
mod resolver;
mod response;

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forge::{
    clock::{Clock, SystemClock},
    deliveries::{HookTarget, OutgoingDelivery},
    outbound_addresses::{self, Destination, DestinationError},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::Full;
use hyper::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, InvalidHeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use model::{
    Time,
    hooks::{AttemptOutcome, DeliveryAttempt},
    tokens::Secret,
};
use sha2::Sha256;
use tls::Roots;
use tokio::time::timeout_at;
use tracing::warn;

pub use resolver::{LookupFn, LookupFuture};

use resolver::GuardedResolver;
use response::Redaction;

/// The maximum number of idle connections per receiver: as many as the dispatcher uses at once.
const MAX_IDLE_PER_HOST: usize = 16;
/// Shorter than the keep-alive timeout of common servers, so that a request rarely meets a closing connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// The maximum size of the response headers.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// Limits on a request.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// The timeout for connecting.
    pub connect_timeout: Duration,
    /// The timeout for the status, all headers and the body together.
    pub response_timeout: Duration,
    /// The maximum number of bytes that are read of the body.
    pub max_body_bytes: usize,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            response_timeout: Duration::from_secs(10),
            max_body_bytes: 64 << 10,
        }
    }
}

/// Configures a [`Client`].
pub struct ClientBuilder {
    limits: ClientLimits,
    lookup: LookupFn,
    roots: Roots,
    clock: Arc<dyn Clock>,
}

impl Default for ClientBuilder {
    /// The system resolver, the system root certificates and the system clock.
    fn default() -> Self {
        Self {
            limits: ClientLimits::default(),
            lookup: resolver::system(),
            roots: system_roots(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Loads the system root certificates. Missing ones are not fatal: hooks without verification still work.
fn system_roots() -> Roots {
    let (roots, problems) = Roots::system();
    if roots.is_empty() {
        warn!(?problems, "no root certificates found; webhooks cannot verify any receiver");
    }
    roots
}

impl ClientBuilder {
    /// Sets the limits.
    pub fn limits(mut self, limits: ClientLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Replaces the name resolver.
    pub fn lookup(mut self, lookup: LookupFn) -> Self {
        self.lookup = lookup;
        self
    }

    /// Trusts an additional certificate, given as DER.
    pub fn trust_certificate(mut self, certificate: Vec<u8>) -> Result<Self, tls::Error> {
        self.roots.add(certificate)?;
        Ok(self)
    }

    /// Replaces the clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Builds the client.
    pub fn build(self) -> Result<Client, tls::Error> {
        let (verified, unverified) = (tls::verified_client(self.roots)?, tls::unverified_client()?);
        let pool = |tls: &rustls::ClientConfig, allow_local| {
            let mut connector =
                HttpConnector::new_with_resolver(GuardedResolver::new(Arc::clone(&self.lookup), allow_local));
            connector.enforce_http(false);
            connector.set_connect_timeout(Some(self.limits.connect_timeout));
            connector.set_nodelay(true);
            let connector = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(connector);
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
                .http1_max_buf_size(MAX_HEADER_BYTES)
                // Some receivers compare `X-Gitlab-Event` case-sensitively.
                .http1_title_case_headers(true)
                .build(connector)
        };
        Ok(Client(Arc::new(Inner {
            verified: Pools { public: pool(&verified, false), local: pool(&verified, true) },
            unverified: Pools { public: pool(&unverified, false), local: pool(&unverified, true) },
            limits: self.limits,
            clock: self.clock,
        })))
    }
}

/// Sends deliveries over HTTP.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    verified: Pools,
    unverified: Pools,
    limits: ClientLimits,
    clock: Arc<dyn Clock>,
}

/// Connection pools are separated by permission: a connection into the local network must not be reused for a hook that
/// may not connect there, nor an unverified one for a hook that requires verification.
struct Pools {
    public: Pool,
    local: Pool,
}

type Pool = legacy::Client<HttpsConnector<HttpConnector<GuardedResolver>>, Full<Bytes>>;

impl Client {
    /// Creates a client with default settings.
    pub fn new() -> Result<Self, tls::Error> {
        ClientBuilder::default().build()
    }

    /// Returns a builder with default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Sends a delivery and waits for the response.
    pub async fn send(&self, target: &HookTarget, delivery: &OutgoingDelivery) -> DeliveryAttempt {
        let (started_at, start) = (self.0.clock.now(), Instant::now());
        let (url, outcome) = match Destination::for_hook(target.url.reveal()) {
            Ok(destination) => {
                (destination.masked().to_owned(), self.try_send(&destination, target, delivery, started_at).await)
            }
            // A URL that cannot be parsed cannot be masked.
            Err(error) => (String::new(), AttemptOutcome::Refused(format!("the URL {error}"))),
        };
        let duration = i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX);
        DeliveryAttempt { started_at, duration, url, signed: token(target).is_some(), outcome }
    }

    async fn try_send(
        &self,
        destination: &Destination,
        target: &HookTarget,
        delivery: &OutgoingDelivery,
        now: Time,
    ) -> AttemptOutcome {
        // IP addresses in the URL are never passed to the resolver.
        if destination.has_forbidden_host(target.allow_local) {
            return AttemptOutcome::Refused(format!("the URL {}", DestinationError::ForbiddenAddress));
        }
        let request = match build_request(destination, target, delivery) {
            Ok(request) => request,
            Err(error) => return AttemptOutcome::Refused(error.to_string()),
        };
        let ClientLimits { response_timeout, max_body_bytes, .. } = self.0.limits;
        let deadline = tokio::time::Instant::now() + response_timeout;
        let response = match timeout_at(deadline, self.pool(target).request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return errors::to_outcome(&error, self.0.limits.connect_timeout),
            Err(_) => {
                return AttemptOutcome::Unreachable(format!(
                    "no response within {}",
                    errors::format_duration(response_timeout)
                ));
            }
        };
        let redaction = Redaction::new(token(target), destination.credentials());
        AttemptOutcome::Responded(response::read(response, max_body_bytes, deadline, &redaction, now).await)
    }

    fn pool(&self, target: &HookTarget) -> &Pool {
        let pools = if target.verify_tls { &self.0.verified } else { &self.0.unverified };
        if target.allow_local { &pools.local } else { &pools.public }
    }
}

/// Returns the token, unless it is blank.
fn token(target: &HookTarget) -> Option<&str> {
    target.token.as_ref().map(Secret::reveal).filter(|token| !token.trim().is_empty())
}

/// What is invalid in a request that cannot be built; the text is shown to the owner of the hook.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the token contains characters that a header cannot hold; set another token")]
    Token(#[source] InvalidHeaderValue),
    #[error("{0}")]
    Credentials(#[source] InvalidHeaderValue),
    #[error("the URL cannot be requested")]
    Url(#[source] hyper::http::Error),
}

fn build_request(
    destination: &Destination,
    target: &HookTarget,
    delivery: &OutgoingDelivery,
) -> Result<Request<Full<Bytes>>, RequestError> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(destination.url())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("Gable/", env!("CARGO_PKG_VERSION")))
        .header("x-gitlab-event", delivery.kind.header())
        .header("x-gitlab-event-uuid", &delivery.uuid)
        .header("idempotency-key", &delivery.uuid)
        .header(outbound_addresses::HOOK_DEPTH_HEADER, delivery.depth.saturating_add(1));
    if let Some(token) = token(target) {
        let value = HeaderValue::from_bytes(token.as_bytes()).map_err(RequestError::Token)?;
        request = request
            .header("x-gitlab-token", sensitive(value))
            .header("x-hub-signature-256", format!("sha256={}", signature(token, &delivery.body)));
    }
    if let Some(credentials) = destination.credentials() {
        let value = HeaderValue::from_str(&outbound_addresses::basic_authorization(credentials));
        request = request.header(AUTHORIZATION, sensitive(value.map_err(RequestError::Credentials)?));
    }
    let body = Full::new(Bytes::copy_from_slice(delivery.body.as_bytes()));
    request.body(body).map_err(RequestError::Url)
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Returns the HMAC-SHA256 of the body in hexadecimal, with the token as key.
fn signature(token: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).expect("HMAC accepts keys of every length");
    mac.update(body.as_bytes());
    format!("{:x}", Bytes::copy_from_slice(&mac.finalize().into_bytes()))
}
