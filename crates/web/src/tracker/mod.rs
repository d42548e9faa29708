//! Pages of the issue tracker.

mod board;
mod group_issues;
mod issue;
mod issue_form;
mod issues;
mod labels;
mod milestones;
mod notes;
mod own_issues;
mod rows;

use model::IssueIid;

use crate::{
    context::PageCx,
    error::PageError,
    routes::{Route, get, post},
};

pub(crate) use own_issues::assigned_to_user;
pub(crate) use rows::IssueRow;

pub(crate) const ROUTES: &[Route] = &[
    get!("/dashboard/issues", own_issues::show),
    get!("/groups/{group}/-/issues", group_issues::show),
    get!("/{project}/-/issues", issues::show),
    post!("/{project}/-/issues", issue_form::create),
    get!("/{project}/-/issues/new", issue_form::new),
    get!("/{project}/-/issues/{iid}", issue::show),
    post!("/{project}/-/issues/{iid}", issue_form::update),
    get!("/{project}/-/issues/{iid}/edit", issue_form::edit),
    post!("/{project}/-/issues/{iid}/move", issue_form::move_to),
    post!("/{project}/-/issues/{iid}/delete", issue_form::delete),
    post!("/{project}/-/issues/{iid}/subscription", issue::subscribe),
    post!("/{project}/-/issues/{iid}/notes", issue::reply),
    get!("/{project}/-/issues/{iid}/notes/{note}/edit", notes::edit),
    post!("/{project}/-/issues/{iid}/notes/{note}", notes::update),
    post!("/{project}/-/issues/{iid}/notes/{note}/delete", notes::delete),
    get!("/{project}/-/labels", labels::list),
    post!("/{project}/-/labels", labels::create),
    get!("/{project}/-/labels/new", labels::new),
    get!("/{project}/-/labels/{label}/edit", labels::edit),
    post!("/{project}/-/labels/{label}", labels::update),
    post!("/{project}/-/labels/{label}/delete", labels::delete),
    post!("/{project}/-/labels/{label}/subscription", labels::subscribe),
    get!("/{project}/-/milestones", milestones::list),
    post!("/{project}/-/milestones", milestones::create),
    get!("/{project}/-/milestones/new", milestones::new),
    get!("/{project}/-/milestones/{iid}", milestones::show),
    post!("/{project}/-/milestones/{iid}", milestones::update),
    get!("/{project}/-/milestones/{iid}/edit", milestones::edit),
    post!("/{project}/-/milestones/{iid}/state", milestones::set_state),
    get!("/{project}/-/boards", board::show),
    post!("/{project}/-/boards", board::move_issue),
    post!("/{project}/-/boards/lists", board::create_list),
    post!("/{project}/-/boards/lists/{list}", board::move_list),
    post!("/{project}/-/boards/lists/{list}/delete", board::delete_list),
];

/// The pages of the issue tracker that its navigation links to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    List,
    Board,
    Labels,
    Milestones,
}

impl Section {
    /// The word in the URL, the label and the page of each link.
    const LINKS: [(&str, &str, Self); 4] = [
        ("issues", "List", Self::List),
        ("boards", "Board", Self::Board),
        ("labels", "Labels", Self::Labels),
        ("milestones", "Milestones", Self::Milestones),
    ];
}

/// Returns the number of the issue in the path.
fn issue_number(cx: &PageCx) -> Result<IssueIid, PageError> {
    cx.number("iid").map(IssueIid::new)
}
