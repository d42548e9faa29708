//! The issues of a project, with filters.

use askama::Template;
use forge::{
    Unvalidated,
    browse::InProject,
    issue_pages::{self, IssueList},
    issues::IssueListOptions,
};
use model::{
    Issue, IssueState,
    issues::{IssueFilter, IssueOrder},
};

use crate::{
    context::PageCx,
    error::PageResult,
    layout::{Layout, ProjectHead, Tab},
    links,
    paging::{self, Pager},
    response, text,
};

const ISSUES_PER_PAGE: i64 = 30;

/// The states to choose from: value, label, and whether only closed issues are listed.
const STATES: [(&str, &str, Option<bool>); 3] =
    [("opened", "open", Some(false)), ("closed", "closed", Some(true)), ("all", "all", None)];

/// The orders to choose from: value, label, by the last change, ascending.
const ORDERS: [(&str, &str, bool, bool); 4] = [
    ("created", "newest", false, false),
    ("oldest", "oldest", false, true),
    ("updated", "last change", true, false),
    ("stale", "longest without change", true, true),
];

#[derive(Template)]
#[template(path = "tracker/issues.html")]
struct IssuesTemplate {
    layout: Layout,
    head: ProjectHead,
    search: String,
    label: String,
    milestone: String,
    /// Value, label, and whether it is the current one.
    states: Vec<(&'static str, &'static str, bool)>,
    orders: Vec<(&'static str, &'static str, bool)>,
    is_filtered: bool,
    issues: Vec<Issue>,
    can_create: bool,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (project, query) = (cx.project(), cx.query());
    let page = paging::requested(&query, ISSUES_PER_PAGE);
    // PostgreSQL refuses to search for NUL.
    let field = |name: &str| query.get(name).trim().replace('\0', "");
    let (search, label, milestone) = (field("search"), field("label_name"), field("milestone_title"));
    let state = STATES.iter().find(|(value, ..)| *value == query.get("state")).unwrap_or(&STATES[0]);
    let order = ORDERS.iter().find(|(value, ..)| *value == query.get("sort")).unwrap_or(&ORDERS[0]);
    let is_given = |text: &String| !text.is_empty();
    let options = Unvalidated::valid(IssueListOptions {
        filter: IssueFilter {
            closed: state.2,
            labels: Some(label.clone()).filter(is_given).into_iter().collect(),
            all_labels: true,
            milestone: Some(milestone.clone()).filter(is_given),
            search: Some(search.clone()).filter(is_given),
            ..IssueFilter::default()
        },
        order: IssueOrder { by_update: order.2, ascending: order.3 },
    });
    let (viewer, found) = cx.read(move |tx| issue_pages::list(tx, &project, &options, &page)).await?;
    let InProject { project, value: IssueList { issues, can_create } } = found;
    response::page(&IssuesTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(&cx, viewer, format!("Issues · {}", project.full_path())),
        states: STATES.iter().map(|(value, label, _)| (*value, *label, *value == state.0)).collect(),
        orders: ORDERS.iter().map(|(value, label, ..)| (*value, *label, *value == order.0)).collect(),
        is_filtered: [&search, &label, &milestone].into_iter().any(is_given) || state.0 != STATES[0].0,
        search,
        label,
        milestone,
        pager: Pager::of(&cx.uri, &query, &issues),
        issues: issues.items,
        can_create,
    })
}
