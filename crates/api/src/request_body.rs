//! Reads request bodies into memory: small ones directly, large ones within a memory budget shared by all requests.
//!
//! Clients that authenticate in the headers or the URL are checked before a large body is read and have a separate budget.
//! A token inside the body does not count, since the body would have to be read first.

use std::{future::Future, time::Duration};

use axum::{
    body::{Body, HttpBody as _},
    extract::{FromRequestParts as _, RawPathParams},
    http::request::Parts,
};
use bytes::{Bytes, BytesMut};
use forge::{
    Actor, Caller, Forge,
    traces::{self, JobCredentials},
};
use http_body_util::BodyExt as _;
use model::tokens::Digest;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    App, error::ApiError, extract::caller_from_headers, limits::Permit, params::RawParams, request_params, runner,
};

/// The maximum size of a body that is read without a reservation and parsed on the async thread.
pub(crate) const MAX_SMALL_BODY: usize = 64 << 10;
/// The maximum time for a body to arrive.
pub(crate) const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the rest of a refused body is read and discarded: many clients read the response only after sending all of it.
pub(crate) const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum number of large bodies parsed concurrently.
const MAX_CONCURRENT_PARSES: usize = 2;

static PARSE_PERMITS: Semaphore = Semaphore::const_new(MAX_CONCURRENT_PARSES);

/// How a client is authenticated before its large body is read.
#[derive(Clone, Copy)]
pub(crate) enum LargeBodyAuth {
    /// By the token of a user.
    User,
    /// By tokens for the job in the path.
    Job(fn(Vec<Digest>) -> JobCredentials),
}

/// A body in memory.
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    /// The memory reserved for the body; held as long as the bytes or values parsed from them.
    pub(crate) permits: Vec<Permit>,
    /// Whether the client is authenticated. Not checked for small bodies.
    pub(crate) is_authenticated: bool,
}

/// Reads a body of up to `limit` bytes.
pub(crate) async fn read(
    app: &App,
    parts: &mut Parts,
    body: Body,
    limit: usize,
    auth: LargeBodyAuth,
) -> Result<ReadBody, ApiError> {
    let size_hint = body.size_hint();
    // Refused before reading, so that a client that sends `Expect: 100-continue` does not send it at all.
    if size_hint.lower() > limit as u64 {
        return Err(ApiError::BodyTooLarge);
    }
    let expected = size_hint.exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(limit);
    let mut incoming = Incoming { body: Some(body), deadline: Instant::now() + ARRIVAL_TIMEOUT };
    let mut read = ReadBody { bytes: Bytes::new(), permits: Vec::new(), is_authenticated: false };
    if size_hint.lower() > MAX_SMALL_BODY as u64 {
        read.reserve(app, parts, expected, auth).await?;
        incoming.deadline = Instant::now() + ARRIVAL_TIMEOUT;
    }
    let mut bytes = BytesMut::new();
    while let Some(chunk) = incoming.next().await? {
        if bytes.len() + chunk.len() > limit {
            incoming.body = None;
            return Err(ApiError::BodyTooLarge);
        }
        if read.permits.is_empty() && bytes.len() + chunk.len() > MAX_SMALL_BODY {
            let start = Instant::now();
            read.reserve(app, parts, expected, auth).await?;
            incoming.deadline += start.elapsed();
        }
        bytes.extend_from_slice(&chunk);
    }
    read.bytes = bytes.freeze();
    Ok(read)
}

impl ReadBody {
    async fn reserve(
        &mut self,
        app: &App,
        parts: &mut Parts,
        bytes: usize,
        auth: LargeBodyAuth,
    ) -> Result<(), ApiError> {
        self.is_authenticated = is_authenticated(app, parts, auth).await?;
        self.permits.push(app.limits().acquire_body(&parts.extensions, bytes, self.is_authenticated).await?);
        Ok(())
    }
}

/// Runs a parser: directly for a small body, on a blocking thread for a large one. The parser continues if its client
/// disconnects, so it owns the permits and returns them with the result.
pub(crate) async fn parse<T, F>(
    size: usize,
    permits: Vec<Permit>,
    parser: impl FnOnce() -> F + Send + 'static,
) -> Result<(T, Vec<Permit>), ApiError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ApiError>> + Send,
{
    if size <= MAX_SMALL_BODY {
        return parser().await.map(|parsed| (parsed, permits));
    }
    // Never closed.
    let permit = PARSE_PERMITS.acquire().await;
    let runtime = Handle::current();
    let parsed = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        runtime.block_on(parser()).map(|parsed| (parsed, permits))
    });
    parsed.await.unwrap_or_else(|error| Err(forge::Error::internal("request parser failed", error).into()))
}

/// Returns whether the headers or the URL authenticate the client.
pub(crate) async fn is_authenticated(app: &App, parts: &mut Parts, auth: LargeBodyAuth) -> Result<bool, ApiError> {
    let forge = app.forge();
    match auth {
        LargeBodyAuth::User => {
            let query = request_params::read_query(parts.uri.query())?;
            Ok(is_user(forge, caller_from_headers(&parts.headers)).await
                || is_user(forge, caller_from_query(&query)).await)
        }
        LargeBodyAuth::Job(credentials) => Ok(check_job_token(forge, parts, credentials).await.is_ok()),
    }
}

async fn is_user(forge: &Forge, caller: Caller) -> bool {
    caller.has_credentials()
        && forge.read_inline(caller, |tx| Ok(matches!(tx.actor(), Actor::User { .. }))).await.unwrap_or(false)
}

fn caller_from_query(query: &RawParams) -> Caller {
    let names = ["private_token", "access_token", "bearer_token"];
    Caller::with_tokens(names.iter().filter_map(|name| query.text(name)).filter(|token| !token.is_empty()))
}

/// Fails unless the headers or the URL have a token for the job in the path.
pub(crate) async fn check_job_token(
    forge: &Forge,
    parts: &mut Parts,
    credentials: fn(Vec<Digest>) -> JobCredentials,
) -> Result<(), ApiError> {
    let query = request_params::read_query(parts.uri.query())?;
    let tokens = runner::tokens(&parts.headers, &query);
    let params = RawPathParams::from_request_parts(parts, &()).await.map_err(|_| ApiError::RouteNotFound)?;
    let number = params.iter().find(|(name, _)| *name == "id").and_then(|(_, number)| number.parse().ok());
    let number = number.ok_or(ApiError::RouteNotFound)?;
    Ok(traces::check_credentials(forge, number, credentials(tokens)).await?)
}

/// A body being received. The rest is discarded in the background on drop: closing the connection while the client still
/// sends would lose the response.
struct Incoming {
    body: Option<Body>,
    deadline: Instant,
}

impl Incoming {
    /// Returns the next chunk, if it arrives before the deadline.
    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        let Some(body) = &mut self.body else { return Ok(None) };
        loop {
            let error = match timeout_at(self.deadline, body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => return Ok(Some(chunk)),
                    // Trailers.
                    Err(_) => continue,
                },
                Ok(None) => None,
                Ok(Some(Err(error))) if is_timeout(&error) => Some(ApiError::BodyTimeout),
                Ok(Some(Err(_))) => Some(ApiError::MalformedBody),
                Err(_) => Some(ApiError::BodyTimeout),
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

/// Reads and discards a body in the background, for a limited time.
pub(crate) fn discard(mut body: Body) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(timeout(DISCARD_TIMEOUT, async move { while let Some(Ok(_)) = body.frame().await {} }));
    }
}

/// Returns whether reading from the connection timed out.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut)
    })
}
