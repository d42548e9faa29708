//! The pages of users and groups.

use askama::Template;
use forge::{
    GroupAbility,
    explore::{self, GroupPage, NamespacePage},
};
use model::Role;

use super::{
    group_head::{GroupHead, GroupTab},
    list::ListedProject,
};
use crate::{
    accounts::user,
    context::{PageCx, Viewer},
    error::PageResult,
    layout::Layout,
    links,
    paging::{self, Pager},
    response, text,
};

const PROJECTS_PER_PAGE: i64 = 25;

#[derive(Template)]
#[template(path = "projects/group.html")]
struct GroupTemplate {
    layout: Layout,
    head: GroupHead,
    avatar: Option<String>,
    description: String,
    role: Option<&'static str>,
    can_create_project: bool,
    projects: Vec<ListedProject>,
    pager: Pager,
}

/// Shows the user or the group with a path of one segment.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let path = cx.params.subject.clone();
    let page = paging::requested(&cx.query(), PROJECTS_PER_PAGE);
    let (viewer, found) = cx.read_list(move |tx| explore::namespace(tx, &path, &page)).await?;
    match found {
        NamespacePage::User(user) => user::render(&cx, viewer, *user),
        NamespacePage::Group(group) => group_page(&cx, viewer, *group),
    }
}

/// Shows the group with a path of any number of segments.
pub(crate) async fn group(cx: PageCx) -> PageResult {
    let path = cx.params.subject.clone();
    let page = paging::requested(&cx.query(), PROJECTS_PER_PAGE);
    let (viewer, group) = cx.read_list(move |tx| explore::group(tx, &path, &page)).await?;
    group_page(&cx, viewer, group)
}

pub(crate) fn group_page(cx: &PageCx, viewer: Viewer, page: GroupPage) -> PageResult {
    let GroupPage { group, role, projects } = page;
    let pager = Pager::of(&cx.uri, &cx.query(), &projects);
    let projects = projects.items.into_iter().map(ListedProject::new).collect();
    let is_signed_in = viewer.user().is_some();
    let layout = Layout::new(cx, viewer, group.name.clone());
    response::page(&GroupTemplate {
        head: GroupHead::new(&group, role, is_signed_in, GroupTab::Projects),
        layout,
        avatar: group.avatar_path(),
        description: group.description,
        role: role.map(role_name),
        can_create_project: is_signed_in && GroupAbility::CreateProjects.is_granted_to(role),
        projects,
        pager,
    })
}

/// Returns the name of a role.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Guest => "guest",
        Role::Reporter => "reporter",
        Role::Developer => "developer",
        Role::Master => "master",
        Role::Owner => "owner",
    }
}
