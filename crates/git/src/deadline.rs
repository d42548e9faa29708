//! Limits on the time for which one request may occupy a thread: deadlines and cancellation.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// The number of steps between two checks of the clock.
const STEPS: u32 = 256;

type IsCancelled = Rc<dyn Fn() -> bool>;

thread_local! {
    /// Returns whether the client that the current thread works for has disconnected.
    static CANCELLATION: RefCell<Option<IsCancelled>> = const { RefCell::new(None) };
}

/// Runs `work` on the current thread. Reads of repositories that take long stop with an error of the kind
/// [`io::ErrorKind::BrokenPipe`] once `is_cancelled` returns `true`.
pub fn with_cancellation<T>(is_cancelled: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    /// Restores the previous value, also after a panic.
    struct Restore(Option<IsCancelled>);

    impl Drop for Restore {
        fn drop(&mut self) {
            CANCELLATION.replace(self.0.take());
        }
    }

    let _restore = Restore(CANCELLATION.replace(Some(Rc::new(is_cancelled))));
    work()
}

/// Returns whether the client that the current thread works for has disconnected; see [`with_cancellation`].
pub fn is_cancelled() -> bool {
    let check = CANCELLATION.with_borrow(Option::clone);
    check.is_some_and(|check| check())
}

/// A deadline after which work fails with [`Error::Busy`].
pub(crate) struct Deadline {
    until: Instant,
    steps: Cell<u32>,
}

impl Deadline {
    pub(crate) fn within(time: Duration) -> Self {
        Self { until: Instant::now() + time, steps: Cell::new(0) }
    }

    pub(crate) fn has_passed(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Counts one step of the work. The first step and every 256th after it fail if the deadline has passed or the client
    /// has disconnected.
    pub(crate) fn step(&self) -> Result<()> {
        let steps = self.steps.get();
        self.steps.set((steps + 1) % STEPS);
        if steps == 0 { self.check() } else { Ok(()) }
    }

    /// Fails if the deadline has passed or the client has disconnected.
    pub(crate) fn check(&self) -> Result<()> {
        if is_cancelled() {
            return Err(Error::Io(io::ErrorKind::BrokenPipe.into()));
        }
        if self.has_passed() { Err(Error::Busy) } else { Ok(()) }
    }
}

/// A deadline after which the rest of the work is left out. Unlike [`Deadline`] it never fails: what was found so far is
/// the result.
pub(crate) struct SoftDeadline {
    /// `None` once it was made to expire early.
    until: Option<Instant>,
}

impl SoftDeadline {
    pub(crate) fn within(time: Duration) -> Self {
        Self { until: Some(Instant::now() + time) }
    }

    /// Makes the deadline pass now.
    pub(crate) fn expire(&mut self) {
        self.until = None;
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() > until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_ends_at_its_deadline_and_when_its_client_disconnects() {
        let passed = Deadline::within(Duration::ZERO);
        assert!(matches!(passed.step(), Err(Error::Busy)));
        assert!((1..STEPS).all(|_| passed.step().is_ok()), "the clock is not checked with every step");
        assert!(matches!(passed.step(), Err(Error::Busy)));

        let ahead = Deadline::within(Duration::from_secs(3600));
        let is_broken_pipe = |result: Result<()>| match result {
            Err(Error::Io(error)) => error.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        };
        assert!(with_cancellation(|| true, || is_broken_pipe(ahead.step())));
        assert!(with_cancellation(|| false, || ahead.check()).is_ok());
        assert!(ahead.check().is_ok(), "a cancellation ends with its work");
    }
}
