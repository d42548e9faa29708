//! The form for changing and deleting a comment.

use askama::Template;
use axum::body::Body;
use forge::{Unvalidated, browse::InProject, issue_pages};
use model::{IssueIid, NoteId};

use super::Section;
use crate::{
    context::PageCx,
    error::{PageError, PageResult},
    file_forms::FileForm,
    form_errors::FormErrors,
    layout::{Layout, ProjectHead, Tab},
    links::ProjectLinks,
    response,
    text::{self, Markup},
};

#[derive(Template)]
#[template(path = "tracker/edit_note.html")]
struct EditNoteTemplate {
    layout: Layout,
    head: ProjectHead,
    section: Section,
    iid: IssueIid,
    issue_title: String,
    note: NoteId,
    body: String,
    preview: Option<Markup>,
    errors: FormErrors,
}

/// Shows the form.
pub(crate) async fn edit(cx: PageCx) -> PageResult {
    render(&cx, None).await
}

/// Changes the text of a comment.
pub(crate) async fn update(cx: PageCx, body: Body) -> PageResult {
    let form = cx.form_with_files(body).await?;
    let (project, iid, note) = (cx.project(), super::issue_number(&cx)?, note_id(&cx)?);
    if form.is_shown_again() {
        return render(&cx, Some(form)).await;
    }
    let text = Unvalidated::valid(form.text_with_links("note"));
    match cx.write(move |tx| issue_pages::update_note(tx, &project, iid, note, &text)).await {
        Ok(_) => {
            let issue = ProjectLinks::new(&cx.params.subject).issue(iid);
            Ok(response::redirect(&format!("{issue}#note_{note}")))
        }
        Err(error) => render(&cx, Some(form.with_errors(FormErrors::of(error, &["note"])?))).await,
    }
}

/// Deletes a comment.
pub(crate) async fn delete(cx: PageCx, body: Body) -> PageResult {
    cx.form(body).await?;
    let (project, iid, note) = (cx.project(), super::issue_number(&cx)?, note_id(&cx)?);
    cx.write(move |tx| issue_pages::delete_note(tx, &project, iid, note)).await?;
    Ok(response::redirect(&ProjectLinks::new(&cx.params.subject).issue(iid)))
}

fn note_id(cx: &PageCx) -> Result<NoteId, PageError> {
    cx.number("note").map(NoteId::new)
}

async fn render(cx: &PageCx, typed: Option<FileForm>) -> PageResult {
    let (project, iid, note) = (cx.project(), super::issue_number(cx)?, note_id(cx)?);
    let (viewer, found) = cx.read(move |tx| issue_pages::open_note(tx, &project, iid, note)).await?;
    let InProject { project, value: (issue, found) } = found;
    let preview = match &typed {
        Some(typed) => typed.preview_of(cx, "note").await?,
        None => None,
    };
    let template = EditNoteTemplate {
        head: ProjectHead::new(&project, Tab::Issues, &viewer),
        layout: Layout::new(cx, viewer, format!("Edit comment · #{iid} · {}", project.full_path())),
        section: Section::List,
        iid,
        issue_title: issue.title,
        note,
        body: typed.as_ref().map_or(found.body, |typed| typed.text_with_links("note")),
        preview,
        errors: typed.map(|typed| typed.errors).unwrap_or_default(),
    };
    response::page_with_status(template.errors.status(), &template)
}
