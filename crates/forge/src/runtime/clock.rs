//! Sources of time and randomness, injected so that tests control them.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use model::{Time, tokens::Secret};
use store::TimeMeasurement;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the current time, truncated to microseconds.
    fn now(&self) -> Time;

    /// Takes over a measurement of the clock of the database; only [`DatabaseClock`] does.
    fn synchronize(&self, _measured: &TimeMeasurement) {}
}

/// The clock of the operating system.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        let now = Time::now().as_microsecond();
        Time::from_microsecond(now).unwrap_or(Time::UNIX_EPOCH)
    }
}

/// Measurements that took longer are too inaccurate to be used.
const MAX_MEASUREMENT_DURATION: Duration = Duration::from_secs(1);

/// The clock of the database, which all nodes share: its time at the last measurement plus the time that has passed since. It
/// does not depend on the wall clock of this machine, and never goes back; if that of the database does, it stands still
/// until the database has caught up.
pub struct DatabaseClock(Mutex<ClockState>);

struct ClockState {
    /// The time of the database at an instant, in microseconds.
    anchor: (i64, Instant),
    /// The last time that was returned.
    last: i64,
}

impl DatabaseClock {
    /// Creates the clock from its first measurement.
    pub fn new(measured: &TimeMeasurement) -> Self {
        let anchor = anchor_of(measured);
        Self(Mutex::new(ClockState { anchor, last: anchor.0 }))
    }

    fn now_at(&self, instant: Instant) -> Time {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, at) = state.anchor;
        let elapsed = i64::try_from(instant.saturating_duration_since(at).as_micros()).unwrap_or(i64::MAX);
        state.last = state.last.max(time.saturating_add(elapsed));
        Time::from_microsecond(state.last).unwrap_or(Time::UNIX_EPOCH)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Time {
        self.now_at(Instant::now())
    }

    fn synchronize(&self, measured: &TimeMeasurement) {
        if measured.after.saturating_duration_since(measured.before) > MAX_MEASUREMENT_DURATION {
            return;
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).anchor = anchor_of(measured);
    }
}

/// Returns the time of a measurement with the instant in the middle of it.
fn anchor_of(measured: &TimeMeasurement) -> (i64, Instant) {
    let half = measured.after.saturating_duration_since(measured.before) / 2;
    (measured.time.as_microsecond(), measured.before + half)
}

/// A source of secret random values.
pub trait Secrets: Send + Sync {
    /// Fills a buffer with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// Generates an access token: 20 characters that need no escaping in URLs and headers.
    fn token(&self) -> Secret {
        let mut bytes = [0; 15];
        self.fill(&mut bytes);
        Secret::new(URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// The random source of the operating system.
pub struct SystemSecrets;

impl Secrets for SystemSecrets {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system has a random source");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(micros: i64, before: Instant, duration: Duration) -> TimeMeasurement {
        let time = Time::from_microsecond(micros).expect("in range");
        TimeMeasurement { time, before, after: before + duration }
    }

    #[test]
    fn the_clock_of_the_database_advances_from_its_last_measurement() {
        let start = Instant::now();
        let clock = DatabaseClock::new(&measurement(1_000_000, start, Duration::from_millis(10)));
        let at = |millis| clock.now_at(start + Duration::from_millis(millis)).as_microsecond();
        assert_eq!(at(5), 1_000_000, "the middle of the measurement");
        assert_eq!(at(105), 1_100_000);
        let later = start + Duration::from_millis(200);
        clock.synchronize(&measurement(9_000_000, later, Duration::ZERO));
        assert_eq!(at(300), 9_100_000);
        clock.synchronize(&measurement(50_000_000, later, Duration::from_secs(2)));
        assert_eq!(at(400), 9_200_000, "an inaccurate measurement is ignored");
    }

    #[test]
    fn the_clock_of_the_database_never_goes_back() {
        let start = Instant::now();
        let clock = DatabaseClock::new(&measurement(10_000_000, start, Duration::ZERO));
        let at = |millis| clock.now_at(start + Duration::from_millis(millis)).as_microsecond();
        assert_eq!(at(1000), 11_000_000);
        clock.synchronize(&measurement(9_500_000, start + Duration::from_secs(1), Duration::ZERO));
        assert_eq!((at(1000), at(2000)), (11_000_000, 11_000_000), "it stands still");
        assert_eq!(at(3000), 11_500_000, "until the database has caught up");
    }

    #[test]
    fn a_token_has_twenty_characters_and_is_never_repeated() {
        let (one, two) = (SystemSecrets.token(), SystemSecrets.token());
        assert!(model::tokens::is_well_formed(one.reveal()));
        assert_eq!(one.reveal().len(), model::tokens::LENGTH);
        assert_ne!(one.reveal(), two.reveal());
    }
}
