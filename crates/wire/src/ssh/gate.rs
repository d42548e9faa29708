//! How often one address may connect, and how often without ever proving who it is.

use std::net::IpAddr;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use tracing::warn;

use super::Options;
use crate::{neighbourhood::neighbourhood, throttle::Throttle};

/// How many addresses are remembered before those that have been quiet are forgotten.
const REMEMBERED: usize = 10_000;

/// Counts connections by address.
pub(super) struct Gate {
    connections: Option<DefaultKeyedRateLimiter<IpAddr>>,
    failures: Throttle,
}

impl Gate {
    pub(super) fn new(options: &Options) -> Self {
        let connections = options.connections_per_minute.map(|count| RateLimiter::keyed(Quota::per_minute(count)));
        Self { connections, failures: Throttle::new(options.failures_per_minute) }
    }

    /// Whether another connection of this address is taken.
    pub(super) fn admits(&self, address: IpAddr) -> bool {
        if self.failures.is_shut(address) {
            return false;
        }
        let Some(connections) = &self.connections else { return true };
        if connections.len() > REMEMBERED {
            connections.retain_recent();
            connections.shrink_to_fit();
        }
        connections.check_key(&neighbourhood(address)).is_ok()
    }

    /// A connection of this address ended without a proof.
    pub(super) fn failed(&self, address: IpAddr) {
        let before = self.failures.is_shut(address);
        self.failures.fail(address);
        if !before && self.failures.is_shut(address) {
            warn!(address = %neighbourhood(address), "SSH connections are turned away: too many prove nothing");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn an_address_is_let_in_until_it_has_come_or_failed_too_often() {
        let (connections_per_minute, failures_per_minute) = (NonZeroU32::new(3), NonZeroU32::new(2));
        let gate = Gate::new(&Options { connections_per_minute, failures_per_minute, ..Options::default() });
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        let admitted = (0..10).filter(|_| gate.admits(address("192.0.2.1"))).count();
        assert_eq!(admitted, 3);
        for _ in 0..3 {
            assert!(gate.admits(address("2001:db8::1")));
            gate.failed(address("2001:db8::1"));
        }
        assert!(!gate.admits(address("2001:db8::2")), "a neighbour is the same");
        assert!(gate.admits(address("192.0.2.2")));
        let open = Gate::new(&Options::default());
        for _ in 0..100 {
            open.failed(address("192.0.2.1"));
            assert!(open.admits(address("192.0.2.1")));
        }
    }
}
