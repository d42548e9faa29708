//! Whether the standby can be used, and what is logged about it.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use store::ReplayState;
use tracing::{info, warn};

use crate::Error;

/// How long the standby is not used after it failed or was too far behind.
const PAUSE: Duration = Duration::from_secs(1);
/// How long it is not used after it did not answer, for which a request has waited.
const PAUSE_WITHOUT_ANSWER: Duration = Duration::from_secs(5);
/// How long another server than the logged one is used, or for another reason, until that is logged.
const LOG_DELAY: Duration = Duration::from_secs(5);

/// Why a list is not read from the standby.
#[derive(Debug, thiserror::Error)]
pub(super) enum StandbyProblem {
    /// The thread has no connection to it.
    #[error("not connected to the standby")]
    NotConnected,
    /// It was not used for a while when the list was about to be read.
    #[error("the standby is not used for a moment")]
    Paused,
    /// All threads are busy.
    #[error("too many lists are queued for the standby")]
    Busy,
    /// It does not have what was committed before.
    #[error("{}", describe(*.0))]
    Replay(ReplayState),
    /// It does not answer, or too late.
    #[error("the standby does not answer in time")]
    NoAnswer,
    /// It answers with an error.
    #[error("{0}")]
    Failed(String),
    /// The primary does not say how far the standby has to be.
    #[error("cannot ask the primary for the position of its log: {0}")]
    NoPosition(String),
}

/// Says what is wrong, and what to do.
fn describe(state: ReplayState) -> &'static str {
    match state {
        ReplayState::Replayed | ReplayState::Behind => {
            "the standby is behind the primary; check its load and its replication, or use synchronous replication"
        }
        ReplayState::OtherTimeline => {
            "the last checkpoint of the standby is of another timeline; run CHECKPOINT on it if it follows the primary, or wait"
        }
        ReplayState::NotAStandby => {
            "the server is not a standby; add target_session_attrs=read-only to the URL of read-replica"
        }
        ReplayState::OtherCluster => {
            "the server belongs to another cluster than the primary; set read-replica to standbys of the primary"
        }
        ReplayState::OtherDatabase => {
            "the URL of read-replica names another database than the one of the primary; use the same name"
        }
    }
}

impl StandbyProblem {
    /// Returns the kind, and how long the standby is not used; `None` if the problem is one of the list only.
    fn effect(&self) -> Option<(ProblemKind, Duration)> {
        match self {
            Self::NotConnected | Self::Paused | Self::Busy => None,
            Self::Replay(state) => Some((ProblemKind::Replay(*state), PAUSE)),
            Self::Failed(_) => Some((ProblemKind::Failed, PAUSE)),
            Self::NoAnswer => Some((ProblemKind::NoAnswer, PAUSE_WITHOUT_ANSWER)),
            Self::NoPosition(_) => Some((ProblemKind::NoPosition, PAUSE_WITHOUT_ANSWER)),
        }
    }
}

/// Whether the standby can be used.
#[derive(Default)]
pub(super) struct ReplicaState {
    /// The number of threads that are connected.
    connections: AtomicUsize,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    /// The standby is not used until then.
    paused_until: Option<Instant>,
    log: UsageLog,
    /// Whether it was logged that not all threads can connect.
    is_refusal_logged: bool,
}

/// The server from which lists are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Standby,
    Primary(ProblemKind),
}

/// The kind of a problem for which the primary is used. Texts of the same kind may differ each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProblemKind {
    /// No thread can connect to the standby.
    Refused,
    Replay(ReplayState),
    NoAnswer,
    Failed,
    NoPosition,
}

/// Decides when a change of the server, or of the reason for it, is logged. A standby that is sometimes behind would otherwise
/// fill the log.
#[derive(Default)]
struct UsageLog {
    /// What was logged last.
    logged: Option<Server>,
    /// What was used last instead of it, and since when that server has been used.
    changed_to: Option<(Server, Instant)>,
}

impl UsageLog {
    /// Records which server is used and why; returns whether to log it.
    fn record(&mut self, used: Server, now: Instant) -> bool {
        if self.logged == Some(used) {
            self.changed_to = None;
            return false;
        }
        // The reasons for the primary may alternate.
        let is_standby = |server: Server| server == Server::Standby;
        let since = match self.changed_to {
            Some((last, since)) if is_standby(last) == is_standby(used) => since,
            _ => now,
        };
        self.changed_to = Some((used, since));
        if self.logged.is_some() && now.duration_since(since) < LOG_DELAY {
            return false;
        }
        *self = Self { logged: Some(used), changed_to: None };
        true
    }
}

impl ReplicaState {
    pub(super) fn is_usable(&self) -> bool {
        self.has_connections() && self.ensure_not_paused().is_ok()
    }

    pub(super) fn has_connections(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
    }

    pub(super) fn ensure_not_paused(&self) -> Result<(), StandbyProblem> {
        let is_paused = self.usage().paused_until.is_some_and(|until| until > Instant::now());
        if is_paused { Err(StandbyProblem::Paused) } else { Ok(()) }
    }

    pub(super) fn add_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.usage().is_refusal_logged = false;
    }

    pub(super) fn remove_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a thread cannot connect. The others go on.
    pub(super) fn record_refusal(&self, reason: &Error) {
        if !self.has_connections() {
            log_primary(&mut self.usage(), ProblemKind::Refused, reason);
        } else if !std::mem::replace(&mut self.usage().is_refusal_logged, true) {
            warn!(%reason, "cannot open all connections to the standby of the database; lists use the others");
        }
    }

    /// Records that a list is read from the primary instead.
    pub(super) fn record_problem(&self, problem: &StandbyProblem) {
        let Some((kind, pause)) = problem.effect() else { return };
        let mut usage = self.usage();
        usage.paused_until = usage.paused_until.max(Some(Instant::now() + pause));
        log_primary(&mut usage, kind, problem);
    }

    /// Records that a list was read from the standby.
    pub(super) fn record_success(&self) {
        let mut usage = self.usage();
        if usage.log.record(Server::Standby, Instant::now()) {
            info!("lists are read from the standby of the database");
        }
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_primary(usage: &mut Usage, kind: ProblemKind, reason: &dyn std::fmt::Display) {
    if usage.log.record(Server::Primary(kind), Instant::now()) {
        warn!(%reason, "lists are read from the primary database instead of the standby");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_logged_when_it_is_used_for_a_while() {
        const BEHIND: Server = Server::Primary(ProblemKind::Replay(ReplayState::Behind));
        let (mut log, start) = (UsageLog::default(), Instant::now());
        let mut check = |second, used, expected| {
            assert_eq!(log.record(used, start + Duration::from_secs(second)), expected, "after {second} s: {used:?}");
        };
        check(0, BEHIND, true);
        check(1, BEHIND, false);
        check(2, Server::Standby, false);
        check(6, Server::Standby, false);
        check(7, Server::Standby, true);
        // It is behind now and then.
        check(8, BEHIND, false);
        check(12, Server::Standby, false);
        check(14, BEHIND, false);
        check(18, BEHIND, false);
        check(19, BEHIND, true);
        check(20, BEHIND, false);
    }

    #[test]
    fn another_reason_for_the_primary_is_logged() {
        let (mut log, start) = (UsageLog::default(), Instant::now());
        let mut check = |second, kind, expected| {
            let used = Server::Primary(kind);
            assert_eq!(log.record(used, start + Duration::from_secs(second)), expected, "after {second} s: {kind:?}");
        };
        // The standby does not have the database yet.
        check(0, ProblemKind::Refused, true);
        check(1, ProblemKind::NoPosition, false);
        check(5, ProblemKind::NoPosition, false);
        check(6, ProblemKind::NoPosition, true);
        check(12, ProblemKind::NoPosition, false);
    }

    #[test]
    fn a_single_failure_of_a_standby_that_is_used_again_is_not_logged() {
        let (mut log, start) = (UsageLog::default(), Instant::now());
        let mut check = |second, used, expected| {
            assert_eq!(log.record(used, start + Duration::from_secs(second)), expected, "after {second} s: {used:?}");
        };
        check(0, Server::Primary(ProblemKind::Refused), true);
        check(1, Server::Standby, false);
        check(5, Server::Standby, false);
        check(6, Server::Primary(ProblemKind::Failed), false);
        check(7, Server::Standby, false);
        check(12, Server::Standby, true);
    }

    #[test]
    fn only_problems_of_the_standby_pause_it() {
        for (problem, is_usable) in [
            (StandbyProblem::Busy, true),
            (StandbyProblem::NotConnected, true),
            (StandbyProblem::Replay(ReplayState::Behind), false),
            (StandbyProblem::NoAnswer, false),
        ] {
            let state = ReplicaState::default();
            state.add_connection();
            state.record_refusal(&Error::Busy);
            state.record_problem(&problem);
            assert_eq!(state.is_usable(), is_usable, "{problem}");
        }
    }
}
