//! The forks of a project and the form for a new one.

use askama::Template;
use axum::body::Body;
use forge::{Unvalidated, browse::InProject, forks, project_pages};
use model::Namespace;

use super::{home, list::ListedProject};
use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links,
    paging::{self, Pager},
    response, text,
};

const FORKS_PER_PAGE: i64 = 25;

#[derive(Template)]
#[template(path = "projects/forks.html")]
struct ForksTemplate {
    layout: Layout,
    head: ProjectHead,
    projects: Vec<ListedProject>,
    can_fork: bool,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "projects/new_fork.html")]
struct NewForkTemplate {
    layout: Layout,
    head: ProjectHead,
    targets: Vec<Namespace>,
    fields: Fields,
    errors: FormErrors,
}

/// Lists the forks.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, FORKS_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| project_pages::forks(tx, &project, &page)).await?;
    let InProject { project, value: forks } = found;
    response::page(&ForksTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        can_fork: home::can_fork(&viewer, &project),
        layout: Layout::new(&cx, viewer, format!("Forks · {}", project.full_path())),
        pager: Pager::of(&cx.uri, &query, &forks),
        projects: forks.items.into_iter().map(ListedProject::new).collect(),
    })
}

/// Shows the form.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    render(&cx, Fields::default(), FormErrors::default()).await
}

/// Forks the project.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let namespace = Unvalidated::valid(Some(fields.text("namespace")));
    match forks::create(cx.forge(), cx.caller(), cx.project(), namespace).await {
        Ok(detail) => Ok(response::redirect(&links::page(&detail.project.full_path()))),
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, fields, errors).await
        }
    }
}

async fn render(cx: &PageCx, fields: Fields, errors: FormErrors) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.read(move |tx| project_pages::fork_targets(tx, &project)).await?;
    let InProject { project, value: targets } = found;
    let status = errors.status();
    let template = NewForkTemplate {
        head: ProjectHead::new(&project, Tab::Code, &viewer),
        layout: Layout::new(cx, viewer, format!("Fork · {}", project.full_path())),
        targets,
        fields,
        errors,
    };
    response::page_with_status(status, &template)
}
