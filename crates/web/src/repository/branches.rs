//! The branches of a project.

use askama::Template;
use axum::body::Body;
use forge::{
    ProjectAbility,
    branches::{self, Branch},
    browse::{self, InProject},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response, text,
};

const BRANCHES_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "repository/branches.html")]
struct BranchesTemplate {
    layout: Layout,
    head: ProjectHead,
    search: String,
    default: String,
    branches: Vec<Branch>,
    can_push: bool,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, BRANCHES_PER_PAGE);
    let search = query.text("search");
    let text = search.clone();
    let (viewer, found) = cx.read(move |tx| browse::branches(tx, &project, &text, &page)).await?;
    let InProject { project, value: (branches, default) } = found;
    response::page(&BranchesTemplate {
        head: ProjectHead::new(&project, Tab::Branches, &viewer),
        can_push: viewer.can_in(&project, ProjectAbility::PushCode),
        layout: Layout::new(&cx, viewer, format!("Branches · {}", project.full_path())),
        default: default.unwrap_or_default(),
        pager: Pager::of(&cx.uri, &query, &branches),
        search,
        branches: branches.items,
    })
}

/// Deletes a branch.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    branches::delete(cx.forge(), cx.caller(), cx.project(), fields.text("name")).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("branches")))
}
