//! The form that starts a pipeline.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{Error, Unvalidated, browse::InProject, pipeline_pages, pipelines};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response, text,
};

#[derive(Template)]
#[template(path = "ci/new_pipeline.html")]
struct NewPipelineTemplate {
    layout: Layout,
    head: ProjectHead,
    ref_name: String,
    names: Vec<String>,
    error: Option<String>,
}

/// Shows the form.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let ref_name = cx.query().get("ref").to_owned();
    render(&cx, Some(ref_name).filter(|name| !name.is_empty()), None).await
}

/// Starts a pipeline.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let ref_name = fields.get("ref").trim().to_owned();
    let started = pipelines::create(cx.forge(), cx.caller(), cx.project(), Unvalidated::valid(ref_name.clone())).await;
    match started {
        Ok(pipeline) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).pipeline(pipeline.id))),
        Err(Error::Invalid(violations)) => {
            let texts = violations.iter().flat_map(|(_, texts)| texts.iter().map(ToString::to_string));
            let error = texts.collect::<Vec<_>>().join(", ");
            render(&cx, Some(ref_name), Some(error)).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn render(cx: &PageCx, ref_name: Option<String>, error: Option<String>) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.read(move |tx| pipeline_pages::open_for_start(tx, &project)).await?;
    let InProject { project, value } = found;
    let status = if error.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let template = NewPipelineTemplate {
        head: ProjectHead::new(&project, Tab::Pipelines, &viewer),
        layout: Layout::new(cx, viewer, format!("Run pipeline · {}", project.full_path())),
        ref_name: ref_name.or(value.default).unwrap_or_default(),
        names: value.names,
        error,
    };
    response::page_with_status(status, &template)
}
