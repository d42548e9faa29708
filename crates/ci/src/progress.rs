//! The state machine of a pipeline: which jobs start, which are skipped, and what a retry does.
//!
//! All functions consider the latest job of each name and only return what should happen; the caller applies the events
//! in the given order. Without a change in between, a second call returns nothing.

use std::collections::BTreeMap;

use crate::rules::When;
use crate::status::{Status, StatusCounts, StatusEvent, transition};

/// The state of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// The position of the stage.
    pub stage: usize,
    /// The status.
    pub status: Status,
    /// When the job starts.
    pub when: When,
    /// Whether the job may fail, as far as it is known.
    pub allow_failure: bool,
    /// The indices of the jobs to wait for, in the same list; `None` means all jobs of earlier stages.
    pub needs: Option<Vec<usize>>,
}

/// What a retry does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryPlan {
    /// Jobs that are replaced by a new job of the same name in status `created`. [`progress`] then starts those that
    /// are ready.
    pub recreated: Vec<usize>,
    /// Those of `recreated` that get [`StatusEvent::Enqueue`] immediately, because [`progress`] would skip them
    /// although a user requested them and all jobs before them have ended.
    pub enqueued: Vec<usize>,
    /// Skipped jobs that get [`StatusEvent::Process`], because a job they wait for is retried.
    pub reopened: Vec<usize>,
}

/// Returns the events of created jobs that can start or must be skipped now, stage by stage.
pub fn progress(jobs: &[JobState]) -> Vec<(usize, StatusEvent)> {
    let mut statuses: Vec<Status> = jobs.iter().map(|job| job.status).collect();
    let mut stages: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, job) in jobs.iter().enumerate() {
        stages.entry(job.stage).or_default().push(index);
    }
    let mut events = Vec::new();
    let mut earlier = StatusCounts::default();
    for members in stages.values() {
        let before = earlier.status();
        // Jobs of one stage may need each other, in any order; each iteration settles at least one of them.
        let mut waiting: Vec<usize> =
            members.iter().copied().filter(|&index| statuses[index] == Status::Created).collect();
        loop {
            let count = waiting.len();
            waiting.retain(|&index| {
                let event = match &jobs[index].needs {
                    Some(needs) => next_event_with_needs(jobs, &statuses, needs, jobs[index].when),
                    None => next_event(before, jobs[index].when),
                };
                let Some(event) = event else { return true };
                events.push((index, event));
                statuses[index] = transition(statuses[index], event).unwrap_or(statuses[index]);
                false
            });
            if waiting.is_empty() || waiting.len() == count {
                break;
            }
        }
        for &index in members {
            earlier.add(statuses[index], jobs[index].allow_failure);
        }
    }
    events
}

/// Returns what happens to a created job, given the combined status of everything before it; `None` while it has to
/// wait.
fn next_event(before: Status, when: When) -> Option<StatusEvent> {
    match (before, when) {
        (Status::Success | Status::Skipped, When::OnSuccess | When::Always)
        | (Status::Failed, When::OnFailure | When::Always) => Some(StatusEvent::Enqueue),
        (Status::Success | Status::Skipped | Status::Failed | Status::Canceled, _) => Some(StatusEvent::Skip),
        _ => None,
    }
}

/// The same for a job with needs. A skipped job did not do what is needed, so only `always` jobs start after it.
fn next_event_with_needs(jobs: &[JobState], statuses: &[Status], needs: &[usize], when: When) -> Option<StatusEvent> {
    let mut counts = StatusCounts::default();
    let mut skipped = false;
    for &need in needs {
        // Only an optional need can be absent.
        let Some(status) = statuses.get(need).copied() else { continue };
        if !status.is_done() {
            return None;
        }
        skipped |= status == Status::Skipped;
        counts.add(status, jobs[need].allow_failure);
    }
    match (counts.status(), when) {
        (Status::Success | Status::Skipped, When::OnSuccess) if skipped => Some(StatusEvent::Skip),
        (before, when) => next_event(before, when),
    }
}

/// Plans the retry of a pipeline: failed and canceled jobs are recreated.
pub fn retry(jobs: &[JobState]) -> RetryPlan {
    let recreated = jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| matches!(job.status, Status::Failed | Status::Canceled))
        .map(|(index, _)| index)
        .collect();
    plan_retry(jobs, recreated, |job| job.when == When::Manual)
}

/// Plans the retry of one job; `None` if it has not run to completion.
pub fn retry_one(jobs: &[JobState], index: usize) -> Option<RetryPlan> {
    let status = jobs.get(index)?.status;
    matches!(status, Status::Success | Status::Failed | Status::Canceled)
        .then(|| plan_retry(jobs, vec![index], |_| true))
}

fn plan_retry(jobs: &[JobState], recreated: Vec<usize>, requested: impl Fn(&JobState) -> bool) -> RetryPlan {
    let reopened = skipped_dependents(jobs, &recreated, true);
    let mut settled: Vec<bool> = jobs.iter().map(|job| job.status.is_done()).collect();
    for &index in recreated.iter().chain(&reopened) {
        settled[index] = false;
    }
    let unsettled = jobs.iter().zip(&settled).filter(|(_, settled)| !**settled).map(|(job, _)| job.stage).min();
    let is_ready = |job: &JobState| match &job.needs {
        Some(needs) => needs.iter().all(|&need| settled.get(need).is_none_or(|settled| *settled)),
        None => unsettled.is_none_or(|stage| stage >= job.stage),
    };
    let enqueued =
        recreated.iter().copied().filter(|&index| requested(&jobs[index]) && is_ready(&jobs[index])).collect();
    RetryPlan { recreated, enqueued, reopened }
}

/// Plays a manual job: it gets [`StatusEvent::Enqueue`], and the returned skipped jobs, which need it, get
/// [`StatusEvent::Process`]. Returns `None` if the job is not manual or has already started.
pub fn play(jobs: &[JobState], index: usize) -> Option<Vec<usize>> {
    let job = jobs.get(index)?;
    let playable = job.when == When::Manual && matches!(job.status, Status::Skipped | Status::Manual);
    playable.then(|| skipped_dependents(jobs, &[index], false))
}

/// Returns the jobs that get [`StatusEvent::Cancel`] when the pipeline is canceled: all that have not ended.
pub fn cancel(jobs: &[JobState]) -> Vec<usize> {
    jobs.iter().enumerate().filter(|(_, job)| job.status.is_cancelable()).map(|(index, _)| index).collect()
}

/// Returns the skipped jobs that wait, directly or indirectly, for one of the targets: by their needs, and optionally
/// by their stage.
fn skipped_dependents(jobs: &[JobState], targets: &[usize], by_stage: bool) -> Vec<usize> {
    let mut affected = vec![false; jobs.len()];
    let mut earliest_stage = usize::MAX;
    for &index in targets {
        affected[index] = true;
        earliest_stage = earliest_stage.min(jobs[index].stage);
    }
    let mut found = Vec::new();
    loop {
        let count = found.len();
        for (index, job) in jobs.iter().enumerate() {
            if affected[index] || job.status != Status::Skipped {
                continue;
            }
            let waits = match &job.needs {
                Some(needs) => needs.iter().any(|&need| affected.get(need).is_some_and(|affected| *affected)),
                None => by_stage && job.stage > earliest_stage,
            };
            if waits {
                affected[index] = true;
                earliest_stage = earliest_stage.min(job.stage);
                found.push(index);
            }
        }
        if found.len() == count {
            found.sort_unstable();
            return found;
        }
    }
}
