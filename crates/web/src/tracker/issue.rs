//! An issue with its comments.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
};
use forge::{
    Error, Unvalidated,
    browse::InProject,
    issue_pages::{self, IssuePage, IssueReply},
};
use model::{Issue, IssueIid, IssueState, Note, Page, Time};

use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    response,
    text::{
        self, Markup,
        markdown::{self, Source},
    },
};

const NOTES_PER_PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "tracker/issue.html")]
struct IssueTemplate {
    layout: Layout,
    head: ProjectHead,
    issue: Issue,
    description: Option<Markup>,
    notes: Vec<NoteView>,
    pager: Pager,
    can_comment: bool,
    can_change: bool,
    /// The comment as it was typed, if it was not accepted.
    typed_note: String,
    error: Option<String>,
}

struct NoteView {
    id: i64,
    author: Option<(String, String)>,
    is_system: bool,
    created_at: Time,
    html: Markup,
}

impl IssueTemplate {
    fn is_closed(&self) -> bool {
        self.issue.state == IssueState::Closed
    }
}

/// Shows an issue.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, String::new(), None).await
}

/// Adds a comment, closes or reopens an issue.
pub(crate) async fn reply(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, iid) = (cx.project(), iid(&cx)?);
    let note = fields.get("note").replace("\r\n", "\n");
    let closed = match fields.get("state") {
        "close" => Some(true),
        "reopen" => Some(false),
        _ => None,
    };
    let reply = Unvalidated::valid(IssueReply { note: note.clone(), closed });
    match cx.write(move |tx| issue_pages::reply(tx, &project, iid, &reply)).await {
        Ok(()) => Ok(response::redirect(&format!("{}#end", ProjectLinks::new(&cx.params.subject).issue(iid)))),
        Err(Error::Invalid(violations)) => {
            let error = violations.full_messages().join(". ");
            render(&cx, note, Some(error)).await
        }
        Err(error) => Err(error.into()),
    }
}

fn iid(cx: &PageCx) -> Result<IssueIid, PageError> {
    cx.number("iid").map(IssueIid::new)
}

async fn render(cx: &PageCx, typed_note: String, error: Option<String>) -> PageResult {
    let (project, iid, query) = (cx.project(), iid(cx)?, cx.query());
    let page = if cx.method == axum::http::Method::POST {
        Unvalidated::valid(Page { number: 1, size: NOTES_PER_PAGE })
    } else {
        paging::requested(&query, NOTES_PER_PAGE)
    };
    let uri = cx.uri.clone();
    // Rendering Markdown may take long.
    let (viewer, (project, page, description, notes, pager)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = cx.read(|tx| issue_pages::get(tx, &project, iid, &page))?;
            let source = Source::Project(ProjectLinks::new(&project.full_path()));
            let description = value.issue.description.as_deref().filter(|text| !text.trim().is_empty());
            let description = description.map(|text| markdown::render(text, &source));
            let pager = Pager::of(&uri, &query, &value.notes);
            let notes: Vec<NoteView> = value.notes.items.iter().map(|note| NoteView::new(note, &source)).collect();
            Ok((project, value, description, notes, pager))
        })
        .await?;
    let IssuePage { issue, can_comment, can_change, .. } = page;
    let template = IssueTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("{} (#{}) · {}", issue.title, issue.iid, project.full_path())),
        description,
        notes,
        pager,
        can_comment,
        can_change,
        typed_note,
        issue,
        error,
    };
    let status = if template.error.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let mut page = response::page_with_status(status, &template)?;
    if template.issue.confidential {
        page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    Ok(page)
}

impl NoteView {
    fn new(note: &Note, source: &Source) -> Self {
        Self {
            id: note.id.get(),
            author: note.author.as_ref().map(|author| (author.name.clone(), links::page(&author.username))),
            is_system: note.system,
            created_at: note.created_at,
            html: markdown::render(&note.body, source),
        }
    }
}
