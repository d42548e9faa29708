//! A rate limit per client network, for attempts that are not frequent: sign-ins and SSH connections.

use std::{
    net::IpAddr,
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use model::addresses::client_network;

/// The number of client networks above which those without recent attempts are removed.
const MAX_TRACKED_NETWORKS: usize = 10_000;

/// Limits attempts per minute and client network; without a limit it admits all of them.
pub struct NetworkRateLimiter {
    limiter: Option<DefaultKeyedRateLimiter<IpAddr>>,
    attempts: AtomicUsize,
}

impl NetworkRateLimiter {
    /// Creates a limiter.
    pub fn per_minute(max: Option<NonZeroU32>) -> Self {
        Self { limiter: max.map(|max| RateLimiter::keyed(Quota::per_minute(max))), attempts: AtomicUsize::new(0) }
    }

    /// Returns whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.limiter.is_some()
    }

    /// Counts an attempt, or returns how long the network has to wait.
    pub fn check(&self, address: IpAddr) -> Result<(), Duration> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        // Not on every attempt, since it iterates over all networks.
        if limiter.len() > MAX_TRACKED_NETWORKS
            && self.attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(MAX_TRACKED_NETWORKS)
        {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        let clock = DefaultClock::default();
        limiter.check_key(&client_network(address)).map_err(|not_until| not_until.wait_time_from(clock.now()))
    }
}
