//! A job with its log.

use askama::Template;
use forge::{
    browse::InProject,
    job_pages::{self, JobActions, JobPage},
    jobs::JobDetail,
};
use model::{Commit, Job, JobId};

use super::{
    job_log::{self, LogView},
    status::{StatusView, failure_text},
};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links,
    repository::files::human_size,
    response, text, times,
};

#[derive(Template)]
#[template(path = "ci/job.html")]
struct JobTemplate {
    layout: Layout,
    head: ProjectHead,
    job: Job,
    status: StatusView,
    commit: Option<Commit>,
    duration: Option<String>,
    queued: Option<String>,
    failure: Option<String>,
    pending_reason: Option<String>,
    coverage: Option<String>,
    attempts: Vec<(JobId, StatusView)>,
    artifacts_size: Option<String>,
    can_read_artifacts: bool,
    actions: JobActions,
    log: LogView,
}

/// Shows a job.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, id) = (cx.project(), id(&cx)?);
    let (viewer, found) = cx.read(move |tx| job_pages::get(tx, &project, id)).await?;
    let InProject { project, value } = found;
    let JobPage { detail, trace, attempts, can_read_artifacts, actions } = value;
    let log = job_log::read_end(&cx, &trace).await?;
    let JobDetail { job, commit, duration, pending_reason, .. } = detail;
    let now = viewer.now;
    let title = format!("{} (#{}) · {}", job.name, job.id, project.full_path());
    let queued = job.queued_at.map(|since| job.started_at.unwrap_or(now).as_second() - since.as_second());
    response::page(&JobTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(&cx, viewer, title),
        status: StatusView::of_job(&job),
        commit,
        #[expect(clippy::cast_possible_truncation, reason = "a fraction of a second does not matter")]
        duration: duration.map(|seconds| times::duration(seconds as i64)),
        queued: queued.map(times::duration),
        failure: job.failure_reason.as_deref().map(failure_text),
        pending_reason,
        coverage: job.coverage.map(|coverage| format!("{coverage:.1} %")),
        attempts: attempts.into_iter().map(|(id, status)| (id, status.into())).collect(),
        artifacts_size: job.artifacts.as_ref().map(|file| human_size(u64::try_from(file.size).unwrap_or_default())),
        can_read_artifacts,
        actions,
        job,
        log,
    })
}

/// Returns the job in the path.
pub(super) fn id(cx: &PageCx) -> Result<JobId, PageError> {
    cx.number("id").map(JobId::new)
}
