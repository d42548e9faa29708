//! The issues of the user in all projects.

use askama::Template;
use forge::{
    ReadTx, Unvalidated,
    issue_pages::{self, CrossProjectIssues, IssueSearch, OwnIssues},
};
use model::{
    Page,
    issues::{IssueFilter, IssueOrder},
};

use super::{issues::ListQuery, rows::IssueRow};
use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    paging::{self, Pager},
    response, text,
};

const ISSUES_PER_PAGE: i64 = 30;
/// The number of issues on the dashboard.
const MAX_ON_DASHBOARD: i64 = 5;

#[derive(Template)]
#[template(path = "tracker/own_issues.html")]
struct OwnIssuesTemplate {
    layout: Layout,
    query: ListQuery,
    is_authored: bool,
    issues: Vec<IssueRow>,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let fields = cx.query();
    let page = paging::requested(&fields, ISSUES_PER_PAGE);
    let query = ListQuery::read(&fields);
    let search = Unvalidated::valid(query.search());
    let is_authored = fields.get("scope") == "created";
    let kind = if is_authored { OwnIssues::Authored } else { OwnIssues::Assigned };
    let (viewer, found) = cx.read_list(move |tx| issue_pages::list_own(tx, kind, &search, &page)).await?;
    let CrossProjectIssues { issues, labels } = found;
    response::page(&OwnIssuesTemplate {
        layout: Layout::new(&cx, viewer, "Issues"),
        query,
        is_authored,
        pager: Pager::of(&cx.uri, &fields, &issues),
        issues: IssueRow::of_projects(issues.items, &labels),
    })
}

/// Returns the open issues that the user is assigned to and that changed last, and how many there are.
pub(crate) fn assigned_to_user(tx: &mut ReadTx<'_>) -> forge::Result<(Vec<IssueRow>, i64)> {
    let search = IssueSearch {
        filter: IssueFilter { closed: Some(false), ..IssueFilter::default() },
        order: IssueOrder { by_update: true, ascending: false },
        ..IssueSearch::default()
    };
    let first = Unvalidated::valid(Page { number: 1, size: MAX_ON_DASHBOARD });
    let found = issue_pages::list_own(tx, OwnIssues::Assigned, &Unvalidated::valid(search), &first)?;
    let total = found.issues.total.at_least();
    Ok((IssueRow::of_projects(found.issues.items, &found.labels), total))
}
