//! The guarded way out: sends one message to one receiver.
//!
//! What a name leads to is judged in the very lookup whose addresses are then talked to, so it does not
//! matter what the name leads to before or afterwards. Redirects are not followed, proxies of the environment not asked.

mod answers;
mod lookup;
mod words;

#[cfg(test)]
mod tests;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use forge::{
    clock::{Clock, SystemClock},
    deliveries::{Address, Letter},
    outgoing::{self, Destination, Refused},
};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::Full;
use hyper::{
    Method, Request,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use model::{
    Time,
    hooks::{Attempt, Outcome},
    tokens::Secret,
};
use sha2::Sha256;
use tls::Roots;
use tokio::time::timeout_at;
use tracing::warn;

pub use lookup::{Looking, Lookup};

use answers::Redaction;
use lookup::Guard;

/// How many connections to a receiver are kept for what comes next: as many as are under way to it at once.
const IDLE_PER_HOST: usize = 16;
/// For how long: shorter than what widespread servers wait before they hang up, lest a message meets a closing door.
const IDLE: Duration = Duration::from_secs(4);
/// How long the headers of an answer may be.
const LONGEST_HEAD: usize = 64 << 10;

/// How long and how much a receiver may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the status and all headers are there; also the end of waiting for the body.
    pub answer: Duration,
    /// How many bytes of the body are read.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), answer: Duration::from_secs(10), body: 64 << 10 }
    }
}

/// How a client differs from the usual one.
pub struct Setup {
    limits: Limits,
    lookup: Lookup,
    roots: Roots,
    clock: Arc<dyn Clock>,
}

impl Default for Setup {
    /// What the machine believes: its names, its authorities, its clock.
    fn default() -> Self {
        Self { limits: Limits::default(), lookup: lookup::system(), roots: roots(), clock: Arc::new(SystemClock) }
    }
}

/// The authorities of the machine. Without any, only receivers that need to prove nothing are told something; that is no
/// reason not to serve.
fn roots() -> Roots {
    let (roots, problems) = Roots::of_the_machine();
    if roots.is_empty() {
        warn!(?problems, "no root certificates are found, so no receiver of hooks can prove who it is");
    }
    roots
}

impl Setup {
    /// Waits for longer or shorter.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Looks names up in another way.
    pub fn lookup(mut self, lookup: Lookup) -> Self {
        self.lookup = lookup;
        self
    }

    /// Also believes in a certificate, given as DER.
    pub fn trust(mut self, certificate: Vec<u8>) -> Result<Self, String> {
        self.roots.add(certificate)?;
        Ok(self)
    }

    /// Has another clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Makes the client.
    pub fn build(self) -> Result<Client, String> {
        let (strict, lenient) = (tls::strict(self.roots)?, tls::careless()?);
        let pool = |tls: &rustls::ClientConfig, may_be_local| {
            let mut connector = HttpConnector::new_with_resolver(Guard::new(Arc::clone(&self.lookup), may_be_local));
            connector.enforce_http(false);
            connector.set_connect_timeout(Some(self.limits.connect));
            connector.set_nodelay(true);
            let connector = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_or_http()
                .enable_http1()
                .wrap_connector(connector);
            legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_PER_HOST)
                .http1_max_buf_size(LONGEST_HEAD)
                // Some receivers look for `X-Gitlab-Event` letter by letter.
                .http1_title_case_headers(true)
                .build(connector)
        };
        Ok(Client(Arc::new(Inner {
            strict: Pools { open: pool(&strict, false), local: pool(&strict, true) },
            lenient: Pools { open: pool(&lenient, false), local: pool(&lenient, true) },
            limits: self.limits,
            clock: self.clock,
        })))
    }
}

/// Sends messages.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    strict: Pools,
    lenient: Pools,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

/// Connections are kept apart by what their user may do: a connection to the network of the service itself is none for
/// somebody who may not go there, and one to a receiver that proved nothing none for somebody who wants a proof.
struct Pools {
    open: Pool,
    local: Pool,
}

type Pool = legacy::Client<HttpsConnector<HttpConnector<Guard>>, Full<Bytes>>;

impl Client {
    /// A client that keeps connections for a while.
    pub fn new() -> Result<Self, String> {
        Setup::default().build()
    }

    /// A client that differs from the usual one.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Sends one message and waits for the answer, for as long as is fitting.
    pub async fn send(&self, address: &Address, letter: &Letter) -> Attempt {
        let (at, start) = (self.0.clock.now(), Instant::now());
        let (url, outcome) = match Destination::for_hook(address.url.reveal()) {
            Ok(destination) => (destination.masked().to_owned(), self.bring(&destination, address, letter, at).await),
            // What cannot be read cannot be masked, either.
            Err(Refused(why)) => (String::new(), Outcome::Refused(format!("the URL {why}"))),
        };
        let duration = i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX);
        Attempt { at, duration, url, signed: token(address).is_some(), outcome }
    }

    async fn bring(&self, destination: &Destination, address: &Address, letter: &Letter, now: Time) -> Outcome {
        // Addresses that stand in the URL itself are never looked up.
        if destination.is_plainly_closed(address.may_be_local) {
            return Outcome::Refused(format!("the URL {}", outgoing::CLOSED));
        }
        let request = match request(destination, address, letter) {
            Ok(request) => request,
            Err(why) => return Outcome::Refused(why),
        };
        let Limits { answer, body, .. } = self.0.limits;
        let deadline = tokio::time::Instant::now() + answer;
        let response = match timeout_at(deadline, self.pool(address).request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return words::outcome(&error, self.0.limits.connect),
            Err(_) => return Outcome::Unreachable(format!("no answer within {}", words::duration(answer))),
        };
        let redaction = Redaction::new(token(address), destination.credentials());
        Outcome::Answered(answers::read(response, body, deadline, &redaction, now).await)
    }

    fn pool(&self, address: &Address) -> &Pool {
        let pools = if address.verify { &self.0.strict } else { &self.0.lenient };
        if address.may_be_local { &pools.local } else { &pools.open }
    }
}

/// The token, unless there is nothing in it.
fn token(address: &Address) -> Option<&str> {
    address.token.as_ref().map(Secret::reveal).filter(|token| !token.trim().is_empty())
}

fn request(destination: &Destination, address: &Address, letter: &Letter) -> Result<Request<Full<Bytes>>, String> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(destination.url())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("Gable/", env!("CARGO_PKG_VERSION")))
        .header("x-gitlab-event", letter.occasion.header())
        .header("x-gitlab-event-uuid", &letter.uuid)
        .header("idempotency-key", &letter.uuid)
        .header(outgoing::DEPTH, letter.depth.saturating_add(1));
    if let Some(token) = token(address) {
        let value = HeaderValue::from_bytes(token.as_bytes());
        let value = value.map_err(|_| "the token holds characters that cannot be sent; give the hook another one")?;
        request = request
            .header("x-gitlab-token", sensitive(value))
            .header("x-hub-signature-256", format!("sha256={}", signature(token, &letter.body)));
    }
    if let Some(credentials) = destination.credentials() {
        let value = HeaderValue::from_str(&outgoing::basic(credentials)).map_err(|error| error.to_string())?;
        request = request.header(AUTHORIZATION, sensitive(value));
    }
    let body = Full::new(Bytes::copy_from_slice(letter.body.as_bytes()));
    request.body(body).map_err(|_| "the URL cannot be asked for".to_owned())
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Shows the receiver that the sender knows the token and that nobody changed what is said.
fn signature(token: &str, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(token.as_bytes()).expect("keys of every length are fine");
    mac.update(body.as_bytes());
    format!("{:x}", Bytes::copy_from_slice(&mac.finalize().into_bytes()))
}
