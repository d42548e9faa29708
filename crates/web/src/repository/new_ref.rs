//! The forms for new branches and tags.

use askama::Template;
use axum::body::Body;
use forge::{
    Unvalidated,
    branches::{self, NewBranch},
    browse::InProject,
    ref_pages::{self, RefChoices},
    tags::{self, NewTag},
};

use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    forms::Fields,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response, text,
};

/// The maximum number of names to choose from; others can be typed.
const MAX_NAMES: usize = 200;

#[derive(Template)]
#[template(path = "repository/new_ref.html")]
struct NewRefTemplate {
    layout: Layout,
    head: ProjectHead,
    kind: &'static str,
    is_tag: bool,
    url: String,
    names: Vec<String>,
    fields: Fields,
    errors: FormErrors,
}

/// Shows the form for a branch.
pub(crate) async fn branch_form(cx: PageCx) -> PageResult {
    render(&cx, false, None, FormErrors::default()).await
}

/// Shows the form for a tag.
pub(crate) async fn tag_form(cx: PageCx) -> PageResult {
    render(&cx, true, None, FormErrors::default()).await
}

/// Creates a branch.
pub(crate) async fn create_branch(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let new = Unvalidated::valid(NewBranch { name: fields.text("name"), from: fields.text("ref") });
    match branches::create(cx.forge(), cx.caller(), cx.project(), new).await {
        Ok(branch) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).tree(&branch.name, ""))),
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, false, Some(fields), errors).await
        }
    }
}

/// Creates a tag.
pub(crate) async fn create_tag(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let message = fields.text("message").replace("\r\n", "\n");
    let new = Unvalidated::valid(NewTag {
        name: fields.text("name"),
        target: fields.text("ref"),
        message: Some(message).filter(|message| !message.is_empty()),
        release: None,
    });
    match tags::create(cx.forge(), cx.caller(), cx.project(), new).await {
        Ok(_) => Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("tags"))),
        Err(error) => {
            let errors = FormErrors::of(error, &[])?;
            render(&cx, true, Some(fields), errors).await
        }
    }
}

async fn render(cx: &PageCx, is_tag: bool, typed: Option<Fields>, errors: FormErrors) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.read(move |tx| ref_pages::choices(tx, &project, MAX_NAMES)).await?;
    let InProject { project, value: RefChoices { default_branch, names } } = found;
    let (kind, tab, word) =
        if is_tag { ("tag", Tab::Tags, "tags/new") } else { ("branch", Tab::Branches, "branches/new") };
    let default = || {
        let wanted = Some(cx.query().text("ref")).filter(|name| !name.is_empty());
        Fields::of([("ref", wanted.or(default_branch).unwrap_or_default())])
    };
    let status = errors.status();
    let template = NewRefTemplate {
        head: ProjectHead::new(&project, tab, &viewer),
        layout: Layout::new(cx, viewer, format!("New {kind} · {}", project.full_path())),
        kind,
        is_tag,
        url: ProjectLinks::new(&project.full_path()).to(word),
        names,
        fields: typed.unwrap_or_else(default),
        errors,
    };
    response::page_with_status(status, &template)
}
