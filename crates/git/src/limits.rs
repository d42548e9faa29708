//! How much memory reading objects may take, whatever was pushed.
//!
//! gix refuses every single allocation of more than [`UNRESERVED`] bytes, so an ordinary read needs no look at the size
//! first. What is larger is read by `large.rs`: in pieces, or whole after room was reserved here.

use std::{
    cell::RefCell,
    marker::PhantomData,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The largest commit and the largest tag object that is taken in, and that is shown in full, in bytes.
pub(crate) const LARGEST_COMMIT: u64 = 1 << 20;
/// The largest tree that is taken in and read, in bytes: a folder of some 200,000 entries.
pub(crate) const LARGEST_TREE: u64 = 8 << 20;
/// The longest path in a repository that is read, in bytes.
pub(crate) const LONGEST_PATH: usize = 8 << 10;

/// What one read may allocate at once without a reservation, in bytes.
pub(crate) const UNRESERVED: usize = 2 << 20;
/// What a request may hold with a reservation, in bytes: two of the largest trees.
pub(crate) const RESERVATION: u64 = 2 * LARGEST_TREE;
/// How many requests may hold a reservation at the same time.
const RESERVATIONS: usize = 3;
/// How long a request waits for others before it is told to try again. It keeps a thread meanwhile.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(1);

static RESERVED: Slots = Slots::new(RESERVATIONS);

/// A number of places, of which each is held by one thread at a time.
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// One of the places of [`Slots`]; given back when it is dropped.
pub(crate) struct Slot(&'static Slots);

impl Slots {
    pub(crate) const fn new(count: usize) -> Self {
        Self { free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a place; fails with [`Error::Busy`] if none is free within [`LONGEST_WAIT`].
    pub(crate) fn take(&'static self) -> Result<Slot> {
        let deadline = Instant::now() + LONGEST_WAIT;
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
    /// The reservation of the current thread, and how many values share it.
    static HELD: RefCell<(usize, Option<Slot>)> = const { RefCell::new((0, None)) };
}

/// Room for [`RESERVATION`] bytes; kept together with the buffers that it pays for.
///
/// All reservations of one thread share one place, so a thread that holds one never waits for another. Take it before
/// locks that other requests wait for.
pub(crate) struct Reservation {
    /// It belongs to the thread that has taken it.
    not_send: PhantomData<*const ()>,
}

impl Reservation {
    /// Waits for room; fails with [`Error::Busy`] if there is none within [`LONGEST_WAIT`].
    pub(crate) fn take() -> Result<Self> {
        HELD.with_borrow_mut(|(count, slot)| {
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
        HELD.with_borrow_mut(|(count, slot)| {
            *count -= 1;
            if *count == 0 {
                *slot = None;
            }
        });
    }
}

/// The bytes of an object, with room for them if they are many.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    room: Option<Reservation>,
}

impl Buffer {
    /// Empties the buffer before something else is read into it. What it was read into stays allocated unless that is
    /// more than may be held without a reservation.
    pub(crate) fn clear(&mut self) {
        if self.bytes.capacity() > UNRESERVED {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.room = None;
    }

    /// A buffer that makes use of what is allocated already.
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, room: None }
    }

    /// The bytes, and the room for them.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Reservation>) {
        (self.bytes, self.room)
    }

    /// Makes sure that there is room for a large object.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        if self.room.is_none() {
            self.room = Some(Reservation::take()?);
        }
        Ok(())
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
    fn waiting_for_a_place_ends_with_an_error() {
        static PLACES: Slots = Slots::new(2);
        let (first, second) = (PLACES.take().expect("a place"), PLACES.take().expect("a place"));
        assert!(matches!(PLACES.take(), Err(Error::Busy)), "both are held, and nobody gives one back");
        drop(first);
        let third = PLACES.take().expect("a place that was given back");
        drop((second, third));
        assert_eq!(*PLACES.free.lock().expect("no panic"), 2);
    }

    #[test]
    fn a_thread_holds_one_place_for_all_its_reservations_and_only_as_long_as_their_buffers() {
        let held = || HELD.with_borrow(|(count, slot)| (*count, slot.is_some()));
        let first = Reservation::take().expect("room");
        let second = Reservation::take().expect("room");
        assert_eq!(held(), (2, true), "two reservations share one place");
        drop(first);
        assert_eq!(held(), (1, true), "the place is kept for the second");
        drop(second);
        assert_eq!(held(), (0, false));
        let mut buffer = Buffer::default();
        buffer.reserve().expect("room");
        buffer.reserve().expect("the same room");
        buffer.bytes = vec![0; 2 * UNRESERVED];
        assert_eq!(held(), (1, true));
        buffer.clear();
        assert_eq!((held(), buffer.bytes.capacity()), ((0, false), 0), "the room goes with the bytes that it pays for");
    }

    #[test]
    fn sizes_are_readable() {
        let sizes = [0, 1023, 1024, LARGEST_COMMIT, LARGEST_COMMIT + 1, LARGEST_TREE, 7 << 29];
        let expected = ["0 bytes", "1023 bytes", "1 KB", "1 MB", "1.0 MB", "8 MB", "3.5 GB"];
        assert_eq!(sizes.map(in_words), expected);
    }
}
