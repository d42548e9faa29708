//! An issue with its comments.

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, Method, header},
};
use forge::{
    Unvalidated,
    browse::InProject,
    issue_pages::{self, IssuePage, IssueReply},
};
use model::{Issue, IssueState, Note, Page, Time};

use super::{Section, rows};
use crate::{
    context::PageCx,
    error::PageResult,
    form_errors::FormErrors,
    layout::{Layout, ProjectHead, Tab},
    links::{self, ProjectLinks},
    paging::{self, Pager},
    response,
    text::{
        self, Markup,
        markdown::{self, Source},
        references::ReferenceLinks,
    },
};

const NOTES_PER_PAGE: i64 = 100;

#[derive(Template)]
#[template(path = "tracker/issue.html")]
struct IssueTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    issue: Issue,
    labels: Vec<Markup>,
    description: Option<Markup>,
    notes: Vec<NoteView>,
    pager: Pager,
    can_comment: bool,
    can_change: bool,
    reply: Reply,
}

struct NoteView {
    id: i64,
    author: Option<(String, String)>,
    is_system: bool,
    created_at: Time,
    /// The time of the last change, if the text was changed.
    edited_at: Option<Time>,
    can_edit: bool,
    html: Markup,
}

/// A comment as it was typed, if it was not accepted, and why.
#[derive(Default)]
struct Reply {
    text: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

impl IssueTemplate {
    fn is_closed(&self) -> bool {
        self.issue.state == IssueState::Closed
    }
}

/// Shows an issue.
pub(crate) async fn show(cx: PageCx) -> PageResult {
    render(&cx, Reply::default()).await
}

/// Adds a comment, closes or reopens an issue.
pub(crate) async fn reply(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    let (project, iid) = (cx.project(), super::issue_number(&cx)?);
    let text = form.text_with_links("note");
    if form.is_shown_again() {
        let preview = form.preview_of(&cx, "note").await?;
        return render(&cx, Reply { text, preview, errors: form.errors }).await;
    }
    let closed = match form.fields.get("state") {
        "close" => Some(true),
        "reopen" => Some(false),
        _ => None,
    };
    let reply = Unvalidated::valid(IssueReply { note: text.clone(), closed });
    match cx.write(move |tx| issue_pages::reply(tx, &project, iid, &reply)).await {
        Ok(()) => Ok(response::redirect(&format!("{}#end", ProjectLinks::new(&cx.params.subject).issue(iid)))),
        Err(error) => {
            let errors = FormErrors::of(error, &["note"])?;
            render(&cx, Reply { text, preview: None, errors }).await
        }
    }
}

/// Subscribes the user to an issue, or unsubscribes them.
pub(crate) async fn subscribe(cx: PageCx, body: Body) -> PageResult {
    let fields = cx.form(body).await?;
    let (project, iid) = (cx.project(), super::issue_number(&cx)?);
    let subscribed = fields.get("subscribed") == "1";
    cx.write(move |tx| issue_pages::set_subscribed(tx, &project, iid, subscribed)).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).issue(iid)))
}

async fn render(cx: &PageCx, reply: Reply) -> PageResult {
    let (project, iid, query) = (cx.project(), super::issue_number(cx)?, cx.query());
    let page = if cx.method == Method::POST {
        Unvalidated::valid(Page { number: 1, size: NOTES_PER_PAGE })
    } else {
        paging::requested(&query, NOTES_PER_PAGE)
    };
    let uri = cx.uri.clone();
    // Rendering Markdown may take long.
    let (viewer, (project, page, description, notes, pager)) = cx
        .run_blocking(move |cx| {
            let InProject { project, value } = cx.read(|tx| issue_pages::get(tx, &project, iid, &page))?;
            let user = cx.read(|tx| Ok(tx.user_id().ok()))?;
            let source = Source::Project(ProjectLinks::new(&project.full_path()));
            let description = value.issue.description.as_deref().filter(|text| !text.trim().is_empty());
            let texts = description.into_iter().chain(value.notes.items.iter().map(|note| note.body.as_str()));
            let references = ReferenceLinks::resolve(cx, &project, texts)?;
            let description = description.map(|text| markdown::render_with(text, &source, &references));
            let pager = Pager::of(&uri, &query, &value.notes);
            let note = |note: &Note| {
                let can_edit = value.can_comment
                    && user.is_some_and(|user| issue_pages::may_edit_note(note, user, value.can_moderate));
                NoteView::new(note, markdown::render_with(&note.body, &source, &references), can_edit)
            };
            let notes: Vec<NoteView> = value.notes.items.iter().map(note).collect();
            Ok((project, value, description, notes, pager))
        })
        .await?;
    let IssuePage { issue, labels, can_comment, can_change, .. } = page;
    let template = IssueTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("{} (#{}) · {}", issue.title, issue.iid, project.full_path())),
        section: Section::List,
        labels: rows::chips(&labels, &ProjectLinks::new(&project.full_path())),
        description,
        notes,
        pager,
        can_comment,
        can_change,
        issue,
        reply,
    };
    let mut page = response::page_with_status(template.reply.errors.status(), &template)?;
    if template.issue.confidential {
        page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    Ok(page)
}

impl NoteView {
    fn new(note: &Note, html: Markup, can_edit: bool) -> Self {
        Self {
            id: note.id.get(),
            author: note.author.as_ref().map(|author| (author.name.clone(), links::page(&author.username))),
            is_system: note.system,
            created_at: note.created_at,
            edited_at: (note.updated_at > note.created_at && !note.system).then_some(note.updated_at),
            can_edit,
            html,
        }
    }
}
