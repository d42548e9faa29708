//! Lines in the log about those who are turned away: one a minute for each of them, not one a request.

use std::{
    net::IpAddr,
    num::NonZeroUsize,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;
use tracing::warn;

/// How many are remembered.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(1024).expect("not zero");
/// How long nothing more is said of somebody.
const PAUSE: Duration = Duration::from_secs(60);

/// Whom the log has told of, and when.
pub(super) struct Notices(Mutex<LruCache<IpAddr, Instant>>);

impl Default for Notices {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(REMEMBERED)))
    }
}

impl Notices {
    /// Writes a line, unless there was one a moment ago.
    pub(super) fn tell(&self, address: IpAddr, kind: &'static str) {
        if self.is_due(address, Instant::now()) {
            warn!(%address, kind, "requests are turned away, because too many come");
        }
    }

    fn is_due(&self, address: IpAddr, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = told.get(&address).is_some_and(|at| now.duration_since(*at) < PAUSE);
        if !recent {
            told.put(address, now);
        }
        !recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_told_of_once_a_minute() {
        let notices = Notices::default();
        let (start, address) = (Instant::now(), |text: &str| text.parse::<IpAddr>().expect("an address"));
        assert!(notices.is_due(address("192.0.2.1"), start));
        assert!(!notices.is_due(address("192.0.2.1"), start + Duration::from_secs(59)));
        assert!(notices.is_due(address("192.0.2.2"), start + Duration::from_secs(59)));
        assert!(notices.is_due(address("192.0.2.1"), start + Duration::from_secs(61)));
    }
}
