//! Reads request bodies into memory: small ones at once, large ones within a budget that all requests share.
//!
//! A client that proves who it is in the headers or the URL does so before its large body is read, and has a budget apart
//! from clients that do not. A token inside a body counts for nothing here, since the body has to be read first.

use std::{future::Future, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequestParts as _, RawPathParams},
    http::request::Parts,
};
use bytes::{Bytes, BytesMut};
use forge::{
    Actor, Caller, Forge,
    traces::{self, JobProof},
};
use http_body_util::BodyExt as _;
use model::tokens::Digest;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{App, error::ApiError, extract::shown_by, inbox, limits::Place, params::Bag, runner};

/// Bodies up to this size are read without a reservation and parsed where they arrive.
pub(crate) const SMALL: usize = 64 << 10;
/// How long a body may take to arrive.
pub(crate) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// For how long the rest of a refused body is read and thrown away: many clients listen only after they have sent all.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);
/// How many large bodies are parsed at the same time.
const PARSED_AT_ONCE: usize = 2;

static PARSING: Semaphore = Semaphore::const_new(PARSED_AT_ONCE);

/// What proves that a client may send a large body.
#[derive(Clone, Copy)]
pub(crate) enum Prover {
    /// The token of a user.
    User,
    /// Tokens for the job in the path.
    Job(fn(Vec<Digest>) -> JobProof),
}

/// A body in memory.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    /// What was reserved for it; to be held for as long as the bytes or what was read from them.
    pub(crate) places: Vec<Place>,
    /// Whether the client has proved who it is. Nobody looks for small bodies.
    pub(crate) is_proved: bool,
}

/// Reads a body of up to `limit` bytes.
pub(crate) async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    prover: Prover,
) -> Result<ReadBody, ApiError> {
    let announced = body.size_hint();
    // Told ahead, so that a client that asks first does not send it at all.
    if announced.lower() > limit as u64 {
        return Err(ApiError::TooLarge);
    }
    let expected = announced.exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(limit);
    let mut incoming = Incoming { body: Some(body), deadline: Instant::now() + ARRIVAL_TIMEOUT };
    let mut read = ReadBody { bytes: Bytes::new(), places: Vec::new(), is_proved: false };
    if announced.lower() > SMALL as u64 {
        read.reserve(app, parts, expected, prover).await?;
        incoming.deadline = Instant::now() + ARRIVAL_TIMEOUT;
    }
    let mut bytes = BytesMut::new();
    while let Some(piece) = incoming.next().await? {
        if bytes.len() + piece.len() > limit {
            incoming.body = None;
            return Err(ApiError::TooLarge);
        }
        if read.places.is_empty() && bytes.len() + piece.len() > SMALL {
            let start = Instant::now();
            read.reserve(app, parts, expected, prover).await?;
            incoming.deadline += start.elapsed();
        }
        bytes.extend_from_slice(&piece);
    }
    read.bytes = bytes.freeze();
    Ok(read)
}

impl ReadBody {
    async fn reserve(&mut self, app: &App, parts: &mut Parts, bytes: usize, prover: Prover) -> Result<(), ApiError> {
        self.is_proved = is_proved(app, parts, prover).await?;
        self.places.push(app.limits().body_place(&parts.extensions, bytes, self.is_proved).await?);
        Ok(())
    }
}

/// Runs a parser: at once for a small body, and on a thread where it blocks nobody for a large one. The parser goes on if
/// its client leaves, so the reserved places and the permit to parse stay with it, and the places are given back with the
/// result.
pub(crate) async fn parse<T, F>(
    size: usize,
    places: Vec<Place>,
    parser: impl FnOnce() -> F + Send + 'static,
) -> Result<(T, Vec<Place>), ApiError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ApiError>> + Send,
{
    if size <= SMALL {
        return parser().await.map(|parsed| (parsed, places));
    }
    // It is never closed.
    let permit = PARSING.acquire().await;
    let runtime = Handle::current();
    let parsed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        runtime.block_on(parser()).map(|parsed| (parsed, places))
    });
    parsed.await.unwrap_or_else(|error| Err(forge::Error::Internal(format!("a parser: {error}")).into()))
}

/// Whether headers and URL prove who is asking.
pub(crate) async fn is_proved(app: &App, parts: &mut Parts, prover: Prover) -> Result<bool, ApiError> {
    let forge = app.forge();
    match prover {
        Prover::User => {
            let query = inbox::read_query(parts.uri.query())?;
            Ok(is_user(forge, shown_by(&parts.headers)).await || is_user(forge, shown_in(&query)).await)
        }
        Prover::Job(proof) => Ok(check_job(forge, parts, proof).await.is_ok()),
    }
}

async fn is_user(forge: &Forge, caller: Caller) -> bool {
    caller.shows_something()
        && forge.read_inline(caller, |tx| Ok(matches!(tx.actor(), Actor::User { .. }))).await.unwrap_or(false)
}

fn shown_in(query: &Bag) -> Caller {
    let names = ["private_token", "access_token", "bearer_token"];
    Caller::with_tokens(names.iter().filter_map(|name| query.text(name)).filter(|token| !token.is_empty()))
}

/// Fails unless headers and URL have a token for the job in the path.
pub(crate) async fn check_job(
    forge: &Forge,
    parts: &mut Parts,
    proof: fn(Vec<Digest>) -> JobProof,
) -> Result<(), ApiError> {
    let query = inbox::read_query(parts.uri.query())?;
    let tokens = runner::tokens(&parts.headers, &query);
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| ApiError::NoRoute)?;
    let number = params.iter().find(|(name, _)| *name == "id").and_then(|(_, number)| number.parse().ok());
    let number = number.ok_or(ApiError::NoRoute)?;
    Ok(traces::check_proof(forge, number, proof(tokens)).await?)
}

/// What a client sends. What is left of it when this is dropped is read for a while and thrown away: a connection closed on a
/// client that still sends takes the answer with it.
struct Incoming {
    body: Option<Body>,
    deadline: Instant,
}

impl Incoming {
    /// The next piece, if one comes in time.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            let error = match timeout_at(self.deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => return Ok(Some(piece)),
                    // Trailers.
                    Err(_) => continue,
                },
                Ok(None) => None,
                Ok(Some(Err(error))) if is_too_slow(&error) => Some(ApiError::TooSlow),
                Ok(Some(Err(_))) => Some(ApiError::BadBody),
                Err(_) => Some(ApiError::TooSlow),
            };
            self.body = None;
            return error.map_or(Ok(None), Err);
        }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            discard(body);
        }
    }
}

/// Reads a body for a while in the background and throws it away.
pub(crate) fn discard(mut body: Body) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(timeout(DISCARD_TIMEOUT, async move { while let Some(Ok(_)) = body.frame().await {} }));
    }
}

/// Whether reading the connection has timed out.
fn is_too_slow(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    })
}
