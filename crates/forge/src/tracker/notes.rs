//! Notes on issues.

use model::{
    EventKind, Issue, IssueId, Note, NoteId, Page, Role, Slice, Time, UserId, WebhookEvent,
    events::{EventAction, EventTarget},
    notes::check_body,
    webhook_events::{NoteEvent, NoteTarget},
};
use store::{events::NewEvent, issues::IssueUpdate, notes::NewNote};

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    issues::{self, EventContext},
    outbox,
};

/// The content of a note to create.
#[derive(Clone, Debug)]
pub struct NoteText {
    /// The text.
    pub body: String,
    /// The time of creation, if the note is imported; ignored unless the caller is an owner.
    pub created_at: Option<Time>,
}

/// Lists the notes on an issue in order of insertion, system notes included.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Note>> {
    let (_, issue) = issues::open(tx, project, issue, ProjectAbility::ReadIssues)?;
    Ok(store::notes::list(tx.db(), issue.id, *page.validate()?)?)
}

/// Returns a note on an issue.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    id: &Unvalidated<NoteId>,
) -> Result<Note> {
    let (_, issue) = issues::open(tx, project, issue, ProjectAbility::ReadIssues)?;
    find(tx, &issue, *id.validate()?)
}

fn find(tx: &mut ReadTx<'_>, issue: &Issue, id: NoteId) -> Result<Note> {
    store::notes::find(tx.db(), issue.id, id)?.ok_or(Error::NoSuchRow)
}

/// Creates a note on an issue.
pub fn create(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    text: &Unvalidated<NoteText>,
) -> Result<Note> {
    let (project, issue) = issues::open_for_update(tx, project, issue)?;
    tx.authorize_project(&project, ProjectAbility::WriteIssues)?;
    let (me, now) = (tx.user_id()?, tx.now());
    let NoteText { body, created_at } = text.validate()?;
    check_body(body)?;
    let created_at = created_at.filter(|_| tx.read().project_role(&project) >= Some(Role::Owner)).unwrap_or(now);
    let new = NewNote { project: project.id, issue: issue.id, author: me, body, system: false, now: created_at };
    let id = store::notes::insert(tx.db(), &new)?;
    touch(tx, &issue, me)?;
    let target = Some(EventTarget::Note { note: id, issue: issue.id });
    let action = EventAction::Commented;
    let event = NewEvent { project: project.id, author: me, action, target, now };
    store::events::insert(tx.db(), &event)?;
    let note = find(tx.read(), &issue, id)?;
    enqueue_webhooks(tx, &issue, me, &note)?;
    Ok(note)
}

/// Enqueues the webhooks for a new note. Notes on confidential issues have an event kind of their own.
fn enqueue_webhooks(tx: &mut WriteTx<'_>, issue: &Issue, by: UserId, note: &Note) -> Result<()> {
    let kind = if issue.confidential { EventKind::ConfidentialNote } else { EventKind::Note };
    if !outbox::has_subscribers(tx.read(), kind, Some(issue.project))? {
        return Ok(());
    }
    let Some(EventContext { project, user, updated_by }) = issues::event_context(tx, issue, by)? else { return Ok(()) };
    // `issue` was loaded before the note was added.
    let issue = Issue { updated_at: tx.now(), user_notes: issue.user_notes + 1, ..issue.clone() };
    let on = NoteTarget::Issue { note, issue: &issue, updated_by };
    let event = NoteEvent { project: &project, user: &user, on };
    outbox::enqueue(tx, kind, Some(project.id), WebhookEvent::Note(&event))
}

/// Updates the text of a note; system notes cannot be changed.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    id: &Unvalidated<NoteId>,
    body: &Unvalidated<String>,
) -> Result<Note> {
    let (me, issue, note) = open_for_update(tx, project, issue, id)?;
    if note.system {
        return Err(Error::Forbidden(None));
    }
    let body = body.validate()?;
    check_body(body)?;
    if *body == note.body {
        return Ok(note);
    }
    let now = tx.now();
    store::notes::update(tx.db(), note.id, body, me, now)?;
    touch(tx, &issue, me)?;
    find(tx.read(), &issue, note.id)
}

/// Deletes a note; system notes require the permission to delete notes of others.
pub fn delete(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    id: &Unvalidated<NoteId>,
) -> Result<Note> {
    let (me, issue, note) = open_for_update(tx, project, issue, id)?;
    store::notes::delete(tx.db(), note.id)?;
    touch(tx, &issue, me)?;
    Ok(note)
}

/// Locks the issues of the project, and returns the id of the caller, the issue, and a note that they may change or
/// delete: their own, or any with the permission to moderate notes.
fn open_for_update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    id: &Unvalidated<NoteId>,
) -> Result<(UserId, Issue, Note)> {
    let (project, issue) = issues::open_for_update(tx, project, issue)?;
    tx.authorize_project(&project, ProjectAbility::WriteIssues)?;
    let me = tx.user_id()?;
    let note = find(tx.read(), &issue, *id.validate()?)?;
    let mine = !note.system && note.author.as_ref().is_some_and(|author| author.id == me);
    if !mine {
        tx.authorize_project(&project, ProjectAbility::AdministerNotes)?;
    }
    Ok((me, issue, note))
}

/// Sets the time and the user of the last change of an issue.
fn touch(tx: &mut WriteTx<'_>, issue: &Issue, by: UserId) -> Result<()> {
    let now = tx.now();
    Ok(store::issues::update(tx.db(), issue.id, &IssueUpdate::default(), Some(by), now)?)
}

/// Adds a system note about a change of an issue.
pub(crate) fn add_system_note(tx: &mut WriteTx<'_>, issue: &Issue, author: UserId, body: &str) -> Result<()> {
    let now = tx.now();
    let note = NewNote { project: issue.project, issue: issue.id, author, body, system: true, now };
    store::notes::insert(tx.db(), &note)?;
    Ok(())
}
