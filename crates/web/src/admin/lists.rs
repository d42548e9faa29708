//! All projects and all groups.

use askama::Template;
use forge::{
    Unvalidated, groups as group_list,
    projects::{self as project_list, ProjectListKind},
};
use model::{
    Namespace,
    groups::GroupFilter,
    projects::{ProjectFilter, ProjectOrder},
};

use super::{AdminHead, enter, frame};
use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    links,
    paging::{self, Pager},
    projects::list::ListedProject,
    response, text,
};

const PER_PAGE: i64 = 50;

#[derive(Template)]
#[template(path = "admin/projects.html")]
struct ProjectsTemplate {
    layout: Layout,
    head: AdminHead,
    search: String,
    projects: Vec<ListedProject>,
    pager: Pager,
}

#[derive(Template)]
#[template(path = "admin/groups.html")]
struct GroupsTemplate {
    layout: Layout,
    head: AdminHead,
    search: String,
    groups: Vec<Namespace>,
    pager: Pager,
}

/// Lists all projects.
pub(crate) async fn projects(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let query = cx.query();
    let search = query.text("search");
    let page = paging::requested(&query, PER_PAGE);
    let filter = Unvalidated::valid(ProjectFilter {
        search: Some(search.clone()).filter(|search| !search.is_empty()),
        order: ProjectOrder::LastActivityAt,
        ..ProjectFilter::default()
    });
    let (viewer, found) = cx.read_list(move |tx| project_list::list(tx, ProjectListKind::All, &filter, &page)).await?;
    let (layout, head) = frame(&cx, viewer, "/admin/projects", "Projects")?;
    let pager = Pager::of(&cx.uri, &query, &found);
    let projects = found.items.into_iter().map(ListedProject::new).collect();
    response::page(&ProjectsTemplate { layout, head, search, projects, pager })
}

/// Lists all groups.
pub(crate) async fn groups(cx: PageCx) -> PageResult {
    enter(&cx).await?;
    let query = cx.query();
    let search = query.text("search");
    let page = paging::requested(&query, PER_PAGE);
    let filter = Unvalidated::valid(GroupFilter {
        all_available: true,
        search: Some(search.clone()).filter(|search| !search.is_empty()),
        by_path: true,
        ..GroupFilter::default()
    });
    let (viewer, found) = cx.read_list(move |tx| group_list::list(tx, &filter, &page)).await?;
    let (layout, head) = frame(&cx, viewer, "/admin/groups", "Groups")?;
    let pager = Pager::of(&cx.uri, &query, &found);
    response::page(&GroupsTemplate { layout, head, search, groups: found.items, pager })
}
