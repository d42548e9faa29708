//! How often one address may try to sign in.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{
    extract::{ConnectInfo, FromRequestParts},
    http::request::Parts,
};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::{
    App,
    error::ApiError,
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

/// Whoever has one address of an IPv6 network has all of them.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Leave to try a password, or 429.
pub(crate) struct MayTry;

impl FromRequestParts<App> for MayTry {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Self::Rejection> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |peer| peer.0.ip());
        if app.throttle().admits(address) { Ok(Self) } else { Err(ApiError::Throttled) }
    }
}

impl ArgDoc for MayTry {
    fn describe(operation: &mut OperationDoc) {
        operation.throttled = true;
    }
}
