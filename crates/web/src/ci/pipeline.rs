//! A pipeline with its jobs by stage.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    browse::InProject,
    job_pages::JobActions,
    pipeline_pages::{self, PipelineJob, PipelinePage},
    pipelines, traces,
};
use model::{Commit, Job, Pipeline, PipelineId, Status, jobs::JobKind, pipelines::Source};

use super::{
    pipelines::{duration, short_id},
    status::{StatusView, failure_text},
};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    response,
    text::{self, Markup, job_log},
    times,
};

/// How much of the end of the log of a failed job is read, and how many of its lines are shown.
const LOG_END_BYTES: u64 = 4 << 10;
const LOG_END_LINES: usize = 12;

#[derive(Template)]
#[template(path = "ci/pipeline.html")]
struct PipelineTemplate {
    layout: Layout,
    head: ProjectHead,
    pipeline: Pipeline,
    status: StatusView,
    commit: Option<Commit>,
    short_id: String,
    source: &'static str,
    duration: Option<String>,
    coverage: Option<String>,
    failed: Vec<FailedJob>,
    stages: Vec<StageView>,
    can_retry: bool,
    can_cancel: bool,
    can_view_jobs: bool,
}

/// A failed job with the end of its log.
struct FailedJob {
    job: Job,
    reason: Option<String>,
    log: Markup,
}

struct StageView {
    name: String,
    jobs: Vec<JobView>,
}

struct JobView {
    job: Job,
    status: StatusView,
    has_page: bool,
    needs: Option<String>,
    duration: Option<String>,
    actions: JobActions,
}

/// Shows a pipeline.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), id(&cx)?);
    let (viewer, found) = cx.read(move |tx| pipeline_pages::get(tx, &project, id)).await?;
    let InProject { project, value: page } = found;
    let PipelinePage { pipeline, commit, jobs, failed: traces, can_view_jobs, can_retry, can_cancel } = page;
    let mut failed = Vec::new();
    for (job, trace) in traces {
        let Some(job) = jobs.iter().map(|found| &found.job).find(|found| found.id == job) else { continue };
        let range = trace.size.saturating_sub(LOG_END_BYTES)..trace.size;
        let end = traces::read_part(cx.forge(), &trace, range).await?;
        failed.push(FailedJob {
            reason: job.failure_reason.as_deref().map(failure_text),
            log: job_log::render_end(&end, LOG_END_LINES),
            job: job.clone(),
        });
    }
    let now = viewer.now;
    let source = match pipeline.source {
        Source::Push => "a push",
        Source::Api => "a request",
        Source::Trigger => "a trigger",
        Source::External => "an external service",
    };
    response::page(&PipelineTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(&cx, viewer, format!("Pipeline #{} · {}", pipeline.id, project.full_path())),
        status: pipeline.status.into(),
        short_id: short_id(&pipeline),
        source,
        duration: duration(&pipeline, now),
        coverage: pipeline.coverage.map(|coverage| format!("{coverage:.1} %")),
        failed,
        stages: stages(jobs, can_view_jobs, now),
        commit,
        pipeline,
        can_retry,
        can_cancel,
        can_view_jobs,
    })
}

/// Groups jobs, which are ordered by stage.
fn stages(jobs: Vec<PipelineJob>, can_view_jobs: bool, now: model::Time) -> Vec<StageView> {
    let mut stages: Vec<(i32, StageView)> = Vec::new();
    for PipelineJob { job, needs, actions } in jobs {
        if stages.last().is_none_or(|(index, _)| *index != job.stage_index) {
            stages.push((job.stage_index, StageView { name: job.stage.clone(), jobs: Vec::new() }));
        }
        let seconds = job.started_at.map(|start| job.finished_at.unwrap_or(now).as_second() - start.as_second());
        let view = JobView {
            status: StatusView::of_job(&job),
            has_page: can_view_jobs && job.kind == JobKind::Runner,
            needs: needs.map(|names| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }),
            duration: seconds.filter(|_| job.status != Status::Skipped).map(times::duration),
            actions,
            job,
        };
        if let Some((_, stage)) = stages.last_mut() {
            stage.jobs.push(view);
        }
    }
    stages.into_iter().map(|(_, stage)| stage).collect()
}

/// Retries the failed and canceled jobs of a pipeline.
pub(crate) async fn retry(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, id) = (cx.project(), id(&cx)?);
    cx.write(move |tx| pipelines::retry(tx, &project, &Unvalidated::valid(id))).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).pipeline(id)))
}

/// Cancels the jobs of a pipeline that have not ended.
pub(crate) async fn cancel(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let id = id(&cx)?;
    pipelines::cancel(cx.forge(), cx.caller(), cx.project(), Unvalidated::valid(id)).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).pipeline(id)))
}

fn id(cx: &PageCx) -> Result<PipelineId, PageError> {
    cx.number("id").map(PipelineId::new)
}
