//! Rate limits (requests per minute) and concurrency limits (expensive work at the same time).
//!
//! A request with a token is counted by that token before it is verified. Until the token has proved valid, the request is
//! also counted by the client network, so that made-up tokens do not bypass the limit. All other requests are counted by
//! network alone.

mod buckets;
mod permits;
mod presented_tokens;
mod rejection_log;
pub(crate) mod sign_in_limit;

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use axum::{
    body::HttpBody as _,
    extract::{MatchedPath, Request},
    http::{Extensions, StatusCode},
};
use model::addresses::client_network;
use tokio::sync::Semaphore;

use crate::{
    access_log::AccessLogContext,
    app::is_page_path,
    client_address::client_address,
    error::ApiError,
    params::RawParams,
    proxies::TrustedProxies,
    response_buffer::{self, ResponseCost},
    runner,
};
use buckets::{Buckets, Key, TakeOutcome};
pub(crate) use permits::Permit;
use permits::{PermitPool, PoolExhausted};
use presented_tokens::{PresentedTokens, TOKEN_PARAMETERS};
use rejection_log::RejectionLog;

/// Rate and concurrency limits, and how proxies and TLS are treated.
pub struct LimitOptions {
    /// The maximum number of requests per minute with one token; `None` is unlimited.
    pub requests_per_minute: Option<NonZeroU32>,
    /// The maximum number of requests per minute from one client network without a valid token; `None` is unlimited.
    pub anonymous_requests_per_minute: Option<NonZeroU32>,
    /// The proxies whose `X-Forwarded-*` and `Forwarded` headers are trusted.
    pub trusted_proxies: TrustedProxies,
    /// The `max-age` of `Strict-Transport-Security` in seconds; 0 omits the header.
    pub hsts_seconds: u32,
    /// The maximum time of a request after its body has arrived.
    pub request_timeout: Duration,
    /// The maximum number of concurrent expensive requests, in total and per client network.
    pub expensive_requests: (usize, usize),
    /// The maximum number of concurrent uploads, in total and per client network.
    pub concurrent_uploads: (usize, usize),
    /// The maximum time that a request waits for a permit.
    pub max_wait: Duration,
}

impl Default for LimitOptions {
    /// Returns options without rate limits.
    fn default() -> Self {
        Self {
            requests_per_minute: None,
            anonymous_requests_per_minute: None,
            trusted_proxies: TrustedProxies::default(),
            hsts_seconds: 0,
            request_timeout: Duration::from_secs(2 * 60),
            expensive_requests: (64, 8),
            concurrent_uploads: (256, 64),
            max_wait: Duration::from_secs(10),
        }
    }
}

/// The limits and their current state.
pub(crate) struct Limits {
    start: Instant,
    rate_limits: Option<RateLimits>,
    expensive: PermitPool,
    uploads: PermitPool,
    /// Kilobytes of request bodies: of unauthenticated clients, then of authenticated ones.
    bodies: [PermitPool; 2],
    /// Repository responses being produced: ordinary ones, then expensive ones.
    repository_responses: [PermitPool; 2],
    /// Kilobytes of other responses being produced.
    other_responses: PermitPool,
    request_timeout: Duration,
    rejection_log: RejectionLog,
}

struct RateLimits {
    tokens: Buckets,
    addresses: Option<Buckets>,
}

/// How an admitted request was counted.
#[derive(Default)]
pub(crate) struct Admission {
    /// The only token presented and whether it is verified; `None` for several, since it is unknown which one is used.
    presented: Option<(Key, bool)>,
    /// Set if the body may contain further tokens.
    pending: Option<PendingCount>,
}

/// A request that is counted, or counted again, when its body has been parsed.
#[derive(Clone)]
pub(crate) struct PendingCount {
    /// The tokens outside the body, which are counted already.
    counted_keys: Arc<[Key]>,
    /// Set after the body was parsed: its only token and whether it is verified.
    in_body: Arc<OnceLock<Option<(Key, bool)>>>,
}

/// Why a request is rejected and when the client may retry.
struct Rejection {
    kind: &'static str,
    wait: Duration,
}

/// The maximum number of bytes of large request bodies in memory per client network. All authenticated clients together may
/// use twice as much; all others together have a separate budget, a quarter larger than this.
const MAX_BODY_BYTES_PER_NETWORK: usize = 32 << 20;

impl Limits {
    /// Creates the limits. No request body is larger than `max_body_size`, except files and packs, which are never held in
    /// memory.
    pub(crate) fn new(limit_options: &LimitOptions, max_body_size: usize) -> Self {
        let each = max_body_size.max(MAX_BODY_BYTES_PER_NETWORK).div_ceil(1024).min(Semaphore::MAX_PERMITS / 2);
        let bodies = |all| PermitPool::new(all, each, limit_options.max_wait);
        let responses = |(all, each)| PermitPool::new(all, each, limit_options.request_timeout);
        let (tokens, addresses) = (limit_options.requests_per_minute, limit_options.anonymous_requests_per_minute);
        let rate_limits = (tokens.is_some() || addresses.is_some()).then(|| RateLimits {
            // Even without a limit it records which tokens are verified.
            tokens: Buckets::new(tokens.unwrap_or(NonZeroU32::MAX)),
            addresses: addresses.map(Buckets::new),
        });
        Self {
            start: Instant::now(),
            rate_limits,
            expensive: PermitPool::new(
                limit_options.expensive_requests.0,
                limit_options.expensive_requests.1,
                limit_options.max_wait,
            ),
            uploads: PermitPool::new(
                limit_options.concurrent_uploads.0,
                limit_options.concurrent_uploads.1,
                limit_options.max_wait,
            ),
            bodies: [bodies(each + each / 4), bodies(2 * each)],
            repository_responses: [
                responses(response_buffer::MAX_REPOSITORY_RESPONSES),
                responses(response_buffer::MAX_REPOSITORY_RESPONSES),
            ],
            other_responses: responses(response_buffer::MAX_RESPONSE_KILOBYTES),
            request_timeout: limit_options.request_timeout,
            rejection_log: RejectionLog::default(),
        }
    }

    /// Returns the maximum time of a request after its body has arrived.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Counts a request and admits it, or rejects it with 429.
    pub(crate) fn admit(&self, request: &mut Request) -> Result<Admission, ApiError> {
        let Some(rate_limits) = &self.rate_limits else { return Ok(Admission::default()) };
        let address = client_address(request.extensions());
        let path = request.uri().path();
        if is_unlimited(path, address) {
            return Ok(Admission::default());
        }
        let presented = if is_git_path(path) {
            PresentedTokens::from_git_request(request.headers())
        } else if is_page_path(path) {
            PresentedTokens::from_page_request(request.headers())
        } else {
            PresentedTokens::from_request(request.headers(), request.uri().query())
        };
        let keys: Arc<[Key]> = presented.secrets().map(|secret| rate_limits.tokens.key(secret)).collect();
        let may_have_body_tokens = path.starts_with("/api/") || path.starts_with(runner::ci_v1::PREFIX);
        let pending = (may_have_body_tokens && !request.body().is_end_stream())
            .then(|| PendingCount { counted_keys: Arc::clone(&keys), in_body: Arc::default() });
        if let Some(pending) = &pending {
            request.extensions_mut().insert(pending.clone());
            if keys.is_empty() {
                return Ok(Admission { presented: None, pending: Some(pending.clone()) });
            }
        }
        let presented = rate_limits
            .take(&keys, address, self.start.elapsed())
            .map_err(|rejection| self.reject(address, &rejection))?;
        Ok(Admission { presented, pending })
    }

    /// Counts a request by the tokens in its body.
    pub(crate) fn count_body_tokens(&self, extensions: &Extensions, params: &RawParams) -> Result<(), ApiError> {
        let (Some(rate_limits), Some(pending)) = (&self.rate_limits, extensions.get::<PendingCount>()) else {
            return Ok(());
        };
        let address = client_address(extensions);
        let mut presented = PresentedTokens::default();
        for text in TOKEN_PARAMETERS.iter().filter_map(|name| params.text(name)) {
            presented.add(text.as_bytes().into());
        }
        // Tokens outside the body are counted already.
        let keys: Vec<Key> = presented
            .secrets()
            .map(|secret| rate_limits.tokens.key(secret))
            .filter(|key| !pending.counted_keys.contains(key))
            .collect();
        if keys.is_empty() && !pending.counted_keys.is_empty() {
            return Ok(());
        }
        let counted = rate_limits.take(&keys, address, self.start.elapsed());
        let only_token = counted.as_ref().ok().copied().flatten().filter(|_| pending.counted_keys.is_empty());
        let _ = pending.in_body.set(only_token);
        counted.map(drop).map_err(|rejection| self.reject(address, &rejection))
    }

    /// Records from the response whether the token is valid.
    pub(crate) fn record_outcome(
        &self,
        admission: Admission,
        address: IpAddr,
        log_context: &AccessLogContext,
        status: StatusCode,
    ) {
        let Some(rate_limits) = &self.rate_limits else { return };
        let presented = match admission.pending {
            None => admission.presented,
            Some(pending) => match pending.in_body.get() {
                Some(counted) => *counted,
                None if !pending.counted_keys.is_empty() => admission.presented,
                // The request failed before its body was parsed, and is counted all the same.
                None => return drop(rate_limits.take_for_network(address, self.start.elapsed())),
            },
        };
        let Some((key, was_verified)) = presented else { return };
        let is_valid = log_context.has_user() || (status.is_success() && success_proves_token(log_context.route()));
        if is_valid && !was_verified {
            rate_limits.tokens.set_verified(key, true);
        } else if was_verified && status == StatusCode::UNAUTHORIZED {
            rate_limits.tokens.set_verified(key, false);
        }
    }

    /// Waits for a permit if the route of the request is expensive.
    pub(crate) async fn acquire_expensive(&self, extensions: &Extensions) -> Result<Option<Permit>, ApiError> {
        let route = extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        if !route.is_some_and(is_expensive) {
            return Ok(None);
        }
        self.acquire(&self.expensive, "expensive", extensions).await.map(Some)
    }

    /// Waits for a permit to upload a file.
    pub(crate) async fn acquire_upload(&self, extensions: &Extensions) -> Result<Permit, ApiError> {
        self.acquire(&self.uploads, "uploads", extensions).await
    }

    /// Waits until the given number of bytes of a request body may be held in memory.
    pub(crate) async fn acquire_body(
        &self,
        extensions: &Extensions,
        bytes: usize,
        is_authenticated: bool,
    ) -> Result<Permit, ApiError> {
        let address = client_address(extensions);
        let pool = &self.bodies[usize::from(is_authenticated)];
        let acquired = pool.acquire_many(client_network(address), bytes.div_ceil(1024)).await;
        acquired.map_err(|exhausted| self.permit_error(exhausted, "bodies", address))
    }

    /// Reserves further memory for parsed parameters without waiting, since the request already holds a permit.
    pub(crate) fn try_acquire_body(
        &self,
        extensions: &Extensions,
        bytes: usize,
        is_authenticated: bool,
    ) -> Result<Permit, ApiError> {
        let address = client_address(extensions);
        let pool = &self.bodies[usize::from(is_authenticated)];
        let acquired = pool.try_acquire_many(client_network(address), bytes.div_ceil(1024));
        acquired.map_err(|exhausted| self.permit_error(exhausted, "bodies", address))
    }

    /// Waits until a response of this cost may be produced; the memory is released when the permit is dropped.
    pub(crate) async fn acquire_response(
        &self,
        extensions: &Extensions,
        cost: ResponseCost,
    ) -> Result<Permit, ApiError> {
        let address = client_address(extensions);
        let (pool, count) = match cost {
            ResponseCost::Repository { expensive } => (&self.repository_responses[usize::from(expensive)], 1),
            ResponseCost::Kilobytes(count) => (&self.other_responses, count),
        };
        let acquired = pool.acquire_many(client_network(address), count).await;
        acquired.map_err(|exhausted| self.permit_error(exhausted, "responses", address))
    }

    async fn acquire(
        &self,
        pool: &PermitPool,
        kind: &'static str,
        extensions: &Extensions,
    ) -> Result<Permit, ApiError> {
        let address = client_address(extensions);
        pool.acquire(client_network(address)).await.map_err(|exhausted| self.permit_error(exhausted, kind, address))
    }

    fn permit_error(&self, exhausted: PoolExhausted, kind: &'static str, address: IpAddr) -> ApiError {
        match exhausted {
            PoolExhausted::PerNetwork => self.reject(address, &Rejection { kind, wait: Duration::from_secs(5) }),
            PoolExhausted::Total => {
                count(kind);
                ApiError::Forge(forge::Error::Busy)
            }
        }
    }

    /// Logs and counts a client that is over the sign-in limit.
    pub(crate) fn log_sign_in_rejection(&self, address: IpAddr) {
        count("sign_in");
        self.rejection_log.warn_rate_limited(client_network(address), "sign_in");
    }

    fn reject(&self, address: IpAddr, rejection: &Rejection) -> ApiError {
        count(rejection.kind);
        self.rejection_log.warn_rate_limited(client_network(address), rejection.kind);
        ApiError::RateLimited(rejection.wait)
    }
}

impl RateLimits {
    /// Counts a request by each of its tokens, whichever of them is used. Returns the token and whether it is verified if
    /// there is only one.
    fn take(&self, keys: &[Key], address: IpAddr, now: Duration) -> Result<Option<(Key, bool)>, Rejection> {
        // The network is counted first: invented tokens must not evict valid ones from memory.
        if keys.len() != 1 || !self.tokens.is_verified(keys[0]) {
            self.take_for_network(address, now)?;
        }
        let mut last = None;
        for key in keys {
            match self.tokens.take(*key, now) {
                TakeOutcome::Taken { verified } => last = Some((*key, verified)),
                TakeOutcome::Empty { wait } => return Err(Rejection { kind: "token", wait }),
            }
        }
        Ok(last.filter(|_| keys.len() == 1))
    }

    fn take_for_network(&self, address: IpAddr, now: Duration) -> Result<(), Rejection> {
        let Some(addresses) = &self.addresses else { return Ok(()) };
        match addresses.take(addresses.key(client_network(address)), now) {
            TakeOutcome::Taken { .. } => Ok(()),
            TakeOutcome::Empty { wait } => Err(Rejection { kind: "address", wait }),
        }
    }
}

fn count(kind: &'static str) {
    metrics::counter!("gable_limited_requests_total", "kind" => kind).increment(1);
}

/// Returns whether a path is exempt because monitoring uses it.
fn is_unlimited(path: &str, address: IpAddr) -> bool {
    match path {
        "/-/health" | "/-/ready" => true,
        "/-/metrics" => address.is_loopback(),
        _ => false,
    }
}

/// Returns whether a path belongs to git over HTTP.
pub(crate) fn is_git_path(path: &str) -> bool {
    ["/info/refs", "/git-upload-pack", "/git-receive-pack"].iter().any(|end| path.ends_with(end))
}

/// Returns whether success on a route proves that the token is valid: git and runners, which have no user in the access log.
fn success_proves_token(route: &str) -> bool {
    route == "git" || route.starts_with(runner::v4::PREFIX) || route.starts_with(runner::ci_v1::PREFIX)
}

/// Returns whether a route keeps a thread busy for long, at a cost that the caller can choose.
pub(crate) fn is_expensive(route: &str) -> bool {
    let Some(route) = route.strip_prefix("/api/v3/") else { return false };
    matches!(
        route,
        "projects/{id}/repository/archive"
            | "projects/{id}/repository/archive.{format}"
            | "projects/{id}/repository/compare"
            | "projects/{id}/repository/contributors"
            | "projects/{id}/repository/commits/{sha}/diff"
            | "projects/{id}/repository/merged_branches"
            | "projects/fork/{id}"
            | "ci/lint"
            | "markdown"
            | "session"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expensive_route_is_served() {
        let served: Vec<String> = crate::routes::v3().iter().map(|route| format!("/api/v3{}", route.path)).collect();
        let expensive: Vec<&str> = served.iter().map(String::as_str).filter(|route| is_expensive(route)).collect();
        let mut distinct = expensive.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 10, "{distinct:?}");
        assert!(!is_expensive("/api/v3/projects/{id}"));
    }
}
