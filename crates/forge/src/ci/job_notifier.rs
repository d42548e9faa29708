//! Where runners wait for work without asking all the time, and where they say what they are about to take.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use model::Time;
use tokio::sync::watch;

use crate::{runners::Contacts, stale_jobs::FIRST_WORD};

/// How long a runner waits for work that found none, unless somebody says otherwise. The gateways before most services
/// let a request wait for a minute.
const PATIENCE: Duration = Duration::from_secs(50);

/// Changes whenever there may be something to do for runners that found nothing before.
pub(crate) struct Board {
    calls: watch::Sender<Called>,
    /// Tells this process from the one before it.
    origin: u64,
    /// When this process began to listen to runners.
    since: Time,
    /// In milliseconds.
    patience: AtomicU64,
    /// How long a runner that has taken a job has to say the first word about it, in milliseconds.
    first_word: AtomicU64,
    /// What runners are about to take, by number of the build, and the projects that it belongs to.
    claims: Mutex<HashMap<i64, i64>>,
    /// Which runners were heard of lately.
    pub(crate) contacts: Contacts,
    /// The jobs of which the log has said that they wait in vain.
    stuck: Mutex<HashSet<StuckKey>>,
}

/// Jobs that wait in vain: their project, their tags and the reason.
type StuckKey = (i64, Vec<String>, String);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Called {
    count: u64,
    closed: bool,
}

impl Board {
    /// The board of a process that begins at this moment of its clock.
    pub(crate) fn new(since: Time) -> Self {
        let origin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            calls: watch::Sender::default(),
            origin: u64::try_from(origin.as_micros()).unwrap_or_default(),
            since,
            patience: AtomicU64::new(u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX)),
            first_word: AtomicU64::new(u64::try_from(FIRST_WORD.as_millis()).unwrap_or(u64::MAX)),
            claims: Mutex::default(),
            contacts: Contacts::default(),
            stuck: Mutex::default(),
        }
    }

    /// Remembers the jobs that wait in vain now, and answers those that did before.
    pub(crate) fn replace_stuck(&self, now: HashSet<StuckKey>) -> HashSet<StuckKey> {
        std::mem::replace(&mut *self.stuck.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// When this process began to listen to runners.
    pub(crate) fn since(&self) -> Time {
        self.since
    }

    /// How long a runner waits for work that found none.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_millis(self.patience.load(Ordering::Relaxed))
    }

    /// Says how long a runner waits for work that found none.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long a runner that has taken a job has to say the first word about it.
    pub(crate) fn first_word(&self) -> Duration {
        Duration::from_millis(self.first_word.load(Ordering::Relaxed))
    }

    /// Says how long that is.
    pub(crate) fn set_first_word(&self, time: Duration) {
        self.first_word.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Lets everybody look again who waits.
    pub(crate) fn call(&self) {
        self.calls.send_modify(|called| called.count += 1);
    }

    /// Lets nobody wait any longer, because the service ends.
    pub(crate) fn close(&self) {
        self.calls.send_modify(|called| called.closed = true);
    }

    /// What to remember of the board when one finds nothing: whoever comes back with it has missed nothing as long as it
    /// is still the same.
    pub(crate) fn mark(&self) -> String {
        format!("{:x}-{:x}", self.origin, self.calls.borrow().count)
    }

    /// Waits until the board shows something else than the mark. Whoever calls this gives up after a while.
    pub(crate) async fn changed_since(&self, mark: &str) {
        let mut calls = self.calls.subscribe();
        while !calls.borrow_and_update().closed && self.mark() == mark {
            if calls.changed().await.is_err() {
                return;
            }
        }
    }

    /// How many jobs of a project are about to be taken.
    pub(crate) fn claimed_in(&self, project: i64) -> usize {
        self.lock().values().filter(|of| **of == project).count()
    }

    /// Claims the first of these jobs, given with their projects, that nobody else is about to take. Runners that look at
    /// the same moment so take different ones, instead of all but one being too late. Nothing depends on it but speed.
    pub(crate) fn claim(self: &Arc<Self>, jobs: &[(i64, i64)]) -> Option<Claim> {
        let mut claims = self.lock();
        let free: Vec<(i64, i64)> = jobs.iter().copied().filter(|(build, _)| !claims.contains_key(build)).collect();
        let (first, project) = *free.first()?;
        claims.insert(first, project);
        let jobs = free.into_iter().map(|(build, _)| build).collect();
        Some(Claim { board: Arc::clone(self), jobs, kept: false })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, i64>> {
        self.claims.lock().expect("nothing panics while holding this")
    }
}

/// What a runner is about to take: the first of these jobs, or else one of the others.
pub(crate) struct Claim {
    board: Arc<Board>,
    jobs: Vec<i64>,
    kept: bool,
}

impl Claim {
    /// The jobs in the order in which to try them.
    pub(crate) fn jobs(&self) -> &[i64] {
        &self.jobs
    }

    /// Ends it well: the first job was taken, or is not there to be taken.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(first) = self.jobs.first() {
            self.board.lock().remove(first);
        }
        // Others went away because of this claim, and nothing came of it.
        if !self.kept {
            self.board.call();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board() -> Arc<Board> {
        Arc::new(Board::new(Time::UNIX_EPOCH))
    }

    #[test]
    fn two_runners_claim_different_jobs_and_a_third_one_none() {
        let board = board();
        let jobs = [(1, 7), (2, 7)];
        let one = board.claim(&jobs).expect("the first");
        let two = board.claim(&jobs).expect("the second");
        assert_eq!((one.jobs(), two.jobs()), (&[1, 2][..], &[2][..]));
        assert!(board.claim(&jobs).is_none());
        assert_eq!((board.claimed_in(7), board.claimed_in(8)), (2, 0));
        one.keep();
        assert_eq!(board.claim(&jobs).expect("free again").jobs(), [1]);
    }

    #[test]
    fn a_claim_of_which_nothing_came_calls_the_others() {
        let board = board();
        let mark = board.mark();
        board.claim(&[(1, 7)]).expect("free").keep();
        assert_eq!(board.mark(), mark);
        drop(board.claim(&[(1, 7)]));
        assert_ne!(board.mark(), mark);
    }

    #[tokio::test]
    async fn who_waits_goes_on_at_a_call_and_when_the_service_ends() {
        let board = board();
        let mark = board.mark();
        board.call();
        board.changed_since(&mark).await;
        let mark = board.mark();
        board.close();
        board.changed_since(&mark).await;
        assert_eq!(board.mark(), mark);
    }
}
