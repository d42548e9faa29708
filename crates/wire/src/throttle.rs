//! How many wrong passwords one address may try.
//!
//! Git signs in with every request, so only failures count; but no address may have many attempts open at once, or it
//! would try them all before the first is known to have failed.

use std::{
    net::IpAddr,
    num::{NonZeroU32, NonZeroUsize},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use governor::{
    DefaultKeyedRateLimiter, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
};
use lru::LruCache;

use crate::neighbourhood::neighbourhood;

/// How many addresses are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// How many attempts one address may have open at once.
const AT_ONCE: u32 = 32;
/// How long somebody waits who has too many open.
const A_MOMENT: Duration = Duration::from_secs(1);

/// Counts failures by address.
pub(crate) struct Throttle {
    failures: Option<DefaultKeyedRateLimiter<IpAddr>>,
    known: Mutex<LruCache<IpAddr, Standing>>,
}

/// How an address stands.
#[derive(Default)]
struct Standing {
    open: u32,
    shut_until: Option<Instant>,
}

/// An attempt to sign in; over when it is dropped.
pub(crate) struct Attempt<'a> {
    throttle: &'a Throttle,
    address: IpAddr,
}

impl Throttle {
    pub(crate) fn new(failures_per_minute: Option<NonZeroU32>) -> Self {
        let failures = failures_per_minute.map(|count| RateLimiter::keyed(Quota::per_minute(count)));
        Self { failures, known: Mutex::new(LruCache::new(REMEMBERED)) }
    }

    /// Lets an address try, or tells how long it has to wait.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<Attempt<'_>, Duration> {
        let address = neighbourhood(address);
        if self.failures.is_some() {
            let mut known = self.known();
            let standing = known.get_or_insert_mut(address, Standing::default);
            if let Some(wait) = standing.shut_until.and_then(|until| until.checked_duration_since(Instant::now())) {
                return Err(wait);
            }
            if standing.open >= AT_ONCE {
                return Err(A_MOMENT);
            }
            standing.open += 1;
        }
        Ok(Attempt { throttle: self, address })
    }

    fn known(&self) -> MutexGuard<'_, LruCache<IpAddr, Standing>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// The password was wrong.
    pub(crate) fn failed(self) {
        self.throttle.fail(self.address);
    }
}

impl Throttle {
    /// Whether an address has failed so often that it is not even let in.
    pub(crate) fn is_shut(&self, address: IpAddr) -> bool {
        let standing = |until: Option<Instant>| until.is_some_and(|until| until > Instant::now());
        self.known().peek(&neighbourhood(address)).is_some_and(|known| standing(known.shut_until))
    }

    /// Counts a failure of an address.
    pub(crate) fn fail(&self, address: IpAddr) {
        let Some(failures) = &self.failures else { return };
        let address = neighbourhood(address);
        let mut known = self.known();
        if failures.len() > REMEMBERED.get() * 2 {
            failures.retain_recent();
            failures.shrink_to_fit();
        }
        // The last failure that is allowed shuts the door already, so that nothing is gained by trying at the same time.
        if let Err(not_until) = failures.check_key(&address) {
            let standing = known.get_or_insert_mut(address, Standing::default);
            standing.shut_until = Some(Instant::now() + not_until.wait_time_from(DefaultClock::default().now()));
        }
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.throttle.failures.is_some()
            && let Some(standing) = self.throttle.known().get_mut(&self.address)
        {
            standing.open = standing.open.saturating_sub(1);
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
        let throttle = Throttle::new(NonZeroU32::new(3));
        let here = address("192.0.2.1");
        for _ in 0..100 {
            drop(throttle.admit(here).expect("a right password"));
        }
        for _ in 0..4 {
            throttle.admit(here).expect("admitted").failed();
        }
        let wait = throttle.admit(here).err().expect("shut");
        assert!(wait <= Duration::from_secs(20) && wait > Duration::from_secs(10), "{wait:?}");
        assert!(throttle.admit(address("::ffff:192.0.2.1")).is_err());
        assert!(throttle.admit(address("192.0.2.2")).is_ok());
    }

    #[test]
    fn who_fails_too_often_is_not_even_let_in() {
        let throttle = Throttle::new(NonZeroU32::new(2));
        let here = address("192.0.2.1");
        for _ in 0..2 {
            throttle.fail(here);
            assert!(!throttle.is_shut(here));
        }
        throttle.fail(here);
        assert!(throttle.is_shut(here) && throttle.is_shut(address("::ffff:192.0.2.1")));
        assert!(!throttle.is_shut(address("192.0.2.2")));
    }

    #[test]
    fn many_attempts_at_once_do_not_get_by() {
        let throttle = Throttle::new(NonZeroU32::new(3));
        let network = address("2001:db8::1");
        let open: Vec<_> = (0..AT_ONCE).map(|_| throttle.admit(network).expect("admitted")).collect();
        assert_eq!(throttle.admit(address("2001:db8::2")).err(), Some(A_MOMENT));
        drop(open);
        assert!(throttle.admit(network).is_ok());
    }

    #[test]
    fn without_a_limit_nobody_is_turned_away() {
        let throttle = Throttle::new(None);
        for _ in 0..100 {
            throttle.admit(address("192.0.2.1")).expect("admitted").failed();
        }
    }
}
