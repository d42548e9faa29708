//! What the page of the board shows and changes: the lists of the board between the open issues without a list and the closed
//! issues.

use std::collections::HashMap;

use model::{
    BoardId, BoardList, BoardListId, Issue, IssueId, IssueIid, LabelId, Page, Project,
    issues::{IssueChanges, IssueFilter, IssueOrder},
    labels::LabelSummary,
};
use store::issue_lists::IssueScope;

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, boards, browse::InProject, issue_pages,
    issues,
};

/// The maximum number of lists on the page.
const MAX_LISTS: i64 = 20;
/// The maximum number of labels to choose from for a new list.
const MAX_LABELS: i64 = 100;

/// The board of a project.
pub struct BoardPage {
    /// The columns: the open issues without a list, the lists, the closed issues.
    pub columns: Vec<BoardColumn>,
    /// The labels of the issues.
    pub labels: HashMap<IssueId, Vec<LabelSummary>>,
    /// The labels that have no list yet; empty if the visitor may not add lists.
    pub free_labels: Vec<LabelSummary>,
    /// Whether the visitor may move issues.
    pub can_move_issues: bool,
    /// Whether the visitor may add and move lists.
    pub can_change_lists: bool,
    /// Whether the visitor may remove lists.
    pub can_remove_lists: bool,
}

/// A column of the board.
pub struct BoardColumn {
    /// Which issues are in the column.
    pub kind: ColumnKind,
    /// The first issues.
    pub issues: Vec<Issue>,
    /// The number of issues in the column; `None` if it is not counted.
    pub total: Option<i64>,
    /// Whether the column has more issues.
    pub has_more: bool,
}

/// Which issues are in a column of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Open issues that are in no list.
    Open,
    /// Open issues with the label of a list.
    List(BoardList),
    /// Closed issues.
    Closed,
}

/// A column as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnRef {
    /// Open issues that are in no list.
    Open,
    /// A list of the board.
    List(BoardListId),
    /// Closed issues.
    Closed,
}

/// Returns the board with at most `size` issues in each column.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, size: i64) -> Result<InProject<BoardPage>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let board = board_of(tx, &project)?;
    let lists = store::boards::lists(tx.db(), board, Page { number: 1, size: MAX_LISTS })?.items;
    let visibility = tx.issue_visibility(&project);
    let listed: Vec<LabelId> = lists.iter().map(|list| list.label.id).collect();
    let mut open = store::issue_lists::open_without_labels(tx.db(), project.id, &visibility, &listed, size + 1)?;
    let max = usize::try_from(size).unwrap_or(usize::MAX);
    let has_more = open.len() > max;
    open.truncate(max);
    let mut columns = vec![BoardColumn { kind: ColumnKind::Open, issues: open, total: None, has_more }];
    let scope = IssueScope::Project(project.id, visibility);
    let page = Page { number: 1, size };
    let column = |tx: &mut ReadTx<'_>, kind, filter: &IssueFilter, order| -> Result<BoardColumn> {
        let found = store::issue_lists::list(tx.db(), &scope, filter, order, page)?;
        Ok(BoardColumn {
            kind,
            has_more: found.total.at_least() > size,
            total: found.total.exact(),
            issues: found.items,
        })
    };
    for list in lists {
        let labels = vec![list.label.title.clone()];
        let filter = IssueFilter { closed: Some(false), labels, ..IssueFilter::default() };
        columns.push(column(tx, ColumnKind::List(list), &filter, IssueOrder::default())?);
    }
    let closed = IssueFilter { closed: Some(true), ..IssueFilter::default() };
    let last_changed = IssueOrder { by_update: true, ascending: false };
    columns.push(column(tx, ColumnKind::Closed, &closed, last_changed)?);
    let shown: Vec<Issue> = columns.iter().flat_map(|column| column.issues.iter().cloned()).collect();
    let labels = issue_pages::labels_of(tx, &shown)?;
    let can_change_lists = tx.user_id().is_ok() && tx.can(&project, ProjectAbility::AdministerBoards);
    let mut free_labels = Vec::new();
    if can_change_lists {
        free_labels = store::labels::first(tx.db(), project.id, MAX_LABELS)?;
        free_labels.retain(|label| !listed.contains(&label.id));
    }
    let value = BoardPage {
        columns,
        labels,
        free_labels,
        can_move_issues: tx.user_id().is_ok() && tx.can(&project, ProjectAbility::AdministerIssues),
        can_change_lists,
        can_remove_lists: tx.user_id().is_ok() && tx.can(&project, ProjectAbility::RemoveBoardLists),
    };
    Ok(InProject { project, value })
}

/// Moves an issue to another column: replaces the label of its list, and closes or reopens it.
pub fn move_issue(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    from: ColumnRef,
    to: ColumnRef,
) -> Result<()> {
    let found = tx.project(project, ProjectAbility::AdministerIssues)?;
    let board = board_of(tx.read(), &found)?;
    let issue = issue_pages::find(tx.read(), &found, iid)?;
    let mut labels = issue.labels.clone();
    if let Some(title) = title_of(tx, board, from)? {
        labels.retain(|label| *label != title);
    }
    labels.extend(title_of(tx, board, to)?.filter(|title| !issue.labels.contains(title)));
    let changes =
        IssueChanges { labels: Some(labels), closed: Some(to == ColumnRef::Closed), ..IssueChanges::default() };
    issues::update(tx, project, &Unvalidated::valid(issue.id), &Unvalidated::valid(changes))?;
    Ok(())
}

/// Returns the title of the label of a list.
fn title_of(tx: &mut WriteTx<'_>, board: BoardId, column: ColumnRef) -> Result<Option<String>> {
    let ColumnRef::List(id) = column else { return Ok(None) };
    let list = store::boards::list(tx.db(), board, id)?.ok_or(Error::NotFound(None))?;
    Ok(Some(list.label.title))
}

/// Adds a list for a label at the end of the board.
pub fn create_list(tx: &mut WriteTx<'_>, project: &ProjectRef, label: LabelId) -> Result<BoardList> {
    let board = open_for_update(tx, project)?;
    boards::create(tx, project, &Unvalidated::valid(board), &Unvalidated::valid(label))
}

/// Moves a list one position to the left or to the right.
pub fn move_list(tx: &mut WriteTx<'_>, project: &ProjectRef, list: BoardListId, step: i64) -> Result<BoardList> {
    let board = open_for_update(tx, project)?;
    let found = store::boards::list(tx.db(), board, list)?.ok_or(Error::NotFound(None))?;
    let position = Unvalidated::valid(found.position + step);
    boards::move_list(tx, project, &Unvalidated::valid(board), &Unvalidated::valid(list), &position)
}

/// Removes a list from the board.
pub fn delete_list(tx: &mut WriteTx<'_>, project: &ProjectRef, list: BoardListId) -> Result<BoardList> {
    let board = open_for_update(tx, project)?;
    boards::delete(tx, project, &Unvalidated::valid(board), &Unvalidated::valid(list), true)
}

fn open_for_update(tx: &mut WriteTx<'_>, project: &ProjectRef) -> Result<BoardId> {
    let found = tx.project(project, ProjectAbility::AdministerBoards)?;
    tx.authorize_project(&found, ProjectAbility::ViewIssues)?;
    board_of(tx.read(), &found)
}

fn board_of(tx: &mut ReadTx<'_>, project: &Project) -> Result<BoardId> {
    store::boards::id_of(tx.db(), project.id)?.ok_or(Error::NotFound(None))
}
