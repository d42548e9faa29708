//! The issues in the projects of a group.

use askama::Template;
use forge::{
    Unvalidated,
    issue_pages::{self, GroupIssues},
};

use super::{issues::ListQuery, rows::IssueRow};
use crate::{
    context::PageCx,
    error::PageResult,
    layout::Layout,
    paging::{self, Pager},
    projects::group_head::{GroupHead, GroupTab},
    response, text,
};

const ISSUES_PER_PAGE: i64 = 30;

#[derive(Template)]
#[template(path = "tracker/group_issues.html")]
struct GroupIssuesTemplate {
    layout: Layout,
    head: GroupHead,
    query: ListQuery,
    issues: Vec<IssueRow>,
    pager: Pager,
}

pub(crate) async fn show(cx: PageCx) -> PageResult {
    let (group, fields) = (cx.params.subject.clone(), cx.query());
    let page = paging::requested(&fields, ISSUES_PER_PAGE);
    let query = ListQuery::read(&fields);
    let search = Unvalidated::valid(query.search());
    let (viewer, found) = cx.read_list(move |tx| issue_pages::list_in_group(tx, &group, &search, &page)).await?;
    let GroupIssues { group, role, list } = found;
    response::page(&GroupIssuesTemplate {
        head: GroupHead::new(&group, role, viewer.user().is_some(), GroupTab::Issues),
        layout: Layout::new(&cx, viewer, format!("Issues · {}", group.full_path)),
        query,
        pager: Pager::of(&cx.uri, &fields, &list.issues),
        issues: IssueRow::of_projects(list.issues.items, &list.labels),
    })
}
