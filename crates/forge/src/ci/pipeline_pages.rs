//! What the pages of pipelines show. Visitors who are not signed in can see the pipelines of public projects.

use std::collections::HashMap;

use ci::status::StatusCounts;
use git::CommitListBudget;
use model::{
    Commit, Job, JobId, Oid, Page, Pipeline, PipelineId, Project, Slice, Status, jobs::JobKind,
    pipelines::PipelineFilter,
};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated,
    branches::default_branch,
    browse::InProject,
    job_pages::{self, JobActions},
    jobs,
    traces::{self, Trace},
};

/// The maximum number of branches and tags to choose from.
const MAX_REF_NAMES: usize = 200;
/// The maximum number of failed jobs whose traces are shown with their pipeline.
const MAX_FAILED_TRACES: usize = 3;

/// A list of pipelines.
pub struct PipelineList {
    /// The pipelines, newest first.
    pub pipelines: Slice<PipelineEntry>,
    /// Whether the visitor may start pipelines.
    pub can_run: bool,
}

/// A pipeline in a list.
pub struct PipelineEntry {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// The commit, unless it is no longer reachable.
    pub commit: Option<Commit>,
    /// The stages that have jobs, in order.
    pub stages: Vec<StageSummary>,
}

/// The combined status of the jobs in a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageSummary {
    /// The name of the stage.
    pub name: String,
    /// The combined status of its latest jobs.
    pub status: Status,
}

/// A pipeline with its jobs.
pub struct PipelinePage {
    /// The pipeline.
    pub pipeline: Pipeline,
    /// The commit, unless it is no longer reachable.
    pub commit: Option<Commit>,
    /// The latest job of each name, ordered by stage.
    pub jobs: Vec<PipelineJob>,
    /// The traces of the first failed jobs; empty if the visitor may not see jobs.
    pub failed: Vec<(JobId, Trace)>,
    /// Whether the visitor may see the pages of the jobs.
    pub can_view_jobs: bool,
    /// Whether the visitor may retry the pipeline, and there is something to retry.
    pub can_retry: bool,
    /// Whether the visitor may cancel the pipeline, and there is something to cancel.
    pub can_cancel: bool,
}

/// A job of a pipeline.
pub struct PipelineJob {
    /// The job.
    pub job: Job,
    /// The names of the jobs that it needs; `None` stands for all earlier stages.
    pub needs: Option<Vec<String>>,
    /// What the visitor may do with it.
    pub actions: JobActions,
}

/// The branches and tags for which a pipeline can be started.
pub struct RefChoice {
    /// The default branch, if there is one.
    pub default: Option<String>,
    /// The names of the branches and tags; the first of them if there are many.
    pub names: Vec<String>,
}

/// Lists the pipelines of a project.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    filter: &Unvalidated<PipelineFilter>,
    page: &Unvalidated<Page>,
) -> Result<InProject<PipelineList>> {
    let project = tx.project(project, ProjectAbility::ViewPipelines)?;
    let (filter, page) = (filter.validate()?, *page.validate()?);
    let found = store::pipelines::list(tx.db(), project.id, filter, page)?;
    let ids: Vec<PipelineId> = found.items.iter().map(|pipeline| pipeline.id).collect();
    let mut stages = stages_of(tx, &ids)?;
    let mut commits = jobs::reachable_commits(tx, &project, found.items.iter().map(|pipeline| pipeline.sha))?;
    let mut budget = CommitListBudget::default();
    for commit in commits.values_mut() {
        budget.truncate(commit);
    }
    let pipelines = found.map(|pipeline| PipelineEntry {
        commit: commits.get(&pipeline.sha).cloned(),
        stages: stages.remove(&pipeline.id).unwrap_or_default(),
        pipeline,
    });
    let can_run = tx.can(&project, ProjectAbility::RunPipelines);
    Ok(InProject { project, value: PipelineList { pipelines, can_run } })
}

/// Returns the combined statuses of the stages of pipelines.
fn stages_of(tx: &mut ReadTx<'_>, ids: &[PipelineId]) -> Result<HashMap<PipelineId, Vec<StageSummary>>> {
    let mut counts: HashMap<PipelineId, Vec<(i32, String, StatusCounts)>> = HashMap::new();
    for found in store::pipelines::stage_statuses(tx.db(), ids)? {
        let stages = counts.entry(found.pipeline).or_default();
        if stages.last().is_none_or(|(index, ..)| *index != found.index) {
            stages.push((found.index, found.stage, StatusCounts::default()));
        }
        if let Some((.., counts)) = stages.last_mut() {
            counts.add(found.status, found.allow_failure);
        }
    }
    let summary = |(_, name, counts): (i32, String, StatusCounts)| StageSummary { name, status: counts.status() };
    Ok(counts.into_iter().map(|(id, stages)| (id, stages.into_iter().map(summary).collect())).collect())
}

/// Returns a pipeline with its jobs.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: PipelineId) -> Result<InProject<PipelinePage>> {
    let project = tx.project(project, ProjectAbility::ViewPipelines)?;
    let now = tx.now();
    let pipeline = store::pipelines::find(tx.db(), project.id, id)?.ok_or(Error::NotFound(None))?;
    let commit = jobs::reachable_commits(tx, &project, [pipeline.sha])?.remove(&pipeline.sha);
    let can_view_jobs = tx.can(&project, ProjectAbility::ViewJobs);
    let can_run = tx.can(&project, ProjectAbility::RunPipelines);
    let latest = store::jobs::latest_of_pipeline(tx.db(), id)?;
    let mut needs: HashMap<JobId, Option<Vec<String>>> = latest.into_iter().map(|job| (job.id, job.needs)).collect();
    let jobs = store::job_lists::latest_of_pipeline(tx.db(), id, now)?;
    let jobs: Vec<PipelineJob> = jobs
        .into_iter()
        .map(|job| PipelineJob {
            needs: needs.remove(&job.id).flatten(),
            actions: job_pages::actions(&job, can_run, false),
            job,
        })
        .collect();
    let mut failed = Vec::new();
    if can_view_jobs {
        let is_failed = |job: &&Job| job.status == Status::Failed && !job.allow_failure && job.kind == JobKind::Runner;
        for job in jobs.iter().map(|found| &found.job).filter(is_failed).take(MAX_FAILED_TRACES) {
            failed.push((job.id, traces::open_of_job(tx, &project, job.id)?));
        }
    }
    let any = |matches: fn(Status) -> bool| can_run && jobs.iter().any(|found| matches(found.job.status));
    let page = PipelinePage {
        can_retry: any(|status| matches!(status, Status::Failed | Status::Canceled)),
        can_cancel: any(Status::is_cancelable),
        pipeline,
        commit,
        jobs,
        failed,
        can_view_jobs,
    };
    Ok(InProject { project, value: page })
}

/// Returns the newest pipeline of a commit with its status; `None` if the visitor may not see pipelines.
pub fn newest_of_commit(tx: &mut ReadTx<'_>, project: &Project, sha: Oid) -> Result<Option<(PipelineId, Status)>> {
    if !tx.can(project, ProjectAbility::ViewPipelines) {
        return Ok(None);
    }
    Ok(store::pipelines::newest_of_commit(tx.db(), project.id, sha)?)
}

/// Returns the branches and tags for which the visitor may start a pipeline.
pub fn open_for_start(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<InProject<RefChoice>> {
    let project = tx.project(project, ProjectAbility::RunPipelines)?;
    let refs = tx.refs(&project)?;
    let default = default_branch(&project, &refs).map(|branch| branch.name.short().to_owned());
    let names = refs.branches.iter().chain(&refs.tags).take(MAX_REF_NAMES);
    let names = names.map(|found| found.name.short().to_owned()).collect();
    Ok(InProject { project, value: RefChoice { default, names } })
}
