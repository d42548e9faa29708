//! Validates a CI file: one that is pasted, or that of a branch or a tag.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{
    browse::InProject,
    lint::{self, LintJob, LintReport, LintSource},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    response,
    text::{self, plain},
};

#[derive(Template)]
#[template(path = "ci/lint.html")]
struct LintTemplate {
    layout: Layout,
    head: ProjectHead,
    ref_name: String,
    ref_error: Option<&'static str>,
    content: String,
    /// The jobs, or the first error; `None` if there is no file.
    outcome: Option<Result<Vec<JobView>, String>>,
}

struct JobView {
    job: LintJob,
    needs: Option<String>,
    script: text::Markup,
}

/// Shows the file of a branch or a tag with its result.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let ref_name = cx.query().get("ref").trim().to_owned();
    render(cx, LintSource::Ref(Some(ref_name).filter(|name| !name.is_empty()))).await
}

/// Shows the result of a pasted file. Nothing is stored, so the page is the response itself.
pub(crate) async fn check(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let content = fields.get("content").replace("\r\n", "\n");
    render(cx, LintSource::Text(content)).await
}

async fn render(cx: PageCx, source: LintSource) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.run_blocking(move |cx| lint::check_in_project(cx, &project, &source)).await?;
    let InProject { project, value } = found;
    let LintReport { text, outcome, ref_name, is_missing } = value;
    let view = |job: LintJob| JobView {
        needs: job.needs.as_ref().map(|names| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }),
        script: plain::preformatted(&job.script.join("\n")),
        job,
    };
    let status = if is_missing { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let template = LintTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(&cx, viewer, format!("Validate .gitlab-ci.yml · {}", project.full_path())),
        ref_name: ref_name.unwrap_or_default(),
        ref_error: is_missing.then_some("There is no such branch or tag."),
        content: text.unwrap_or_default(),
        outcome: outcome.map(|outcome| outcome.map(|jobs| jobs.into_iter().map(view).collect())),
    };
    response::page_with_status(status, &template)
}
