//! How often one address may try to sign in.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{extract::FromRequestParts, http::request::Parts};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::{
    App,
    error::ApiError,
    neighbourhood::{address_in, neighbourhood},
    routes::{ArgDoc, OperationDoc},
};

/// How many addresses are remembered before those that have been quiet are forgotten.
const REMEMBERED: usize = 10_000;

/// Counts attempts by address.
pub(crate) struct SignInThrottle {
    limiter: Option<DefaultKeyedRateLimiter<IpAddr>>,
    attempts: AtomicUsize,
}

impl SignInThrottle {
    pub(crate) fn new(per_minute: Option<NonZeroU32>) -> Self {
        let limiter = per_minute.map(|count| RateLimiter::keyed(Quota::per_minute(count)));
        Self { limiter, attempts: AtomicUsize::new(0) }
    }

    fn admits(&self, address: IpAddr) -> bool {
        let Some(limiter) = &self.limiter else { return true };
        // Not at every attempt: a flood of addresses must not make each of them cost a walk over all.
        if limiter.len() > REMEMBERED && self.attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(REMEMBERED) {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        limiter.check_key(&neighbourhood(address)).is_ok()
    }
}

/// Leave to try a password, or 429.
pub(crate) struct MayTry;

impl FromRequestParts<App> for MayTry {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let address = address_in(&parts.extensions);
        if app.throttle().admits(address) {
            return Ok(Self);
        }
        app.limits().note_sign_in(address);
        Err(ApiError::Throttled)
    }
}

impl ArgDoc for MayTry {
    fn describe(operation: &mut OperationDoc) {
        operation.throttled = true;
    }
}
