//! The dashboard: the projects, issues and groups of the user.

use askama::Template;
use forge::{
    Unvalidated, groups,
    projects::{self, ProjectListKind},
};
use model::{
    Namespace, Page, Slice, User,
    groups::GroupFilter,
    projects::{ProjectFilter, ProjectOrder},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    links,
    paging::{self, Pager},
    projects::list::ListedProject,
    response, text,
    tracker::{self, IssueRow},
};

const PROJECTS_PER_PAGE: i64 = 25;
const MAX_GROUPS: i64 = 20;

#[derive(Template)]
#[template(path = "accounts/dashboard.html")]
struct DashboardTemplate {
    layout: Layout,
    search: String,
    projects: Vec<ListedProject>,
    pager: Pager,
    groups: Vec<Namespace>,
    can_create_project: bool,
    can_create_group: bool,
    /// The issues that the user is assigned to, and how many there are.
    issues: Vec<IssueRow>,
    issue_count: i64,
}

/// Leads from the root to the page where a visitor starts.
pub(crate) async fn redirect(cx: PageCx) -> PageResult {
    let is_signed_in = cx.viewer().await?.user().is_some();
    Ok(response::redirect(if is_signed_in { "/dashboard" } else { "/explore" }))
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let query = cx.query();
    let search = query.get("search").trim().to_owned();
    let page = paging::requested(&query, PROJECTS_PER_PAGE);
    let filter = Unvalidated::valid(ProjectFilter {
        search: Some(search.clone()).filter(|search| !search.is_empty()),
        order: ProjectOrder::LastActivityAt,
        ..ProjectFilter::default()
    });
    let (viewer, (projects, groups, (issues, issue_count))): (_, (Slice<_>, Slice<_>, _)) = cx
        .read(move |tx| {
            let projects = projects::list(tx, ProjectListKind::Mine, &filter, &page)?;
            let own_groups = Unvalidated::valid(GroupFilter { all_available: false, ..GroupFilter::default() });
            let first_page = Unvalidated::valid(Page { number: 1, size: MAX_GROUPS });
            let groups = groups::list(tx, &own_groups, &first_page)?;
            Ok((projects, groups, tracker::assigned_to_user(tx)?))
        })
        .await?;
    let pager = Pager::of(&cx.uri, &query, &projects);
    let projects = projects.items.into_iter().map(ListedProject::new).collect();
    let user = viewer.user();
    let can_create_group = user.is_some_and(groups::may_be_created_by);
    let groups = groups.items;
    // Groups have no limit; the form offers those in which the user may create projects.
    let can_create_project = user.is_some_and(User::can_create_project) || !groups.is_empty();
    let layout = Layout::new(&cx, viewer, "Dashboard");
    response::page(&DashboardTemplate {
        layout,
        search,
        projects,
        pager,
        groups,
        can_create_project,
        can_create_group,
        issues,
        issue_count,
    })
}
