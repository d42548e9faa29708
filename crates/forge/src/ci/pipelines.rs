//! Pipelines: list, start, retry and cancel them.

pub mod job_updates;
pub(crate) mod pipeline_events;
pub(crate) mod planning;
pub(crate) mod state_machine;

use std::collections::HashSet;

use ci::{Plan, StatusEvent, progress};
use model::{
    JobId, Oid, Page, Pipeline, PipelineId, Project, Slice, Status, TriggerId, UserId, Violations,
    pipelines::{PipelineFilter, PipelineScope, Source},
};
use store::{jobs::JobChanges, pipelines::NewPipeline};

use crate::{
    Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    jobs::CanceledJobs,
    pipelines::{planning::PipelineRequest, state_machine::LockedPipeline},
};

/// A pipeline to start, besides its plan.
#[derive(Clone, Debug)]
pub struct StartPipeline {
    /// The short name of the branch or the tag.
    pub ref_name: String,
    /// Whether the ref is a tag.
    pub tag: bool,
    /// The commit.
    pub sha: Oid,
    /// What starts the pipeline.
    pub source: Source,
    /// The ID of the user who starts it.
    pub user: Option<UserId>,
    /// The ID of the trigger that starts it.
    pub trigger: Option<TriggerId>,
    /// The variables passed by the trigger, encrypted.
    pub variables: Option<Vec<u8>>,
}

/// Creates a pipeline with all its jobs and starts those that can start. The caller checks permissions.
pub fn start(tx: &mut WriteTx<'_>, project: &Project, start: &StartPipeline, plan: &Plan) -> Result<Pipeline> {
    let now = tx.now();
    let new = NewPipeline {
        project: project.id,
        ref_name: &start.ref_name,
        tag: start.tag,
        sha: start.sha,
        before_sha: None,
        source: start.source,
        status: Status::Created,
        yaml_errors: None,
        stages: &plan.stages,
        user: start.user,
        trigger: start.trigger,
        variables: start.variables.as_deref(),
        now,
    };
    let id = store::pipelines::insert(tx.db(), &new)?;
    state_machine::create_jobs(tx, project, id, plan)
}

/// Applies an event to a job and lets the other jobs and the pipeline follow. An event that is impossible in the status of
/// the job has no effect. The caller checks permissions.
pub fn apply_event(tx: &mut WriteTx<'_>, job: JobId, event: StatusEvent) -> Result<Pipeline> {
    let parents = store::jobs::parents_of(tx.db(), job)?.ok_or(Error::NoSuchRow)?;
    let project = tx.read().project_as_system(&ProjectRef::Id(parents.project), ProjectAbility::ReadPipelines)?;
    let mut locked = state_machine::lock(tx, parents.pipeline)?;
    let positions: Vec<usize> = locked.position(job).into_iter().collect();
    state_machine::apply_event(tx, &mut locked, &positions, event, &JobChanges::default())?;
    state_machine::advance(tx, &project, locked)
}

/// Returns a page of the pipelines of a project, newest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    scope: &Unvalidated<PipelineScope>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Pipeline>> {
    let project = tx.project(project, ProjectAbility::ReadPipelines)?;
    let (scope, page) = (*scope.validate()?, *page.validate()?);
    match scope {
        PipelineScope::All | PipelineScope::Running => {
            let filter = PipelineFilter { only_running: scope == PipelineScope::Running, ..PipelineFilter::default() };
            Ok(store::pipelines::list(tx.db(), project.id, &filter, page)?)
        }
        PipelineScope::Branches => list_by_ref(tx, &project, false, page),
        PipelineScope::Tags => list_by_ref(tx, &project, true, page),
    }
}

/// Returns the newest pipeline of each existing branch, or of each existing tag.
fn list_by_ref(tx: &mut ReadTx<'_>, project: &Project, tags: bool, page: Page) -> Result<Slice<Pipeline>> {
    let Some(repository) = tx.repository(project)? else { return Ok(Slice::empty(page)) };
    let refs = repository.refs();
    let existing = if tags { &refs.tags } else { &refs.branches };
    let existing: HashSet<&str> = existing.iter().map(|found| found.name.short()).collect();
    let newest = store::pipelines::newest_of_refs(tx.db(), project.id, tags)?;
    let mut ids: Vec<PipelineId> =
        newest.into_iter().filter(|(name, _)| existing.contains(name.as_str())).map(|(_, id)| id).collect();
    ids.sort_unstable_by(|one, other| other.cmp(one));
    let items = store::pipelines::by_ids(tx.db(), page.slice(&ids))?;
    Ok(Slice { items, total: i64::try_from(ids.len()).unwrap_or(i64::MAX).into(), page })
}

/// Returns a pipeline.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<PipelineId>) -> Result<Pipeline> {
    let project = tx.project(project, ProjectAbility::ReadPipelines)?;
    let id = *id.validate()?;
    store::pipelines::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

/// Starts a pipeline for a branch or a tag.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    ref_name: Unvalidated<String>,
) -> Result<Pipeline> {
    let authorize = move |tx: &mut ReadTx<'_>| {
        let project = tx.project(&project, ProjectAbility::RunPipelines)?;
        Ok((project.id, tx.user_id()?, ref_name.validate()?.clone()))
    };
    let (project, user, ref_name) = forge.read_inline(caller.clone(), authorize).await?;
    let request = PipelineRequest {
        project,
        ref_name,
        source: Source::Api,
        user: Some(user),
        trigger: None,
        variables: ci::Variables::new(),
        encrypted: None,
    };
    let started = planning::start(forge, caller, request).await?;
    started.map_err(|failure| Violations::one("base", failure.text()).into())
}

/// The result of retrying a pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Retried {
    /// The pipeline afterwards.
    pub pipeline: Pipeline,
    /// Whether any job was retried.
    pub any_retried: bool,
}

/// Retries all failed and canceled jobs.
pub fn retry(tx: &mut WriteTx<'_>, project: &ProjectRef, id: &Unvalidated<PipelineId>) -> Result<Retried> {
    let (project, mut locked) = lock_pipeline(tx, project, id)?;
    let user = tx.actor().user().map(|user| user.id);
    let mut targets = progress::retry(&locked.states());
    // A manual job is enqueued only if a user had started it before.
    targets.enqueued.retain(|at| locked.jobs[*at].started_at.is_some());
    let any_retried = state_machine::retry_jobs(tx, &mut locked, &project, &targets.recreated, user, false)?;
    if !any_retried {
        return Ok(Retried { pipeline: locked.pipeline, any_retried });
    }
    // Jobs of later stages run for this user, too, because the previous user may have left.
    let changes = JobChanges { user, ..JobChanges::default() };
    state_machine::apply_event(tx, &mut locked, &targets.enqueued, StatusEvent::Enqueue, &changes)?;
    state_machine::apply_event(tx, &mut locked, &targets.reopened, StatusEvent::Process, &changes)?;
    let pipeline = state_machine::advance(tx, &project, locked)?;
    Ok(Retried { pipeline, any_retried })
}

/// Cancels all jobs that have not ended.
pub async fn cancel(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    id: Unvalidated<PipelineId>,
) -> Result<Pipeline> {
    let cancel = move |tx: &mut WriteTx<'_>| {
        let (project, mut locked) = lock_pipeline(tx, &project, &id)?;
        let targets = progress::cancel(&locked.states());
        let canceled = CanceledJobs::running_among(tx, &locked, &targets);
        state_machine::apply_event(tx, &mut locked, &targets, StatusEvent::Cancel, &JobChanges::default())?;
        Ok((state_machine::advance(tx, &project, locked)?, canceled))
    };
    let (pipeline, canceled) = forge.write(caller, cancel).await?;
    if let Some(canceled) = canceled {
        canceled.close_traces(forge).await;
    }
    Ok(pipeline)
}

/// Locks a pipeline that the caller may change.
fn lock_pipeline(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    id: &Unvalidated<PipelineId>,
) -> Result<(Project, LockedPipeline)> {
    let project = tx.project(project, ProjectAbility::RunPipelines)?;
    let id = *id.validate()?;
    let found = store::pipelines::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)?;
    let locked = state_machine::lock(tx, found.id)?;
    Ok((project, locked))
}
