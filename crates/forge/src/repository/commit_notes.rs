//! Comments on commits.

use git::Repository;
use model::{
    Commit, CommitNote, EventKind, Page, ProjectId, Slice, WebhookEvent,
    commit_notes::{CommitLine, NewCommitNote},
    events::{EventAction, EventTarget},
    notes::check_body,
    webhook_events::{NoteEvent, NoteTarget},
};
use store::events::NewEvent;

use crate::{
    BlockingContext, Caller, Error, Forge, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, branches,
    outbox,
};

/// The parameters of a new comment.
#[derive(Clone, Debug)]
pub struct CommitNoteInput {
    /// The text.
    pub body: String,
    /// The commented line, if any.
    pub line: Option<CommitLine>,
}

/// Lists the comments on a commit, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    revision: &str,
    page: &Unvalidated<Page>,
) -> Result<Slice<CommitNote>> {
    let project = branches::open(tx, project)?;
    let page = *page.validate()?;
    let repository = tx.repository(&project)?;
    let (_, commit) = find_commit(repository, revision)?;
    Ok(store::commit_notes::list(tx.db(), project.id, commit.id, page)?)
}

/// Comments on a commit.
pub async fn create(
    forge: &Forge,
    caller: Caller,
    project: ProjectRef,
    revision: String,
    text: Unvalidated<CommitNoteInput>,
) -> Result<CommitNote> {
    let (project, commit, new) =
        forge.run_blocking(caller.clone(), move |cx| prepare(cx, &project, &revision, &text)).await?;
    forge.write(caller, move |tx| insert_note(tx, project, &commit, &new)).await
}

/// Finds the commit and checks whether it changes the line, which may take long. A comment on any other line becomes one on the
/// commit, as clients of GitLab expect.
fn prepare(
    cx: &mut BlockingContext<'_>,
    project: &ProjectRef,
    revision: &str,
    text: &Unvalidated<CommitNoteInput>,
) -> Result<(ProjectId, Commit, NewCommitNote)> {
    let (project, repository) = cx.read(|tx| {
        let project = tx.project(project, ProjectAbility::CommentOnCommits)?;
        let repository = tx.repository(&project)?;
        Ok((project.id, repository))
    })?;
    let CommitNoteInput { body, line } = text.validate()?.clone();
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

/// Inserts a comment with its event and webhook event.
fn insert_note(tx: &mut WriteTx<'_>, project: ProjectId, commit: &Commit, new: &NewCommitNote) -> Result<CommitNote> {
    let project = tx.project(&ProjectRef::Id(project), ProjectAbility::CommentOnCommits)?;
    let me = tx.user_id()?;
    let now = tx.now();
    let note = store::commit_notes::insert(tx.db(), project.id, me, new, now)?;
    let target = Some(EventTarget::CommitNote(note.id));
    let action = EventAction::Commented;
    let event = NewEvent { project: project.id, author: me, action, target, now };
    store::events::insert(tx.db(), &event)?;
    if let Some(author) = &note.author {
        let on = NoteTarget::Commit { note: &note, commit };
        let event = NoteEvent { project: &project, user: author, on };
        outbox::publish(tx, EventKind::Note, Some(project.id), WebhookEvent::Note(&event))?;
    }
    Ok(note)
}
