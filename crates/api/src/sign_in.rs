//! How often one address may try to sign in.

use std::{
    convert::Infallible,
    net::IpAddr,
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use axum::{extract::FromRequestParts, http::request::Parts};
use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};

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

    /// Lets somebody try, or says for how long not.
    fn admit(&self, address: IpAddr) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        // Not at every attempt: a flood of addresses must not make each of them cost a walk over all.
        if limiter.len() > REMEMBERED && self.attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(REMEMBERED) {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        let clock = DefaultClock::default();
        limiter.check_key(&neighbourhood(address)).map_err(|not_until| not_until.wait_time_from(clock.now()))
    }
}

/// Leave to try a password, or 429.
pub(crate) struct MayTry(
    /// From where somebody tries.
    pub(crate) IpAddr,
);

impl FromRequestParts<App> for MayTry {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let Ok(attempts) = PasswordAttempts::from_request_parts(parts, app).await;
        attempts.count().map(|()| Self(attempts.address))
    }
}

/// Counts attempts at a password where a request may or may not bring one.
pub(crate) struct PasswordAttempts {
    app: App,
    address: IpAddr,
}

impl PasswordAttempts {
    /// Counts one attempt, or answers 429.
    pub(crate) fn count(&self) -> Result<(), ApiError> {
        self.app.throttle().admit(self.address).map_err(|wait| {
            self.app.limits().note_sign_in(self.address);
            ApiError::Limited(wait)
        })
    }
}

impl FromRequestParts<App> for PasswordAttempts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        Ok(Self { app: app.clone(), address: address_in(&parts.extensions) })
    }
}

impl ArgDoc for PasswordAttempts {
    fn describe(operation: &mut OperationDoc) {
        operation.throttled = true;
    }
}

impl ArgDoc for MayTry {
    fn describe(operation: &mut OperationDoc) {
        operation.throttled = true;
    }
}
