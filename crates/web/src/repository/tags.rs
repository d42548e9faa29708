//! The tags of a project.

use askama::Template;
use axum::body::Body;
use forge::{
    ProjectAbility,
    browse::{self, InProject},
    tags::{self, TagWithRelease},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    paging::{self, Pager},
    response, text,
};

const TAGS_PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "repository/tags.html")]
struct TagsTemplate {
    layout: Layout,
    head: ProjectHead,
    search: String,
    tags: Vec<TagWithRelease>,
    can_edit: bool,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, TAGS_PER_PAGE);
    let search = query.text("search");
    let text = search.clone();
    let (viewer, InProject { project, value: tags }) =
        cx.read(move |tx| browse::tags(tx, &project, &text, &page)).await?;
    let can_edit = viewer.can_in(&project, ProjectAbility::PushCode);
    response::page(&TagsTemplate {
        head: ProjectHead::new(&project, Tab::Tags, &viewer),
        layout: Layout::new(&cx, viewer, format!("Tags · {}", project.full_path())),
        can_edit,
        pager: Pager::of(&cx.uri, &query, &tags),
        search,
        tags: tags.items,
    })
}

/// Deletes a tag.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    tags::delete(cx.forge(), cx.caller(), cx.project(), fields.text("name")).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).to("tags")))
}
