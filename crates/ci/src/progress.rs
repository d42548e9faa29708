//! What follows from the states of the jobs of a pipeline: who starts, who is skipped, what a retry makes anew.
//!
//! All functions look at the latest job of each name and only tell what should happen; the caller writes it down, in
//! the order given, and may ask again. Asking when nothing has changed tells nothing.

use std::collections::BTreeMap;

use crate::rules::When;
use crate::status::{Event, Status, Tally, step};

/// What the machine knows about a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobState {
    /// The position of its stage.
    pub stage: usize,
    /// Its state.
    pub status: Status,
    /// When it starts.
    pub when: When,
    /// Whether its failure is allowed, as far as it is known.
    pub allow_failure: bool,
    /// The positions of the jobs that it waits for, in the same list; nothing said means all earlier stages.
    pub needs: Option<Vec<usize>>,
}

/// What a retry does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Again {
    /// Jobs for which a new one of the same name is made, in state `created`. [`progress`] then starts those whose turn
    /// it is, which is at once unless something before them is tried again too.
    pub anew: Vec<usize>,
    /// Those among them that get [`Event::Enqueue`] at once, because [`progress`] would rather skip them: somebody wants
    /// them to run, and everything before them has ended.
    pub at_once: Vec<usize>,
    /// Skipped jobs that get [`Event::Process`], because what they waited for is tried again.
    pub reopened: Vec<usize>,
}

/// Tells which created jobs start and which are skipped now, stage by stage.
pub fn progress(jobs: &[JobState]) -> Vec<(usize, Event)> {
    let mut statuses: Vec<Status> = jobs.iter().map(|job| job.status).collect();
    let mut stages: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, job) in jobs.iter().enumerate() {
        stages.entry(job.stage).or_default().push(at);
    }
    let mut events = Vec::new();
    let mut earlier = Tally::default();
    for members in stages.values() {
        let before = earlier.status();
        // Jobs of one stage may need each other, in any order; each round settles at least one of them.
        let mut waiting: Vec<usize> = members.iter().copied().filter(|&at| statuses[at] == Status::Created).collect();
        loop {
            let count = waiting.len();
            waiting.retain(|&at| {
                let what = match &jobs[at].needs {
                    Some(needs) => after_needs(jobs, &statuses, needs, jobs[at].when),
                    None => after(before, jobs[at].when),
                };
                let Some(event) = what else { return true };
                events.push((at, event));
                statuses[at] = step(statuses[at], event).unwrap_or(statuses[at]);
                false
            });
            if waiting.is_empty() || waiting.len() == count {
                break;
            }
        }
        for &at in members {
            earlier.add(statuses[at], jobs[at].allow_failure);
        }
    }
    events
}

/// What happens to a created job once everything before it is called so; nothing while it has to wait.
fn after(before: Status, when: When) -> Option<Event> {
    match (before, when) {
        (Status::Success | Status::Skipped, When::OnSuccess | When::Always)
        | (Status::Failed, When::OnFailure | When::Always) => Some(Event::Enqueue),
        (Status::Success | Status::Skipped | Status::Failed | Status::Canceled, _) => Some(Event::Skip),
        _ => None,
    }
}

/// The same for a job with needs. A job that was skipped did not do what is needed of it, so only `always` goes on.
fn after_needs(jobs: &[JobState], statuses: &[Status], needs: &[usize], when: When) -> Option<Event> {
    let mut tally = Tally::default();
    let mut skipped = false;
    for &need in needs {
        // A need that is not there is one that was optional.
        let Some(status) = statuses.get(need).copied() else { continue };
        if !status.is_done() {
            return None;
        }
        skipped |= status == Status::Skipped;
        tally.add(status, jobs[need].allow_failure);
    }
    match (tally.status(), when) {
        (Status::Success | Status::Skipped, When::OnSuccess) if skipped => Some(Event::Skip),
        (before, when) => after(before, when),
    }
}

/// Tells what trying the whole pipeline again means: failed and canceled jobs are made anew.
pub fn retry(jobs: &[JobState]) -> Again {
    let anew = jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| matches!(job.status, Status::Failed | Status::Canceled))
        .map(|(at, _)| at)
        .collect();
    again(jobs, anew, |job| job.when == When::Manual)
}

/// Tells what trying one job again means; nothing if it has not run to an end.
pub fn retry_one(jobs: &[JobState], at: usize) -> Option<Again> {
    let status = jobs.get(at)?.status;
    matches!(status, Status::Success | Status::Failed | Status::Canceled).then(|| again(jobs, vec![at], |_| true))
}

fn again(jobs: &[JobState], anew: Vec<usize>, wanted: impl Fn(&JobState) -> bool) -> Again {
    let reopened = waiting_for(jobs, &anew, true);
    let mut settled: Vec<bool> = jobs.iter().map(|job| job.status.is_done()).collect();
    for &at in anew.iter().chain(&reopened) {
        settled[at] = false;
    }
    let unsettled = jobs.iter().zip(&settled).filter(|(_, settled)| !**settled).map(|(job, _)| job.stage).min();
    let is_ready = |job: &JobState| match &job.needs {
        Some(needs) => needs.iter().all(|&need| settled.get(need).is_none_or(|settled| *settled)),
        None => unsettled.is_none_or(|stage| stage >= job.stage),
    };
    let at_once = anew.iter().copied().filter(|&at| wanted(&jobs[at]) && is_ready(&jobs[at])).collect();
    Again { anew, at_once, reopened }
}

/// Tells what playing a job means: it gets [`Event::Enqueue`], and the skipped jobs that are told, which need it, get
/// [`Event::Process`]. Nothing if it cannot be played: only a manual job can that has not started.
pub fn play(jobs: &[JobState], at: usize) -> Option<Vec<usize>> {
    let job = jobs.get(at)?;
    let playable = job.when == When::Manual && matches!(job.status, Status::Skipped | Status::Manual);
    playable.then(|| waiting_for(jobs, &[at], false))
}

/// Tells which jobs get [`Event::Cancel`] when the pipeline is canceled: all that have not ended.
pub fn cancel(jobs: &[JobState]) -> Vec<usize> {
    jobs.iter().enumerate().filter(|(_, job)| job.status.is_cancelable()).map(|(at, _)| at).collect()
}

/// Finds the skipped jobs that wait, directly or not, for one of the given ones: by their needs, and if asked for by
/// their stage.
fn waiting_for(jobs: &[JobState], given: &[usize], by_stage: bool) -> Vec<usize> {
    let mut moved = vec![false; jobs.len()];
    let mut earliest = usize::MAX;
    for &at in given {
        moved[at] = true;
        earliest = earliest.min(jobs[at].stage);
    }
    let mut found = Vec::new();
    loop {
        let count = found.len();
        for (at, job) in jobs.iter().enumerate() {
            if moved[at] || job.status != Status::Skipped {
                continue;
            }
            let waits = match &job.needs {
                Some(needs) => needs.iter().any(|&need| moved.get(need).is_some_and(|moved| *moved)),
                None => by_stage && job.stage > earliest,
            };
            if waits {
                moved[at] = true;
                earliest = earliest.min(job.stage);
                found.push(at);
            }
        }
        if found.len() == count {
            found.sort_unstable();
            return found;
        }
    }
}
