//! Log lines about rejected clients: one per minute and client network, not one per request.

use std::{
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use tracing::warn;

/// The maximum number of client networks that are tracked.
const MAX_ADDRESSES: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
/// The minimum time between two lines about the same client network.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// When each client network was last logged.
pub(super) struct RejectionLog(Mutex<LruCache<IpAddr, Instant>>);

impl Default for RejectionLog {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_ADDRESSES)))
    }
}

impl RejectionLog {
    /// Logs a rejected client, unless it was logged recently.
    pub(super) fn warn_rate_limited(&self, address: IpAddr, kind: &'static str) {
        if self.is_due(address, Instant::now()) {
            warn!(%address, kind, "rate limit exceeded; rejecting requests");
        }
    }

    fn is_due(&self, address: IpAddr, now: Instant) -> bool {
        let mut last_logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last_logged.get(&address).is_some_and(|at| now.duration_since(*at) < LOG_INTERVAL);
        if !recent {
            last_logged.put(address, now);
        }
        !recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_logged_once_a_minute() {
        let rejection_log = RejectionLog::default();
        let (start, address) = (Instant::now(), |text: &str| text.parse::<IpAddr>().expect("an address"));
        assert!(rejection_log.is_due(address("192.0.2.1"), start));
        assert!(!rejection_log.is_due(address("192.0.2.1"), start + Duration::from_secs(59)));
        assert!(rejection_log.is_due(address("192.0.2.2"), start + Duration::from_secs(59)));
        assert!(rejection_log.is_due(address("192.0.2.1"), start + Duration::from_secs(61)));
    }
}
