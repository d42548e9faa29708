//! The pages of users and groups.

use askama::Template;
use forge::explore::{self, GroupPage, NamespacePage};
use model::{Role, Visibility};

use super::list::ListedProject;
use crate::{
    accounts::user,
    context::{PageCx, Viewer},
    error::PageResult,
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

const PROJECTS_PER_PAGE: i64 = 25;

#[derive(Template)]
#[template(path = "projects/group.html")]
struct GroupTemplate {
    layout: Layout,
    name: String,
    full_path: String,
    description: String,
    visibility: Visibility,
    role: Option<&'static str>,
    projects: Vec<ListedProject>,
    pager: Pager,
}

/// Shows the user or the group with a path of one segment.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let path = cx.params.subject.clone();
    let page = paging::requested(&cx.query(), PROJECTS_PER_PAGE);
    let (viewer, found) = cx.read(move |tx| explore::namespace(tx, &path, &page)).await?;
    match found {
        NamespacePage::User(user) => user::render(&cx, viewer, *user),
        NamespacePage::Group(group) => group_page(&cx, viewer, *group),
    }
}

/// Shows the group with a path of any number of segments.
pub(crate) async fn group(cx: PageCx) -> PageResult {
    let path = cx.params.subject.clone();
    let page = paging::requested(&cx.query(), PROJECTS_PER_PAGE);
    let (viewer, group) = cx.read(move |tx| explore::group(tx, &path, &page)).await?;
    group_page(&cx, viewer, group)
}

pub(crate) fn group_page(cx: &PageCx, viewer: Viewer, page: GroupPage) -> PageResult {
    let GroupPage { group, role, projects } = page;
    let pager = Pager::of(&cx.uri, &cx.query(), &projects);
    let projects = projects.items.into_iter().map(ListedProject::new).collect();
    let layout = Layout::new(cx, viewer, group.name.clone());
    response::page(&GroupTemplate {
        layout,
        name: group.name,
        full_path: group.full_path,
        description: group.description,
        visibility: group.visibility,
        role: role.map(role_name),
        projects,
        pager,
    })
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Guest => "guest",
        Role::Reporter => "reporter",
        Role::Developer => "developer",
        Role::Master => "master",
        Role::Owner => "owner",
    }
}
