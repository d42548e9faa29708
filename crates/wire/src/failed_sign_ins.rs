//! Limits the failed sign-ins of a client network.
//!
//! Git authenticates every request, so only failures count; the REST API limits all attempts. The number of concurrent attempts is limited too, or a client could
//! start many of them before the first has failed.

use std::{
    net::IpAddr,
    num::{NonZeroU32, NonZeroUsize},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use forge::rate_limiter::NetworkRateLimiter;
use lru::LruCache;
use model::addresses::client_network;

/// The maximum number of client networks whose state is kept.
const MAX_TRACKED_NETWORKS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// The maximum number of concurrent attempts of a client network.
const MAX_OPEN_ATTEMPTS: u32 = 32;
/// The delay for a client with too many concurrent attempts.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Counts failed sign-ins by client network.
pub(crate) struct FailedSignInLimiter {
    failures: NetworkRateLimiter,
    networks: Mutex<LruCache<IpAddr, NetworkState>>,
}

/// The state of a client network.
#[derive(Default)]
struct NetworkState {
    open_attempts: u32,
    blocked_until: Option<Instant>,
}

/// An attempt to sign in; it ends when dropped.
pub(crate) struct Attempt<'a> {
    limiter: &'a FailedSignInLimiter,
    address: IpAddr,
}

impl FailedSignInLimiter {
    pub(crate) fn new(failures_per_minute: Option<NonZeroU32>) -> Self {
        let failures = NetworkRateLimiter::per_minute(failures_per_minute);
        Self { failures, networks: Mutex::new(LruCache::new(MAX_TRACKED_NETWORKS)) }
    }

    /// Starts an attempt, or returns how long the client has to wait.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Attempt<'_>, Duration> {
        let address = client_network(address);
        if self.failures.is_limited() {
            let mut networks = self.networks();
            let state = networks.get_or_insert_mut(address, NetworkState::default);
            if let Some(wait) = state.blocked_until.and_then(|until| until.checked_duration_since(Instant::now())) {
                return Err(wait);
            }
            if state.open_attempts >= MAX_OPEN_ATTEMPTS {
                return Err(RETRY_DELAY);
            }
            state.open_attempts += 1;
        }
        Ok(Attempt { limiter: self, address })
    }

    /// Returns whether a client network is blocked after too many failures.
    pub(crate) fn is_blocked(&self, address: IpAddr) -> bool {
        let is_future = |until: Option<Instant>| until.is_some_and(|until| until > Instant::now());
        self.networks().peek(&client_network(address)).is_some_and(|state| is_future(state.blocked_until))
    }

    /// Counts a failure.
    pub(crate) fn record_failure(&self, address: IpAddr) {
        let address = client_network(address);
        // The first failure above the limit blocks the network until another failure would be allowed.
        if let Err(wait) = self.failures.check(address) {
            let mut networks = self.networks();
            let state = networks.get_or_insert_mut(address, NetworkState::default);
            state.blocked_until = Some(Instant::now() + wait);
        }
    }

    fn networks(&self) -> MutexGuard<'_, LruCache<IpAddr, NetworkState>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// Records that the credentials were wrong.
    pub(crate) fn failed(self) {
        self.limiter.record_failure(self.address);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.limiter.failures.is_limited()
            && let Some(state) = self.limiter.networks().get_mut(&self.address)
        {
            state.open_attempts = state.open_attempts.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_failures_count_and_only_for_their_address() {
        let limiter = FailedSignInLimiter::new(NonZeroU32::new(3));
        let here = address("192.0.2.1");
        for _ in 0..100 {
            drop(limiter.admit(here).expect("admitted"));
        }
        for _ in 0..4 {
            limiter.admit(here).expect("admitted").failed();
        }
        let wait = limiter.admit(here).err().expect("blocked");
        assert!(wait <= Duration::from_secs(20) && wait > Duration::from_secs(10), "{wait:?}");
        assert!(limiter.admit(address("::ffff:192.0.2.1")).is_err());
        assert!(limiter.admit(address("192.0.2.2")).is_ok());
    }

    #[test]
    fn a_network_with_too_many_failures_is_blocked() {
        let limiter = FailedSignInLimiter::new(NonZeroU32::new(2));
        let here = address("192.0.2.1");
        for _ in 0..2 {
            limiter.record_failure(here);
            assert!(!limiter.is_blocked(here));
        }
        limiter.record_failure(here);
        assert!(limiter.is_blocked(here) && limiter.is_blocked(address("::ffff:192.0.2.1")));
        assert!(!limiter.is_blocked(address("192.0.2.2")));
    }

    #[test]
    fn concurrent_attempts_are_limited() {
        let limiter = FailedSignInLimiter::new(NonZeroU32::new(3));
        let network = address("2001:db8::1");
        let open_attempts: Vec<_> = (0..MAX_OPEN_ATTEMPTS).map(|_| limiter.admit(network).expect("admitted")).collect();
        assert_eq!(limiter.admit(address("2001:db8::2")).err(), Some(RETRY_DELAY));
        drop(open_attempts);
        assert!(limiter.admit(network).is_ok());
    }

    #[test]
    fn without_a_limit_no_attempt_is_refused() {
        let limiter = FailedSignInLimiter::new(None);
        for _ in 0..100 {
            limiter.admit(address("192.0.2.1")).expect("admitted").failed();
        }
    }
}
