//! The form for a new issue.

use askama::Template;
use axum::{body::Body, http::StatusCode};
use forge::{Error, Unvalidated, issue_pages};
use model::issues::NewIssue;

use crate::{
    context::PageCx,
    error::PageResult,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response, text,
};

#[derive(Template)]
#[template(path = "tracker/new_issue.html")]
struct NewIssueTemplate {
    layout: Layout,
    head: ProjectHead,
    title: String,
    description: String,
    confidential: bool,
    title_error: Option<String>,
    description_error: Option<String>,
}

/// Shows the form.
pub(crate) async fn form(cx: PageCx) -> PageResult {
    let fields = cx.query();
    render(&cx, &fields, StatusCode::OK, None, None).await
}

/// Creates an issue.
pub(crate) async fn create(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let description = fields.get("description").replace("\r\n", "\n");
    let new = Unvalidated::valid(NewIssue {
        title: fields.get("title").trim().to_owned(),
        description: Some(description).filter(|text| !text.trim().is_empty()),
        assignee: None,
        milestone: None,
        labels: Vec::new(),
        due_on: None,
        confidential: fields.get("confidential") == "1",
        created_at: None,
    });
    let project = cx.project();
    match cx.write(move |tx| issue_pages::create(tx, &project, &new)).await {
        Ok(issue) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).issue(issue.iid))),
        Err(Error::Invalid(violations)) => {
            let message = |name: &str| {
                let found = violations.iter().find(|(field, _)| *field == name);
                found.map(|(_, texts)| texts.join(", "))
            };
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            render(&cx, &fields, status, message("title"), message("description")).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn render(
    cx: &PageCx,
    fields: &Fields,
    status: StatusCode,
    title_error: Option<String>,
    description_error: Option<String>,
) -> PageResult {
    let project = cx.project();
    let (viewer, project) = cx.read(move |tx| issue_pages::open_for_creation(tx, &project)).await?;
    let template = NewIssueTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("New issue · {}", project.full_path())),
        title: fields.get("title").to_owned(),
        description: fields.get("description").to_owned(),
        confidential: fields.get("confidential") == "1",
        title_error,
        description_error,
    };
    response::page_with_status(status, &template)
}
