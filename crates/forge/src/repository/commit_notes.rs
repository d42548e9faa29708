//! What people say about commits.

use git::Repository;
use model::{
    Commit, CommitNote, EventKind, Page, Slice, WebhookEvent,
    commit_notes::{CommitLine, NewCommitNote},
    events::{Action, Target},
    notes::check_body,
    webhook_events::{Commented, NoteHappening},
};
use store::events::NewEvent;

use crate::{
    Ability, BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    announcements, branches,
};

/// A comment as somebody writes it.
#[derive(Clone, Debug)]
pub struct CommitNoteText {
    /// What it says.
    pub body: String,
    /// The line that it is about, if it is about one.
    pub line: Option<CommitLine>,
}

/// The comments on a commit in the order in which they were written.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    page: &Unvalidated<Page>,
) -> Result<Slice<CommitNote>> {
    let project = branches::open(tx, project)?;
    let page = *page.get()?;
    let repository = tx.repository(&project)?;
    let (_, commit) = find_commit(repository, revision)?;
    Ok(store::commit_notes::list(tx.db(), project.id, commit.id, page)?)
}

/// Says something about a commit.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    revision: String,
    text: Unvalidated<CommitNoteText>,
) -> Result<CommitNote> {
    let (project, commit, new) =
        forge.run_blocking(caller.clone(), move |tx| weigh(tx, &project, &revision, &text)).await?;
    forge.write(caller, move |tx| write_down(tx, project, &commit, &new)).await
}

/// Finds the commit and looks whether it touches the line that is meant: that may take long, so it is done apart. A
/// comment on a line that the commit does not touch is one on the commit, as clients of the original expect.
fn weigh(
    tx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    revision: &str,
    text: &Unvalidated<CommitNoteText>,
) -> Result<(i64, Commit, NewCommitNote)> {
    let (project, repository) = tx.read(|tx| {
        tx.may(Ability::Browse)?;
        let project = tx.open(project, ProjectAbility::CommentOnCommits)?;
        let repository = tx.repository(&project)?;
        Ok((project.id, repository))
    })?;
    let CommitNoteText { body, line } = text.get()?.clone();
    let (repository, commit) = find_commit(repository, revision)?;
    check_body(&body)?;
    let line = match line {
        Some(line) if line.is_in(&repository.commit_diff(commit.id)?) => Some(line),
        Some(_) | None => None,
    };
    let new = NewCommitNote { commit: commit.id, body, line };
    Ok((project, commit, new))
}

fn find_commit(repository: Option<Repository>, revision: &str) -> Result<(Repository, Commit)> {
    let missing = || Error::not_found("Commit");
    let repository = repository.ok_or_else(missing)?;
    let id = repository.resolve(revision)?.ok_or_else(missing)?;
    let commit = repository.commit(id)?.ok_or_else(missing)?;
    Ok((repository, commit))
}

/// Writes a comment down, and tells of it.
fn write_down(tx: &mut WriteTx<'_>, project: i64, commit: &Commit, new: &NewCommitNote) -> Result<CommitNote> {
    let me = tx.my_id(Ability::Browse)?;
    let project = tx.open(&ProjectRef::Id(project), ProjectAbility::CommentOnCommits)?;
    let now = tx.now();
    let note = store::commit_notes::insert(tx.db(), project.id, me, new, now)?;
    let target = Some(Target::CommitNote(note.id));
    let action = Action::Commented;
    let event = NewEvent { project: project.id, author: me, action, target, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    if let Some(author) = &note.author {
        let on = Commented::Commit { note: &note, commit };
        let happening = NoteHappening { project: &project, user: author, on };
        announcements::announce(tx, EventKind::Note, Some(project.id), WebhookEvent::Note(&happening))?;
    }
    Ok(note)
}
