//! Forms that change a job.

use axum::{body::Body, response::Response};
use forge::{Unvalidated, artifacts, jobs, traces};
use model::{JobId, PipelineId};

use super::job;
use crate::{context::PageCx, error::PageResult, forms::Fields, links::ProjectLinks, response};

/// Retries a job.
pub(crate) async fn retry(cx: PageCx, body: Body) -> PageResult {
    let (fields, id) = (cx.form(body).await?, Unvalidated::valid(job::id(&cx)?));
    let detail = jobs::retry(cx.forge(), cx.caller(), cx.project(), id).await?;
    Ok(back(&cx, &fields, detail.job.id, detail.job.pipeline.id))
}

/// Cancels a job.
pub(crate) async fn cancel(cx: PageCx, body: Body) -> PageResult {
    let (fields, id) = (cx.form(body).await?, Unvalidated::valid(job::id(&cx)?));
    let detail = jobs::cancel(cx.forge(), cx.caller(), cx.project(), id).await?;
    Ok(back(&cx, &fields, detail.job.id, detail.job.pipeline.id))
}

/// Starts a manual job.
pub(crate) async fn play(cx: PageCx, body: Body) -> PageResult {
    let (fields, id) = (cx.form(body).await?, Unvalidated::valid(job::id(&cx)?));
    let detail = jobs::play(cx.forge(), cx.caller(), cx.project(), id).await?;
    Ok(back(&cx, &fields, detail.job.id, detail.job.pipeline.id))
}

/// Erases the log and the artifacts of a job.
pub(crate) async fn erase(cx: PageCx, body: Body) -> PageResult {
    let (fields, id) = (cx.form(body).await?, Unvalidated::valid(job::id(&cx)?));
    let job = traces::erase(cx.forge(), cx.caller(), cx.project(), id).await?;
    Ok(back(&cx, &fields, job.id, job.pipeline.id))
}

/// Keeps the artifacts of a job from expiring.
pub(crate) async fn keep(cx: PageCx, body: Body) -> PageResult {
    let (fields, id, project) = (cx.form(body).await?, Unvalidated::valid(job::id(&cx)?), cx.project());
    let job = cx.write(move |tx| artifacts::keep(tx, &project, &id)).await?;
    Ok(back(&cx, &fields, job.id, job.pipeline.id))
}

/// Leads back to the page on which the form was.
fn back(cx: &PageCx, fields: &Fields, job: JobId, pipeline: PipelineId) -> Response {
    let links = ProjectLinks::new(&cx.params.subject);
    let url = if fields.get("from") == "pipeline" { links.pipeline(pipeline) } else { links.job(job) };
    response::redirect(&url)
}
