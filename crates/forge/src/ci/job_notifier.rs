//! Notifies waiting runners of new pending jobs, and records which jobs runners are about to take. Use cases call
//! `WriteTx::notify_runners`; the runners are notified once the transaction is committed.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::{JobId, ProjectId, Time};
use tokio::sync::watch;

use crate::{runners::RecentContacts, stale_jobs::FIRST_UPDATE_TIMEOUT};

/// The default time that a runner waits for a job; shorter than the minute after which most gateways time out.
const DEFAULT_WAIT_TIMEOUT: Duration = Duration::from_secs(50);

/// Wakes up waiting runners whenever a job may have become available to them.
pub(crate) struct JobNotifier {
    changes: watch::Sender<NotifierState>,
    /// When this process started, in microseconds; distinguishes its cursors from those of earlier processes.
    epoch: u64,
    /// When this process started to serve runners, by its own clock.
    started_at: Time,
    /// In milliseconds.
    wait_timeout: AtomicU64,
    /// How long a runner may take to send the first update about a job, in milliseconds.
    first_update_timeout: AtomicU64,
    /// The jobs that runners are about to take, with their projects.
    claims: Mutex<HashMap<JobId, ProjectId>>,
    /// The last recorded contacts of runners.
    pub(crate) contacts: RecentContacts,
    /// The stuck jobs that were reported in the log.
    reported_stuck: Mutex<HashSet<StuckKey>>,
}

/// Identifies stuck jobs by project, tags and reason.
type StuckKey = (ProjectId, Vec<String>, String);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct NotifierState {
    version: u64,
    closed: bool,
}

impl JobNotifier {
    /// Creates the notifier of a process that starts at this time.
    pub(crate) fn new(started_at: Time) -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            changes: watch::Sender::default(),
            epoch: u64::try_from(epoch.as_micros()).unwrap_or_default(),
            started_at,
            wait_timeout: AtomicU64::new(u64::try_from(DEFAULT_WAIT_TIMEOUT.as_millis()).unwrap_or(u64::MAX)),
            first_update_timeout: AtomicU64::new(u64::try_from(FIRST_UPDATE_TIMEOUT.as_millis()).unwrap_or(u64::MAX)),
            claims: Mutex::default(),
            contacts: RecentContacts::default(),
            reported_stuck: Mutex::default(),
        }
    }

    /// Stores the stuck jobs that are reported now and returns the previous ones.
    pub(crate) fn replace_reported_stuck(&self, now: HashSet<StuckKey>) -> HashSet<StuckKey> {
        std::mem::replace(&mut *self.reported_stuck.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Returns when this process started to serve runners.
    pub(crate) fn started_at(&self) -> Time {
        self.started_at
    }

    /// Returns how long a runner waits for a job.
    pub(crate) fn wait_timeout(&self) -> Duration {
        Duration::from_millis(self.wait_timeout.load(Ordering::Relaxed))
    }

    /// Sets how long a runner waits for a job.
    pub(crate) fn set_wait_timeout(&self, timeout: Duration) {
        self.wait_timeout.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns how long a runner may take to send the first update about a job.
    pub(crate) fn first_update_timeout(&self) -> Duration {
        Duration::from_millis(self.first_update_timeout.load(Ordering::Relaxed))
    }

    /// Sets how long a runner may take to send the first update about a job.
    pub(crate) fn set_first_update_timeout(&self, timeout: Duration) {
        self.first_update_timeout.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Wakes up all waiting runners.
    pub(crate) fn notify(&self) {
        self.changes.send_modify(|state| state.version += 1);
    }

    /// Wakes up all waiting runners and lets none wait again, because the server shuts down.
    pub(crate) fn close(&self) {
        self.changes.send_modify(|state| state.closed = true);
    }

    /// Returns a value that changes with every notification. A runner that found no job sends it with its next request.
    pub(crate) fn cursor(&self) -> String {
        format!("{:x}-{:x}", self.epoch, self.changes.borrow().version)
    }

    /// Returns whether a cursor was created by this process.
    pub(crate) fn is_own(&self, cursor: &str) -> bool {
        cursor.split_once('-').is_some_and(|(epoch, _)| epoch == format!("{:x}", self.epoch))
    }

    /// Waits until the cursor changes; the caller applies a timeout.
    pub(crate) async fn changed_since(&self, cursor: &str) {
        let mut changes = self.changes.subscribe();
        while !changes.borrow_and_update().closed && self.cursor() == cursor {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns how many jobs of a project are claimed.
    pub(crate) fn claimed_in(&self, project: ProjectId) -> usize {
        self.lock().values().filter(|of| **of == project).count()
    }

    /// Claims the first of these `(job, project)` pairs that is not claimed yet. This makes concurrent requests take
    /// different jobs; correctness does not depend on it.
    pub(crate) fn claim(self: &Arc<Self>, jobs: &[(JobId, ProjectId)]) -> Option<JobClaim> {
        let mut claims = self.lock();
        let free: Vec<(JobId, ProjectId)> = jobs.iter().copied().filter(|(job, _)| !claims.contains_key(job)).collect();
        let (first, project) = *free.first()?;
        claims.insert(first, project);
        let jobs = free.into_iter().map(|(job, _)| job).collect();
        Some(JobClaim { notifier: Arc::clone(self), jobs, completed: false })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, ProjectId>> {
        self.claims.lock().expect("nothing panics while holding this")
    }
}

/// A claim on the first of some jobs, which falls back to the others.
pub(crate) struct JobClaim {
    notifier: Arc<JobNotifier>,
    jobs: Vec<JobId>,
    completed: bool,
}

impl JobClaim {
    /// Returns the job IDs in the order in which to try them.
    pub(crate) fn jobs(&self) -> &[JobId] {
        &self.jobs
    }

    /// Ends the claim without notifying others: the first job was taken or is no longer available.
    pub(crate) fn complete(mut self) {
        self.completed = true;
    }
}

impl Drop for JobClaim {
    fn drop(&mut self) {
        if let Some(first) = self.jobs.first() {
            self.notifier.lock().remove(first);
        }
        // Other runners skipped the job because of this claim.
        if !self.completed {
            self.notifier.notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier() -> Arc<JobNotifier> {
        Arc::new(JobNotifier::new(Time::UNIX_EPOCH))
    }

    fn job(id: i64) -> (JobId, ProjectId) {
        (JobId::new(id), ProjectId::new(7))
    }

    #[test]
    fn two_runners_claim_different_jobs_and_a_third_one_none() {
        let notifier = notifier();
        let jobs = [job(1), job(2)];
        let [(first, project), (second, _)] = jobs;
        let one = notifier.claim(&jobs).expect("the first");
        let two = notifier.claim(&jobs).expect("the second");
        assert_eq!((one.jobs(), two.jobs()), (&[first, second][..], &[second][..]));
        assert!(notifier.claim(&jobs).is_none());
        assert_eq!((notifier.claimed_in(project), notifier.claimed_in(ProjectId::new(8))), (2, 0));
        one.complete();
        assert_eq!(notifier.claim(&jobs).expect("free again").jobs(), [first]);
    }

    #[test]
    fn a_claim_that_is_dropped_notifies_the_other_runners() {
        let notifier = notifier();
        let cursor = notifier.cursor();
        assert!(notifier.is_own(&cursor) && !notifier.is_own("0-1") && !notifier.is_own("x"));
        notifier.claim(&[job(1)]).expect("free").complete();
        assert_eq!(notifier.cursor(), cursor);
        drop(notifier.claim(&[job(1)]));
        assert_ne!(notifier.cursor(), cursor);
    }

    #[tokio::test]
    async fn waiting_ends_with_a_notification_and_at_shutdown() {
        let notifier = notifier();
        let cursor = notifier.cursor();
        notifier.notify();
        notifier.changed_since(&cursor).await;
        let cursor = notifier.cursor();
        notifier.close();
        notifier.changed_since(&cursor).await;
        assert_eq!(notifier.cursor(), cursor);
    }
}
