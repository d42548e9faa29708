//! The state machine of jobs and pipelines.
//!
//! To change a job, a transaction locks its pipeline ([`lock`]), applies an event ([`apply_event`]), and lets the other jobs
//! and the pipeline follow ([`advance`]).

use std::collections::HashMap;

use ci::{
    AllowFailure, JobSpec, Plan, StatusEvent, When,
    progress::{self, JobState},
    status,
};
use model::{JobId, Pipeline, PipelineId, Project, Status, UserId, jobs::JobKind};
use store::{
    jobs::{JobChanges, LatestJob, NewJob},
    pipelines::NewPipelineState,
};

use super::pipeline_events;
use crate::{Error, Result, WriteTx, traces};

/// The timeout of jobs that set none.
pub(crate) const DEFAULT_TIMEOUT_SECONDS: i64 = 3600;

/// A pipeline that is locked until the end of the transaction.
pub(crate) struct LockedPipeline {
    /// The pipeline.
    pub(crate) pipeline: Pipeline,
    /// The latest job of each name.
    pub(crate) jobs: Vec<LatestJob>,
    /// The IDs of the jobs whose change is reported to webhooks.
    changed: Vec<JobId>,
}

/// Locks a pipeline.
pub(crate) fn lock(tx: &mut WriteTx<'_>, pipeline: PipelineId) -> Result<LockedPipeline> {
    if !store::pipelines::lock_row(tx.db(), pipeline)? {
        return Err(Error::NoSuchRow);
    }
    let found = store::pipelines::by_id(tx.db(), pipeline)?.ok_or(Error::NoSuchRow)?;
    let jobs = store::jobs::latest_of_pipeline(tx.db(), pipeline)?;
    Ok(LockedPipeline { pipeline: found, jobs, changed: Vec::new() })
}

impl LockedPipeline {
    /// Returns the jobs as the planner knows them, in the same order.
    pub(crate) fn states(&self) -> Vec<JobState> {
        // An external status may have the name of a job, but no job needs it.
        let jobs = self.jobs.iter().enumerate().filter(|(_, job)| job.kind == JobKind::Runner);
        let positions: HashMap<&str, usize> = jobs.map(|(at, job)| (job.name.as_str(), at)).collect();
        self.jobs
            .iter()
            .map(|job| JobState {
                stage: usize::try_from(job.stage_index).unwrap_or_default(),
                status: job.status,
                when: When::parse(&job.when).unwrap_or_default(),
                allow_failure: job.allow_failure,
                needs: job
                    .needs
                    .as_ref()
                    .map(|needs| needs.iter().filter_map(|name| positions.get(name.as_str()).copied()).collect()),
            })
            .collect()
    }

    /// Returns the position of a job among the latest ones.
    pub(crate) fn position(&self, job: JobId) -> Option<usize> {
        self.jobs.iter().position(|one| one.id == job)
    }
}

/// Inserts the jobs of a plan and starts those that can start.
pub(crate) fn create_jobs(
    tx: &mut WriteTx<'_>,
    project: &Project,
    pipeline: PipelineId,
    plan: &Plan,
) -> Result<Pipeline> {
    let found = store::pipelines::by_id(tx.db(), pipeline)?.ok_or(Error::NoSuchRow)?;
    let user = found.user.as_ref().map(|user| user.id);
    let new: Vec<NewJob> = plan
        .jobs
        .iter()
        .enumerate()
        .filter_map(|(at, job)| {
            Some(NewJob {
                name: job.name.clone(),
                stage: job.stage.clone(),
                stage_index: i32::try_from(job.stage_index).unwrap_or(i32::MAX),
                when: job.when.as_str(),
                // If failure is allowed for some exit codes only, this is decided when the job fails.
                allow_failure: job.allow_failure == AllowFailure::Yes,
                needs: plan.needed_job_names(at).map(|names| names.into_iter().map(ToOwned::to_owned).collect()),
                tags: job.tags.clone(),
                timeout: job.timeout.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
                spec: plan.spec(at)?.to_json(),
            })
        })
        .collect();
    let now = tx.now();
    store::jobs::insert_all(tx.db(), project.id, pipeline, user, &new, now)?;
    let mut locked = lock(tx, pipeline)?;
    locked.changed = locked.jobs.iter().map(|job| job.id).collect();
    pipeline_events::record_job_events(tx, project, &locked.pipeline, &locked.changed)?;
    locked.changed.clear();
    advance(tx, project, locked)
}

/// Applies an event to the jobs at some positions and returns how many changed. An event that is impossible in the status
/// of a job has no effect on it.
pub(crate) fn apply_event(
    tx: &mut WriteTx<'_>,
    locked: &mut LockedPipeline,
    positions: &[usize],
    event: StatusEvent,
    changes: &JobChanges<'_>,
) -> Result<usize> {
    let now = tx.now();
    let mut by_status: Vec<(Status, Vec<JobId>)> = Vec::new();
    for &at in positions {
        let Some(job) = locked.jobs.get_mut(at) else { continue };
        let Some(next) = status::transition(job.status, event) else { continue };
        job.status = next;
        job.allow_failure = changes.allow_failure.unwrap_or(job.allow_failure);
        match next {
            Status::Running => (job.started_at, job.finished_at) = (Some(now), None),
            Status::Success | Status::Failed | Status::Canceled => job.finished_at = Some(now),
            _ => {}
        }
        let is_reported = matches!(next, Status::Running | Status::Success | Status::Failed | Status::Canceled);
        // Webhooks are not notified of external statuses.
        if is_reported && job.kind == JobKind::Runner {
            locked.changed.push(job.id);
        }
        match by_status.iter_mut().find(|(status, _)| *status == next) {
            Some((_, ids)) => ids.push(job.id),
            None => by_status.push((next, vec![job.id])),
        }
    }
    let mut changed = 0;
    for (status, ids) in by_status {
        changed += ids.len();
        store::jobs::set_status(tx.db(), &ids, status, changes, now)?;
        match status {
            Status::Pending => tx.notify_runners(),
            Status::Success | Status::Failed | Status::Canceled => traces::archive_ended(tx, &ids)?,
            _ => {}
        }
    }
    Ok(changed)
}

/// Replaces the jobs at some positions by new ones and returns whether there were any. External statuses cannot be retried.
pub(crate) fn retry_jobs(
    tx: &mut WriteTx<'_>,
    locked: &mut LockedPipeline,
    project: &Project,
    positions: &[usize],
    user: Option<UserId>,
    automatic: bool,
) -> Result<bool> {
    let now = tx.now();
    let positions: Vec<usize> =
        positions.iter().copied().filter(|at| locked.jobs[*at].kind == JobKind::Runner).collect();
    if positions.is_empty() {
        return Ok(false);
    }
    let old_ids: Vec<JobId> = positions.iter().map(|at| locked.jobs[*at].id).collect();
    let new_ids = store::jobs::insert_retries(tx.db(), &old_ids, user, automatic, now)?;
    let mut undecided = Vec::new();
    for (at, id) in positions.iter().zip(&new_ids) {
        let job = &mut locked.jobs[*at];
        // Whether this failure was allowed says nothing about the next one.
        if job.allow_failure && depends_on_exit_code(tx, job.id)? {
            job.allow_failure = false;
            undecided.push(*id);
        }
        (job.id, job.status, job.started_at, job.finished_at) = (*id, Status::Created, None, None);
    }
    store::jobs::clear_allow_failure(tx.db(), &undecided)?;
    pipeline_events::record_job_events(tx, project, &locked.pipeline, &new_ids)?;
    Ok(true)
}

/// Returns whether failure of a job is allowed for some exit codes only.
fn depends_on_exit_code(tx: &mut WriteTx<'_>, job: JobId) -> Result<bool> {
    let spec = store::job_runs::spec_of(tx.db(), job)?.and_then(|spec| JobSpec::from_json(&spec));
    Ok(spec.is_some_and(|spec| matches!(spec.allow_failure, AllowFailure::ExitCodes(_))))
}

/// Starts or skips the jobs whose requirements are met, updates the status of the pipeline, and notifies webhooks. Returns
/// the pipeline afterwards.
pub(crate) fn advance(tx: &mut WriteTx<'_>, project: &Project, mut locked: LockedPipeline) -> Result<Pipeline> {
    loop {
        let events = progress::progress(&locked.states());
        if events.is_empty() {
            break;
        }
        let mut changed = 0;
        for event in [StatusEvent::Enqueue, StatusEvent::Skip] {
            let positions: Vec<usize> = events.iter().filter(|(_, other)| *other == event).map(|(at, _)| *at).collect();
            changed += apply_event(tx, &mut locked, &positions, event, &JobChanges::default())?;
        }
        if changed == 0 {
            break;
        }
    }
    let computed = status::combine(locked.jobs.iter().map(|job| (job.status, job.allow_failure)));
    let before = locked.pipeline.status;
    // A pipeline with an invalid file stays failed, and one without jobs keeps its initial status.
    let is_final = locked.pipeline.yaml_errors.is_some() || locked.jobs.is_empty();
    let after = if is_final { before } else { status::next_pipeline_status(before, computed) };
    if after != before {
        let now = tx.now();
        let starts = after == Status::Running;
        let waited = matches!(before, Status::Created | Status::Pending);
        let ends = matches!(after, Status::Success | Status::Failed | Status::Canceled);
        let state = NewPipelineState {
            status: after,
            started_at: (starts && waited && locked.pipeline.started_at.is_none()).then_some(now),
            finished_at: ends.then_some(now),
            duration: if ends { duration(&locked.jobs) } else { None },
            now,
        };
        store::pipelines::set_state(tx.db(), locked.pipeline.id, &state)?;
        locked.pipeline = store::pipelines::by_id(tx.db(), locked.pipeline.id)?.ok_or(Error::NoSuchRow)?;
    }
    pipeline_events::record_job_events(tx, project, &locked.pipeline, &locked.changed)?;
    if after != before {
        pipeline_events::record_pipeline_event(tx, project, &locked.pipeline)?;
    }
    Ok(locked.pipeline)
}

/// Returns for how many seconds at least one of these jobs was running; `None` if none ever was.
fn duration(jobs: &[LatestJob]) -> Option<i64> {
    let intervals: Vec<(i64, i64)> = jobs
        .iter()
        .filter_map(|job| Some((job.started_at?.as_microsecond(), job.finished_at?.as_microsecond())))
        .collect();
    (!intervals.is_empty()).then(|| status::duration(&intervals) / 1_000_000)
}
