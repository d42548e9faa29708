//! Logs when the server stops and starts to be ready. Load balancers ask every few seconds, so not each response is logged.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{info, warn};

/// What the server needs to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependency {
    Database,
    Store,
    Disk,
}

/// Why the server is not ready.
pub(crate) struct NotReady {
    pub(crate) dependency: Dependency,
    /// The message to the client.
    pub(crate) message: String,
    /// The cause, for the log only.
    pub(crate) reason: String,
}

/// The state that was logged last.
#[derive(Default)]
pub(crate) struct ReadinessLog(Mutex<Option<Outage>>);

/// The time in which the server is not ready.
#[derive(Clone, Copy)]
struct Outage {
    dependency: Dependency,
    since: Instant,
}

/// A change of the state.
#[derive(Debug, PartialEq, Eq)]
enum Transition {
    /// The server is not ready any more, or for another reason than before.
    NotReady,
    /// The server is ready after this time.
    ReadyAgain(Duration),
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Store => "store",
            Self::Disk => "disk",
        })
    }
}

impl ReadinessLog {
    /// Records the outcome of a check, and logs it if it differs from the last one. The texts of errors may vary while one
    /// dependency is away, so they are not compared.
    pub(crate) fn record(&self, problem: Option<&NotReady>) {
        match (self.transition(problem.map(|problem| problem.dependency), Instant::now()), problem) {
            (Some(Transition::NotReady), Some(NotReady { dependency, reason, .. })) => {
                warn!(%dependency, reason, "not ready; logged once until this changes");
            }
            (Some(Transition::ReadyAgain(after)), _) => info!(seconds = after.as_secs(), "ready again"),
            _ => {}
        }
    }

    fn transition(&self, missing: Option<Dependency>, now: Instant) -> Option<Transition> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (*logged, missing) {
            (None, None) => None,
            (Some(Outage { since, .. }), None) => {
                *logged = None;
                Some(Transition::ReadyAgain(now.saturating_duration_since(since)))
            }
            (Some(outage), Some(dependency)) if outage.dependency == dependency => None,
            (outage, Some(dependency)) => {
                *logged = Some(Outage { dependency, since: outage.map_or(now, |outage| outage.since) });
                Some(Transition::NotReady)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_of_readiness_are_logged() {
        let (log, start) = (ReadinessLog::default(), Instant::now());
        let check = |second: u64, missing: Option<Dependency>, expected: Option<Transition>| {
            assert_eq!(log.transition(missing, start + Duration::from_secs(second)), expected, "after {second} s");
        };
        check(0, None, None);
        check(2, Some(Dependency::Store), Some(Transition::NotReady));
        check(4, Some(Dependency::Store), None);
        check(6, Some(Dependency::Database), Some(Transition::NotReady));
        check(8, Some(Dependency::Database), None);
        check(10, None, Some(Transition::ReadyAgain(Duration::from_secs(8))));
        check(12, None, None);
        check(14, Some(Dependency::Database), Some(Transition::NotReady));
    }
}
