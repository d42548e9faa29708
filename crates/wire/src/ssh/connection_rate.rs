//! Limits the rate of SSH connections of a client network, and of those that fail to authenticate.

use std::net::IpAddr;

use forge::rate_limiter::NetworkRateLimiter;
use model::addresses::client_network;
use tracing::warn;

use super::Options;
use crate::failed_sign_ins::FailedSignInLimiter;

/// Counts connections by client network.
pub(super) struct ConnectionRateLimiter {
    connections: NetworkRateLimiter,
    failures: FailedSignInLimiter,
}

impl ConnectionRateLimiter {
    pub(super) fn new(options: &Options) -> Self {
        let connections = NetworkRateLimiter::per_minute(options.connections_per_minute);
        Self { connections, failures: FailedSignInLimiter::new(options.failures_per_minute) }
    }

    /// Returns whether another connection from this address is allowed.
    pub(super) fn admits(&self, address: IpAddr) -> bool {
        !self.failures.is_blocked(address) && self.connections.check(address).is_ok()
    }

    /// Records a connection that ended without authentication.
    pub(super) fn record_failure(&self, address: IpAddr) {
        let before = self.failures.is_blocked(address);
        self.failures.record_failure(address);
        if !before && self.failures.is_blocked(address) {
            warn!(address = %client_network(address), "SSH connections are refused: too many without authentication");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn connections_are_limited_by_rate_and_by_failures() {
        let (connections_per_minute, failures_per_minute) = (NonZeroU32::new(3), NonZeroU32::new(2));
        let limiter =
            ConnectionRateLimiter::new(&Options { connections_per_minute, failures_per_minute, ..Options::default() });
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let admitted = (0..10).filter(|_| limiter.admits(address("192.0.2.1"))).count();
        assert_eq!(admitted, 3);
        for _ in 0..3 {
            assert!(limiter.admits(address("2001:db8::1")));
            limiter.record_failure(address("2001:db8::1"));
        }
        assert!(!limiter.admits(address("2001:db8::2")), "the same network");
        assert!(limiter.admits(address("192.0.2.2")));
        let open = ConnectionRateLimiter::new(&Options::default());
        for _ in 0..100 {
            open.record_failure(address("192.0.2.1"));
            assert!(open.admits(address("192.0.2.1")));
        }
    }
}
