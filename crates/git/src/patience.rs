//! How long one reader may keep a thread busy.

use std::time::{Duration, Instant};

/// Almost all differences are found within milliseconds, but there are files made to take long.
const LONGEST_WORK: Duration = Duration::from_secs(10);

/// A time after which what is left of a work is left out.
pub(crate) struct Patience {
    until: Option<Instant>,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self::of(LONGEST_WORK)
    }

    pub(crate) fn of(time: Duration) -> Self {
        Self { until: Some(Instant::now() + time) }
    }

    /// Has no more from now on.
    pub(crate) fn lose(&mut self) {
        self.until = None;
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() > until)
    }
}
