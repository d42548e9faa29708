//! Notes on issues.

use model::{
    EventKind, Issue, Note, Page, Role, Slice, Time, WebhookEvent,
    events::{Action, Target},
    notes::check_body,
    webhook_events::{Commented, NoteHappening},
};
use store::{events::NewEvent, issues::Update, notes::NewNote};

use crate::{
    Ability, Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, announcements,
    issues::{self, Scene},
};

/// A note as somebody writes it.
#[derive(Clone, Debug)]
pub struct NoteText {
    /// What it says.
    pub body: String,
    /// When it was written, if somebody brings it from elsewhere; told by others than owners, it does not count.
    pub created_at: Option<Time>,
}

/// The notes on an issue in the order in which they were written, those of the service included.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Note>> {
    let (_, issue) = issues::open(tx, project, issue, ProjectAbility::ReadIssues)?;
    Ok(store::notes::list(tx.db(), issue.id, *page.get()?)?)
}

/// One note on an issue.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, issue: &Unvalidated<i64>, id: &Unvalidated<i64>) -> Result<Note> {
    let (_, issue) = issues::open(tx, project, issue, ProjectAbility::ReadIssues)?;
    find(tx, &issue, *id.get()?)
}

fn find(tx: &mut ReadTx<'_>, issue: &Issue, id: i64) -> Result<Note> {
    store::notes::find(tx.db(), issue.id, id)?.ok_or(Error::NoSuchRow)
}

/// Says something about an issue.
pub fn create(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    text: &Unvalidated<NoteText>,
) -> Result<Note> {
    let (project, issue) = issues::open_to_write(tx, project, issue)?;
    tx.may_to(&project, ProjectAbility::WriteIssues)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    let NoteText { body, created_at } = text.get()?;
    check_body(body)?;
    let written = created_at.filter(|_| tx.role_to(&project) >= Some(Role::Owner)).unwrap_or(now);
    let new = NewNote { project: project.id, issue: issue.id, author: me, body, system: false, now: written };
    let id = store::notes::insert(tx.db(), &new)?;
    touch(tx, &issue, me)?;
    let target = Some(Target::Note { note: id, issue: issue.id });
    let action = Action::Commented;
    let event = NewEvent { project: project.id, author: me, action, target, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    let note = find(tx, &issue, id)?;
    announce(tx, &issue, me, &note)?;
    Ok(note)
}

/// Tells hooks of a note. If only some see the issue, only those hear that want to know of such.
fn announce(tx: &mut WriteTx<'_>, issue: &Issue, by: i64, note: &Note) -> Result<()> {
    let occasion = if issue.confidential { EventKind::ConfidentialNote } else { EventKind::Note };
    if !announcements::is_wanted(tx, occasion, Some(issue.project))? {
        return Ok(());
    }
    let Some(Scene { project, user, updated_by }) = issues::scene(tx, issue, by)? else { return Ok(()) };
    // The note has changed it.
    let issue = Issue { updated_at: tx.now(), user_notes: issue.user_notes + 1, ..issue.clone() };
    let on = Commented::Issue { note, issue: &issue, updated_by };
    let happening = NoteHappening { project: &project, user: &user, on };
    announcements::write_down(tx, occasion, Some(project.id), WebhookEvent::Note(&happening), None)
}

/// Gives a note another text. What the service wrote stays as it is, whoever asks.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    id: &Unvalidated<i64>,
    body: &Unvalidated<String>,
) -> Result<Note> {
    let (me, issue, note) = open_to_change(tx, project, issue, id)?;
    if note.system {
        return Err(Error::Forbidden(None));
    }
    let body = body.get()?;
    check_body(body)?;
    if *body == note.body {
        return Ok(note);
    }
    let now = tx.now();
    store::notes::update(tx.db(), note.id, body, me, now)?;
    touch(tx, &issue, me)?;
    find(tx, &issue, note.id)
}

/// Takes a note back. What the service wrote is only taken away by those who may take away what others wrote.
pub fn delete(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    id: &Unvalidated<i64>,
) -> Result<Note> {
    let (me, issue, note) = open_to_change(tx, project, issue, id)?;
    store::notes::delete(tx.db(), note.id)?;
    touch(tx, &issue, me)?;
    Ok(note)
}

/// Finds a note that the actor may change or take away: one of their own, or any if they keep order in the project. From
/// here on nobody else changes issues of the project. Also says who the actor is.
fn open_to_change(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    id: &Unvalidated<i64>,
) -> Result<(i64, Issue, Note)> {
    let (project, issue) = issues::open_to_write(tx, project, issue)?;
    tx.may_to(&project, ProjectAbility::WriteIssues)?;
    let me = tx.my_id(Ability::Browse)?;
    let note = find(tx, &issue, *id.get()?)?;
    let mine = !note.system && note.author.as_ref().is_some_and(|author| author.id == me);
    if !mine {
        tx.may_to(&project, ProjectAbility::AdministerNotes)?;
    }
    Ok((me, issue, note))
}

/// An issue about which something was said is one that was changed.
fn touch(tx: &mut WriteTx<'_>, issue: &Issue, by: i64) -> Result<()> {
    let now = tx.now();
    Ok(store::issues::update(tx.db(), issue.id, &Update::default(), Some(by), now)?)
}

/// Tells what somebody did to an issue, as a note of the service.
pub(crate) fn tell(tx: &mut WriteTx<'_>, issue: &Issue, author: i64, body: &str) -> Result<()> {
    let now = tx.now();
    let note = NewNote { project: issue.project, issue: issue.id, author, body, system: true, now };
    store::notes::insert(tx.db(), &note)?;
    Ok(())
}
