//! The board of a project: a column for each list, with buttons to move issues and lists.

use askama::Template;
use axum::{body::Body, http::StatusCode, response::Response};
use forge::{
    Error,
    board_pages::{self, BoardColumn, BoardPage, ColumnKind, ColumnRef},
    browse::InProject,
};
use model::{BoardListId, IssueIid, LabelId, labels::LabelSummary};

use super::{
    Section,
    rows::{self, IssueRow},
};
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response,
    text::{self, Markup},
};

const ISSUES_PER_COLUMN: i64 = 20;

#[derive(Template)]
#[template(path = "tracker/board.html")]
struct BoardTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    columns: Vec<ColumnView>,
    has_cards: bool,
    free_labels: Vec<LabelSummary>,
    can_move_issues: bool,
    can_change_lists: bool,
    can_remove_lists: bool,
}

/// A column with its cards.
struct ColumnView {
    /// The name of the column in requests: `open`, `closed`, or the id of the list.
    key: String,
    title: String,
    name: Markup,
    /// The id of the list, if the column is one.
    list: Option<BoardListId>,
    can_move_left: bool,
    can_move_right: bool,
    total: Option<i64>,
    /// The page with all issues of the column, if it has more.
    more_url: Option<String>,
    issues: Vec<IssueRow>,
    /// The keys and titles of the columns beside this one.
    previous: Option<(String, String)>,
    next: Option<(String, String)>,
}

/// Shows the board.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    let project = cx.project();
    let (viewer, found) = cx.read(move |tx| board_pages::get(tx, &project, ISSUES_PER_COLUMN)).await?;
    let InProject { project, value } = found;
    let BoardPage { columns, labels, free_labels, can_move_issues, can_change_lists, can_remove_lists } = value;
    let links = ProjectLinks::new(&project.full_path());
    let names: Vec<(String, String)> = columns.iter().map(|column| name_of(&column.kind)).collect();
    let last_list = columns.len().saturating_sub(2);
    let view = |(at, column): (usize, BoardColumn)| {
        let (name, list, more_url) = match &column.kind {
            ColumnKind::Open => (text::line("Open"), None, links.to("issues")),
            ColumnKind::List(list) => {
                let title = &list.label.title;
                (text::labels::name(title, &list.label.color), Some(list.id), rows::label_url(&links, title))
            }
            ColumnKind::Closed => (text::line("Closed"), None, format!("{}?state=closed", links.to("issues"))),
        };
        let (key, title) = names[at].clone();
        ColumnView {
            key,
            title,
            name,
            list,
            can_move_left: list.is_some() && at > 1,
            can_move_right: list.is_some() && at < last_list,
            total: column.total,
            more_url: column.has_more.then_some(more_url),
            issues: IssueRow::of_project(column.issues, &labels),
            previous: at.checked_sub(1).and_then(|at| names.get(at)).cloned(),
            next: names.get(at + 1).cloned(),
        }
    };
    let columns: Vec<ColumnView> = columns.into_iter().enumerate().map(view).collect();
    response::page(&BoardTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(&cx, viewer, format!("Board · {}", project.full_path())),
        section: Section::Board,
        has_cards: columns.iter().any(|column| !column.issues.is_empty()),
        columns,
        free_labels,
        can_move_issues,
        can_change_lists,
        can_remove_lists,
    })
}

/// Returns the key and the title of a column.
fn name_of(kind: &ColumnKind) -> (String, String) {
    match kind {
        ColumnKind::Open => ("open".to_owned(), "Open".to_owned()),
        ColumnKind::List(list) => (list.id.to_string(), list.label.title.clone()),
        ColumnKind::Closed => ("closed".to_owned(), "Closed".to_owned()),
    }
}

/// Moves an issue to another column. The button that was pressed says which issue, from where and to where.
pub(crate) async fn move_issue(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let mut parts = fields.get("move").split('.');
    let iid = parts.next().and_then(|iid| iid.parse::<IssueIid>().ok());
    let (from, to) = (parts.next().and_then(column_ref), parts.next().and_then(column_ref));
    let (Some(iid), Some(from), Some(to)) = (iid, from, to) else {
        return Err(StatusCode::UNPROCESSABLE_ENTITY.into());
    };
    let project = cx.project();
    cx.write(move |tx| board_pages::move_issue(tx, &project, iid, from, to)).await?;
    Ok(to_board(&cx))
}

fn column_ref(key: &str) -> Option<ColumnRef> {
    match key {
        "open" => Some(ColumnRef::Open),
        "closed" => Some(ColumnRef::Closed),
        id => id.parse().ok().map(ColumnRef::List),
    }
}

/// Adds a list for a label.
pub(crate) async fn create_list(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let label: LabelId =
        fields.get("label_id").parse().map_err(|_| PageError::Status(StatusCode::UNPROCESSABLE_ENTITY))?;
    let project = cx.project();
    cx.write(move |tx| board_pages::create_list(tx, &project, label)).await?;
    Ok(to_board(&cx))
}

/// Moves a list to the left or to the right.
pub(crate) async fn move_list(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, list) = (cx.project(), list_id(&cx)?);
    let step = if fields.get("direction") == "left" { -1 } else { 1 };
    match cx.write(move |tx| board_pages::move_list(tx, &project, list, step)).await {
        // The list may have been moved to the end meanwhile.
        Ok(_) | Err(Error::Refused(_)) => Ok(to_board(&cx)),
        Err(error) => Err(error.into()),
    }
}

/// Removes a list; its issues and its label stay.
pub(crate) async fn delete_list(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, list) = (cx.project(), list_id(&cx)?);
    cx.write(move |tx| board_pages::delete_list(tx, &project, list)).await?;
    Ok(to_board(&cx))
}

fn to_board(cx: &PageCx) -> Response {
    response::redirect(&ProjectLinks::new(&cx.params.subject).to("boards"))
}

fn list_id(cx: &PageCx) -> Result<BoardListId, PageError> {
    cx.number("list").map(BoardListId::new)
}
