//! How much memory reading objects may take, whatever was pushed.
//!
//! gix refuses every single allocation of more than [`UNRESERVED`] bytes, so an ordinary read needs no look at the size
//! first. What is larger is read by `large.rs`: in pieces, or whole after room was reserved here.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The largest commit and the largest tag object that is taken in, and that is shown in full, in bytes.
pub const LARGEST_COMMIT: u64 = 1 << 20;
/// The largest tree that is taken in and read, in bytes: a folder of some 200,000 entries.
pub const LARGEST_TREE: u64 = 8 << 20;
/// The longest path in a repository that is read, in bytes.
pub(crate) const LONGEST_PATH: usize = 8 << 10;

/// What one read may allocate at once without a reservation, in bytes.
pub(crate) const UNRESERVED: usize = 2 << 20;
/// What a request may hold with a reservation, in bytes: two of the largest trees.
pub(crate) const RESERVATION: u64 = 2 * LARGEST_TREE;
/// How many requests may hold a reservation at the same time.
const RESERVATIONS: usize = 3;
/// How long a request waits for a reservation. Requests that hold one wait for nobody, so this is generous.
const LONGEST_WAIT: Duration = Duration::from_secs(100);

static RESERVED: Reservations = Reservations { held: Mutex::new(0), freed: Condvar::new() };

struct Reservations {
    held: Mutex<usize>,
    freed: Condvar,
}

/// Room for [`RESERVATION`] bytes; given back when it is dropped.
///
/// A request takes one at most, so two requests never wait for each other.
pub(crate) struct Reservation(());

impl Reservation {
    /// Waits for room.
    pub(crate) fn wait() -> Result<Self> {
        let deadline = Instant::now() + LONGEST_WAIT;
        let mut held = RESERVED.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held >= RESERVATIONS {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Busy);
            }
            held = RESERVED.freed.wait_timeout(held, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *held += 1;
        Ok(Self(()))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        *RESERVED.held.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        RESERVED.freed.notify_one();
    }
}

/// A number of bytes in the unit that people use, with one digit after the point unless it is a round number.
pub(crate) fn in_words(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KB", "MB", "GB"];
    let Some(power) = (1..=UNITS.len()).rev().find(|power| bytes >> (10 * power) > 0) else {
        return format!("{bytes} bytes");
    };
    let (whole, rest) = (bytes >> (10 * power), bytes & ((1 << (10 * power)) - 1));
    let digit = (rest * 10) >> (10 * power);
    let unit = UNITS[power - 1];
    if rest == 0 { format!("{whole} {unit}") } else { format!("{whole}.{digit} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_given_back() {
        for _ in 0..2 * RESERVATIONS {
            drop(Reservation::wait().expect("room"));
        }
    }

    #[test]
    fn sizes_are_readable() {
        let sizes = [0, 1023, 1024, LARGEST_COMMIT, LARGEST_COMMIT + 1, LARGEST_TREE, 7 << 29];
        let expected = ["0 bytes", "1023 bytes", "1 KB", "1 MB", "1.0 MB", "8 MB", "3.5 GB"];
        assert_eq!(sizes.map(in_words), expected);
    }
}
