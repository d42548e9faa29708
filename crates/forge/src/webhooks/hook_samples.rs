//! What hooks are told when somebody tries them out: something that is there, as if it had just happened.

use git::{LogQuery, Repository};
use model::{
    Commit, EventKind, Issue, IssueState, Project, User, WebhookEvent,
    events::{PushCommit, PushData},
    objects::Signature,
    users::UserSummary,
    webhook_events::{Commented, IssueAction, IssueHappening, NoteHappening, Pushed},
};

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, branches::default_branch, hooks::Place};

/// How many commits the sample of a push has at most.
const COMMITS: usize = 3;
/// How much of the message of a commit is told, in bytes.
const LONGEST_MESSAGE: usize = 64 << 10;

/// What hooks of projects can be tried out with: the names of their switches.
const OF_PROJECTS: [(&str, EventKind); 10] = [
    ("push_events", EventKind::Push),
    ("tag_push_events", EventKind::TagPush),
    ("issues_events", EventKind::Issue),
    ("confidential_issues_events", EventKind::ConfidentialIssue),
    ("note_events", EventKind::Note),
    ("merge_requests_events", EventKind::MergeRequest),
    ("build_events", EventKind::Build),
    ("pipeline_events", EventKind::Pipeline),
    ("wiki_page_events", EventKind::WikiPage),
    ("wiki_events", EventKind::WikiPage),
];
/// The same for hooks of the instance.
const OF_INSTANCE: [(&str, EventKind); 3] = [
    ("push_events", EventKind::SystemPush),
    ("tag_push_events", EventKind::SystemTagPush),
    ("project_create", EventKind::System),
];

/// The occasion that somebody names.
pub(crate) fn occasion(place: &Place, trigger: &str) -> Option<EventKind> {
    let known: &[_] = match place {
        Place::Project(_) => &OF_PROJECTS,
        Place::Instance => &OF_INSTANCE,
    };
    known.iter().find(|(name, _)| *name == trigger).map(|(_, occasion)| *occasion)
}

/// Puts into words what might happen on an occasion: in this project, or else in the newest one with something in it.
pub(crate) fn write(tx: &mut ReadTx<'_>, occasion: EventKind, project: Option<Project>) -> Result<String> {
    let user = tx.actor().user().cloned().ok_or(Error::Unauthenticated)?;
    match (occasion, project) {
        (EventKind::System, _) => Ok(tx.shared().payload_renderer.write(WebhookEvent::SystemTest)),
        (EventKind::SystemPush | EventKind::SystemTagPush, _) => {
            let project = store::hooks::newest_project(tx.db())?.ok_or_else(|| nothing("nothing was pushed yet"))?;
            let project = tx.open(&ProjectRef::Id(project), ProjectAbility::DownloadCode)?;
            push(tx, occasion, &project, &user)
        }
        (EventKind::Push | EventKind::TagPush, Some(project)) => {
            tx.may_to(&project, ProjectAbility::DownloadCode)?;
            push(tx, occasion, &project, &user)
        }
        (EventKind::Issue | EventKind::ConfidentialIssue, Some(project)) => issue(tx, occasion, &project, user),
        (EventKind::Note | EventKind::ConfidentialNote, Some(project)) => note(tx, &project, user),
        _ => Err(nothing("there is nothing of this kind here")),
    }
}

fn nothing(why: &str) -> Error {
    Error::Unprocessable(format!("The hook cannot be tested with this trigger: {why}"))
}

fn push(tx: &ReadTx<'_>, occasion: EventKind, project: &Project, user: &User) -> Result<String> {
    let is_tag = matches!(occasion, EventKind::TagPush | EventKind::SystemTagPush);
    let to_system = matches!(occasion, EventKind::SystemPush | EventKind::SystemTagPush);
    let missing = || nothing(if is_tag { "there are no tags" } else { "there are no commits" });
    let repository = tx.repository(project)?.ok_or_else(missing)?;
    let found = if is_tag { last_tag(&repository)? } else { last_commits(project, &repository)? };
    let (data, message) = found.ok_or_else(missing)?;
    let pushed = Pushed { project, user, data: &data, message: message.as_deref(), files: &[], to_system };
    Ok(tx.shared().payload_renderer.write(WebhookEvent::Push(&pushed)))
}

/// The push that might have brought the last commits of the default branch.
fn last_commits(project: &Project, repository: &Repository) -> Result<Option<(PushData, Option<String>)>> {
    let refs = repository.refs()?;
    let Some(branch) = default_branch(project, &refs) else { return Ok(None) };
    let commits = repository.log(branch.target, &LogQuery { limit: COMMITS, ..LogQuery::default() })?;
    let data = PushData {
        ref_name: branch.name.to_string(),
        before: commits.last().and_then(|oldest| oldest.parents.first().copied()),
        after: Some(branch.target),
        total_commits: i64::try_from(commits.len()).unwrap_or_default(),
        commits: commits.into_iter().rev().map(told).collect(),
    };
    Ok(Some((data, None)))
}

/// The push that might have brought the last tag by name, and what its annotation says.
fn last_tag(repository: &Repository) -> Result<Option<(PushData, Option<String>)>> {
    let refs = repository.refs()?;
    let Some(last) = refs.tags.last() else { return Ok(None) };
    let tag = repository.tag(last)?;
    let commits: Vec<PushCommit> = tag.commit.into_iter().map(told).collect();
    let data = PushData {
        ref_name: last.name.to_string(),
        before: None,
        after: Some(last.target),
        total_commits: i64::try_from(commits.len()).unwrap_or_default(),
        commits,
    };
    Ok(Some((data, tag.message)))
}

/// A commit as it is told of: who wrote it, and when it came here.
fn told(commit: Commit) -> PushCommit {
    let Commit { id, author, committer: Signature { seconds, offset, .. }, mut message, .. } = commit;
    let end = (0..=LONGEST_MESSAGE.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
    message.truncate(end.unwrap_or_default());
    PushCommit { id, message, author: Signature { seconds, offset, ..author } }
}

fn issue(tx: &mut ReadTx<'_>, occasion: EventKind, project: &Project, user: User) -> Result<String> {
    let missing = || nothing("there are no such issues");
    if !tx.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let is_confidential = occasion == EventKind::ConfidentialIssue;
    let number = store::hooks::newest_issue(tx.db(), project.id, is_confidential)?.ok_or_else(missing)?;
    let issue = find_issue(tx, project, number)?.ok_or_else(missing)?;
    let action = if issue.state == IssueState::Closed { IssueAction::Close } else { IssueAction::Open };
    let user = UserSummary::from(user);
    let happening = IssueHappening { project, user: &user, issue: &issue, updated_by: None, action };
    Ok(tx.shared().payload_renderer.write(WebhookEvent::Issue(&happening)))
}

fn note(tx: &mut ReadTx<'_>, project: &Project, user: User) -> Result<String> {
    let missing = || nothing("there are no comments");
    if !tx.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let (issue, number) = store::hooks::newest_note(tx.db(), project.id)?.ok_or_else(missing)?;
    let issue = find_issue(tx, project, issue)?.ok_or_else(missing)?;
    let note = store::notes::find(tx.db(), issue.id, number)?.ok_or_else(missing)?;
    let user = note.author.clone().unwrap_or_else(|| user.into());
    let on = Commented::Issue { note: &note, issue: &issue, updated_by: None };
    Ok(tx.shared().payload_renderer.write(WebhookEvent::Note(&NoteHappening { project, user: &user, on })))
}

fn find_issue(tx: &mut ReadTx<'_>, project: &Project, number: i64) -> Result<Option<Issue>> {
    let sight = tx.sight_in(project);
    Ok(store::issues::find(tx.db(), &sight, project.id, number)?)
}
