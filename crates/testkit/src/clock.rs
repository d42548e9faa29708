//! Time and randomness for tests.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use forge::clock::{Clock, Secrets};
use jiff::SignedDuration;
use model::Time;

/// A clock that only the test moves.
pub struct TestClock(AtomicI64);

impl Default for TestClock {
    fn default() -> Self {
        let start: Time = "2026-01-02T03:04:05.678901Z".parse().expect("a valid time");
        Self(AtomicI64::new(start.as_microsecond()))
    }
}

impl TestClock {
    /// Sets the time.
    pub fn set(&self, time: Time) {
        self.0.store(time.as_microsecond(), Ordering::SeqCst);
    }

    /// Moves the time forward.
    pub fn advance(&self, duration: SignedDuration) {
        let micros = i64::try_from(duration.as_micros()).expect("a short time");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clone for TestClock {
    fn clone(&self) -> Self {
        Self(AtomicI64::new(self.0.load(Ordering::SeqCst)))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        Time::from_microsecond(self.0.load(Ordering::SeqCst)).expect("in range")
    }
}

/// Secrets that are the same in every run: a counter.
#[derive(Default)]
pub(crate) struct TestSecrets(AtomicU64);

impl Clone for TestSecrets {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::SeqCst)))
    }
}

impl Secrets for TestSecrets {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        for (byte, digit) in bytes.iter_mut().zip(number.to_be_bytes().into_iter().cycle()) {
            *byte = digit ^ 0x5a;
        }
    }
}
