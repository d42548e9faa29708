//! Notes on issues.

use model::{
    Happening, Issue, Note, Occasion, Page, Role, Slice, Time,
    events::{Action, Target},
    happenings::{Commented, NoteHappening},
    notes::check_body,
};
use store::{events::NewEvent, issues::Update, notes::NewNote};

use crate::{
    Ability, Error, Given, ProjectAbility, ProjectRef, Reader, Result, Writer, announcements,
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
pub fn list(it: &mut Reader<'_>, project: &ProjectRef, issue: &Given<i64>, page: &Given<Page>) -> Result<Slice<Note>> {
    let (_, issue) = issues::open(it, project, issue, ProjectAbility::ReadIssues)?;
    Ok(store::notes::list(it.db(), issue.id, *page.get()?)?)
}

/// One note on an issue.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, issue: &Given<i64>, id: &Given<i64>) -> Result<Note> {
    let (_, issue) = issues::open(it, project, issue, ProjectAbility::ReadIssues)?;
    find(it, &issue, *id.get()?)
}

fn find(it: &mut Reader<'_>, issue: &Issue, id: i64) -> Result<Note> {
    store::notes::find(it.db(), issue.id, id)?.ok_or(Error::NoSuchRow)
}

/// Says something about an issue.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef, issue: &Given<i64>, text: &Given<NoteText>) -> Result<Note> {
    let (project, issue) = issues::open_to_write(it, project, issue)?;
    it.may_to(&project, ProjectAbility::WriteIssues)?;
    let (me, now) = (it.my_id(Ability::Browse)?, it.now());
    let NoteText { body, created_at } = text.get()?;
    check_body(body)?;
    let written = created_at.filter(|_| it.role_to(&project) >= Some(Role::Owner)).unwrap_or(now);
    let new = NewNote { project: project.id, issue: issue.id, author: me, body, system: false, now: written };
    let id = store::notes::insert(it.db(), &new)?;
    touch(it, &issue, me)?;
    let target = Some(Target::Note { note: id, issue: issue.id });
    let action = Action::Commented;
    let event = NewEvent { project: project.id, author: me, action, target, push: None, intent: None, now };
    store::events::insert(it.db(), &event)?;
    let note = find(it, &issue, id)?;
    announce(it, &issue, me, &note)?;
    Ok(note)
}

/// Tells hooks of a note. If only some see the issue, only those hear that want to know of such.
fn announce(it: &mut Writer<'_>, issue: &Issue, by: i64, note: &Note) -> Result<()> {
    let occasion = if issue.confidential { Occasion::ConfidentialNote } else { Occasion::Note };
    if !announcements::is_wanted(it, occasion, Some(issue.project))? {
        return Ok(());
    }
    let Some(Scene { project, user, updated_by }) = issues::scene(it, issue, by)? else { return Ok(()) };
    // The note has changed it.
    let issue = Issue { updated_at: it.now(), user_notes: issue.user_notes + 1, ..issue.clone() };
    let on = Commented::Issue { note, issue: &issue, updated_by };
    let happening = NoteHappening { project: &project, user: &user, on };
    announcements::write_down(it, occasion, Some(project.id), Happening::Note(&happening), None)
}

/// Gives a note another text. What the service wrote stays as it is, whoever asks.
pub fn update(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    issue: &Given<i64>,
    id: &Given<i64>,
    body: &Given<String>,
) -> Result<Note> {
    let (me, issue, note) = open_to_change(it, project, issue, id)?;
    if note.system {
        return Err(Error::Forbidden(None));
    }
    let body = body.get()?;
    check_body(body)?;
    if *body == note.body {
        return Ok(note);
    }
    let now = it.now();
    store::notes::update(it.db(), note.id, body, me, now)?;
    touch(it, &issue, me)?;
    find(it, &issue, note.id)
}

/// Takes a note back. What the service wrote is only taken away by those who may take away what others wrote.
pub fn delete(it: &mut Writer<'_>, project: &ProjectRef, issue: &Given<i64>, id: &Given<i64>) -> Result<Note> {
    let (me, issue, note) = open_to_change(it, project, issue, id)?;
    store::notes::delete(it.db(), note.id)?;
    touch(it, &issue, me)?;
    Ok(note)
}

/// Finds a note that the actor may change or take away: one of their own, or any if they keep order in the project. From
/// here on nobody else changes issues of the project. Also says who the actor is.
fn open_to_change(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    issue: &Given<i64>,
    id: &Given<i64>,
) -> Result<(i64, Issue, Note)> {
    let (project, issue) = issues::open_to_write(it, project, issue)?;
    it.may_to(&project, ProjectAbility::WriteIssues)?;
    let me = it.my_id(Ability::Browse)?;
    let note = find(it, &issue, *id.get()?)?;
    let mine = !note.system && note.author.as_ref().is_some_and(|author| author.id == me);
    if !mine {
        it.may_to(&project, ProjectAbility::AdministerNotes)?;
    }
    Ok((me, issue, note))
}

/// An issue about which something was said is one that was changed.
fn touch(it: &mut Writer<'_>, issue: &Issue, by: i64) -> Result<()> {
    let now = it.now();
    Ok(store::issues::update(it.db(), issue.id, &Update::default(), Some(by), now)?)
}

/// Tells what somebody did to an issue, as a note of the service.
pub(crate) fn tell(it: &mut Writer<'_>, issue: &Issue, author: i64, body: &str) -> Result<()> {
    let now = it.now();
    let note = NewNote { project: issue.project, issue: issue.id, author, body, system: true, now };
    store::notes::insert(it.db(), &note)?;
    Ok(())
}
