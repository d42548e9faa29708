//! How many commits were made when and by whom.

use std::{
    collections::{BTreeMap, HashMap},
    num::NonZeroUsize,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use gix::{ObjectId, objs::Kind};
use lru::LruCache;
use model::{
    Oid,
    objects::{Activity, ContributorActivity},
};

use crate::{
    Error, Repository, Result, deadline::SoftDeadline, decode::CommitParts, history::CommitQueue, repository::gix_id,
};

/// The maximum number of commits that are counted, from the newest on.
const MAX_COMMITS: usize = 20_000;
/// The time after which the older commits are left out.
const TIMEOUT: Duration = Duration::from_millis(500);
/// The maximum number of contributors; those with the most commits.
const MAX_CONTRIBUTORS: usize = 100;
/// The maximum number of cached results.
const MAX_CACHED: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
const WEEK: i64 = 7 * 24 * 60 * 60;
/// Weeks start on Mondays; the first day of 1970 was a Thursday.
const FIRST_MONDAY: i64 = 4 * 24 * 60 * 60;

static CACHE: LazyLock<Mutex<LruCache<ObjectId, Arc<Activity>>>> =
    LazyLock::new(|| Mutex::new(LruCache::new(MAX_CACHED)));

impl Repository {
    /// Counts the commits in the history of a commit by week and by author, without merges. The result is cached.
    pub fn activity(&self, tip: Oid) -> Result<Arc<Activity>> {
        let tip = gix_id(tip);
        if let Some(cached) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&tip) {
            return Ok(Arc::clone(cached));
        }
        let activity = Arc::new(self.count_activity(tip)?);
        CACHE.lock().unwrap_or_else(PoisonError::into_inner).put(tip, Arc::clone(&activity));
        Ok(activity)
    }

    fn count_activity(&self, tip: ObjectId) -> Result<Activity> {
        let soft_deadline = SoftDeadline::within(TIMEOUT);
        let mut history = self.history();
        let mut queue = CommitQueue::default();
        queue.push(tip, history.node(tip)?.seconds);
        let mut weeks: BTreeMap<i64, usize> = BTreeMap::new();
        let mut contributors: HashMap<String, ContributorActivity> = HashMap::new();
        let (mut commits, mut is_truncated) = (0, false);
        let mut buffer = Vec::new();
        while let Some(id) = queue.pop() {
            if commits >= MAX_COMMITS || soft_deadline.has_passed() {
                is_truncated = true;
                break;
            }
            let node = history.node(id)?;
            for parent in &node.parents {
                queue.push(*parent, history.node(*parent)?.seconds);
            }
            if node.parents.len() > 1 {
                continue;
            }
            commits += 1;
            *weeks.entry(node.seconds.saturating_sub(FIRST_MONDAY).div_euclid(WEEK)).or_default() += 1;
            let commit = self.read_bounded(&id, Kind::Commit, &mut buffer)?;
            let commit = commit.ok_or_else(|| Error::corrupt(format!("the commit {id} is missing")))?;
            let author = CommitParts::parse(commit.data).author();
            let contributor = contributors.entry(author.email).or_insert_with(|| ContributorActivity {
                name: author.name,
                commits: 0,
                first: node.seconds,
                last: node.seconds,
            });
            contributor.commits += 1;
            contributor.first = contributor.first.min(node.seconds);
            contributor.last = contributor.last.max(node.seconds);
        }
        let contributor_count = contributors.len();
        let mut contributors: Vec<ContributorActivity> = contributors.into_values().collect();
        contributors.sort_by(|a, b| b.commits.cmp(&a.commits).then_with(|| a.name.cmp(&b.name)));
        contributors.truncate(MAX_CONTRIBUTORS);
        let weeks = weeks
            .into_iter()
            .map(|(week, count)| (week.saturating_mul(WEEK).saturating_add(FIRST_MONDAY), count))
            .collect();
        Ok(Activity { weeks, commits, contributors, contributor_count, is_truncated })
    }
}
