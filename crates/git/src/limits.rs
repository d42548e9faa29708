//! Limits on the memory for reading objects, whatever was pushed.
//!
//! gix refuses every single allocation of more than [`MAX_UNRESERVED`] bytes, so an ordinary read need not check the
//! size first. Larger objects are read by `large_object.rs`: in chunks, or whole with a reservation.

use std::{
    cell::RefCell,
    marker::PhantomData,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The maximum size of a commit or a tag object that is accepted, and that is read in full, in bytes.
pub(crate) const MAX_COMMIT_SIZE: u64 = 1 << 20;
/// The maximum size of a tree that is accepted and read, in bytes: a folder of some 200,000 entries.
pub(crate) const MAX_TREE_SIZE: u64 = 8 << 20;
/// The maximum length of a path in a repository, in bytes.
pub(crate) const MAX_PATH_LENGTH: usize = 8 << 10;

/// The maximum size of one allocation without a reservation, in bytes.
pub(crate) const MAX_UNRESERVED: usize = 2 << 20;
/// The memory that a request may hold with a reservation, in bytes: two trees of the maximum size.
pub(crate) const RESERVATION_SIZE: u64 = 2 * MAX_TREE_SIZE;
/// The maximum number of requests that hold a reservation at the same time.
const MAX_RESERVATIONS: usize = 3;
/// How long a request waits for others before it fails as busy. It occupies a thread meanwhile.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

static RESERVED: Slots = Slots::new(MAX_RESERVATIONS);

/// A counting semaphore.
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A permit of [`Slots`]; released when it is dropped.
pub(crate) struct Slot(&'static Slots);

impl Slots {
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a slot; fails with [`Error::Busy`] if none is free within [`WAIT_TIMEOUT`].
    pub(crate) fn take(&'static self) -> Result<Slot> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Busy);
            }
            free = self.freed.wait_timeout(free, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Ok(Slot(self))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

thread_local! {
    /// The number of reservations of the current thread, and the slot that they share.
    static THREAD_RESERVATION: RefCell<(usize, Option<Slot>)> = const { RefCell::new((0, None)) };
}

/// Permission to hold [`RESERVATION_SIZE`] bytes; kept together with the buffers that need it.
///
/// All reservations of a thread share one slot, so a thread with a reservation never waits for another one. It has to
/// be taken before locks that other requests wait for.
pub(crate) struct Reservation {
    /// A reservation belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl Reservation {
    /// Waits for a reservation; fails with [`Error::Busy`] if there is none within [`WAIT_TIMEOUT`].
    pub(crate) fn take() -> Result<Self> {
        THREAD_RESERVATION.with_borrow_mut(|(count, slot)| {
            if slot.is_none() {
                *slot = Some(RESERVED.take()?);
            }
            *count += 1;
            Ok(Self { not_send: PhantomData })
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        THREAD_RESERVATION.with_borrow_mut(|(count, slot)| {
            *count -= 1;
            if *count == 0 {
                *slot = None;
            }
        });
    }
}

/// The bytes of an object, with a reservation if it is large.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    reservation: Option<Reservation>,
}

impl Buffer {
    /// Empties the buffer before the next read. Its memory is reused unless it is more than may be held without a
    /// reservation.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > MAX_UNRESERVED {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.reservation = None;
    }

    /// Creates a buffer that reuses an allocation.
    pub(crate) fn from_vec(bytes: Vec<u8>) -> Self {
        Self { bytes, reservation: None }
    }

    /// Returns the bytes and the reservation for them.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Reservation>) {
        (self.bytes, self.reservation)
    }

    /// Takes a reservation for a large object, if there is none yet.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        if self.reservation.is_none() {
            self.reservation = Some(Reservation::take()?);
        }
        Ok(())
    }
}

/// Formats a size with a unit, and with one decimal unless it is a round number.
pub(crate) fn format_size(bytes: u64) -> String {
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
    fn waiting_for_a_slot_times_out() {
        static SLOTS: Slots = Slots::new(2);
        let (first, second) = (SLOTS.take().expect("a slot"), SLOTS.take().expect("a slot"));
        assert!(matches!(SLOTS.take(), Err(Error::Busy)), "both are held");
        drop(first);
        let third = SLOTS.take().expect("a slot that was released");
        drop((second, third));
        assert_eq!(*SLOTS.free.lock().expect("no panic"), 2);
    }

    #[test]
    fn all_reservations_of_a_thread_share_one_slot_until_they_are_dropped() {
        let thread_state = || THREAD_RESERVATION.with_borrow(|(count, slot)| (*count, slot.is_some()));
        let first = Reservation::take().expect("a reservation");
        let second = Reservation::take().expect("a reservation");
        assert_eq!(thread_state(), (2, true), "two reservations share one slot");
        drop(first);
        assert_eq!(thread_state(), (1, true), "the slot is kept for the second");
        drop(second);
        assert_eq!(thread_state(), (0, false));
        let mut buffer = Buffer::default();
        buffer.reserve().expect("a reservation");
        buffer.reserve().expect("the same reservation");
        buffer.bytes = vec![0; 2 * MAX_UNRESERVED];
        assert_eq!(thread_state(), (1, true));
        buffer.clear();
        assert_eq!(
            (thread_state(), buffer.bytes.capacity()),
            ((0, false), 0),
            "the reservation is dropped with the bytes"
        );
    }

    #[test]
    fn sizes_are_formatted_with_units() {
        let sizes = [0, 1023, 1024, MAX_COMMIT_SIZE, MAX_COMMIT_SIZE + 1, MAX_TREE_SIZE, 7 << 29];
        let expected = ["0 bytes", "1023 bytes", "1 KB", "1 MB", "1.0 MB", "8 MB", "3.5 GB"];
        assert_eq!(sizes.map(format_size), expected);
    }
}
