//! Payloads for testing a hook, made from existing data as if it had just been created.

use git::{LogQuery, Repository};
use model::{
    Commit, EventKind, Issue, IssueId, IssueState, Project, User, WebhookEvent,
    events::{PushCommit, PushData},
    objects::Signature,
    users::UserSummary,
    webhook_events::{IssueAction, IssueEvent, NoteEvent, NoteTarget, PushEvent},
};

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, branches::default_branch, hooks::HookScope};

/// The maximum number of commits in the sample of a push.
const MAX_COMMITS: usize = 3;
/// The maximum size of a commit message in bytes.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// The triggers of project hooks: the names of their event flags.
const PROJECT_TRIGGERS: [(&str, EventKind); 10] = [
    ("push_events", EventKind::Push),
    ("tag_push_events", EventKind::TagPush),
    ("issues_events", EventKind::Issue),
    ("confidential_issues_events", EventKind::ConfidentialIssue),
    ("note_events", EventKind::Note),
    ("merge_requests_events", EventKind::MergeRequest),
    ("build_events", EventKind::Job),
    ("pipeline_events", EventKind::Pipeline),
    ("wiki_page_events", EventKind::WikiPage),
    ("wiki_events", EventKind::WikiPage),
];
/// The triggers of system hooks.
const SYSTEM_TRIGGERS: [(&str, EventKind); 3] = [
    ("push_events", EventKind::SystemPush),
    ("tag_push_events", EventKind::SystemTagPush),
    ("project_create", EventKind::System),
];

/// Returns the kind of event of a trigger.
pub(crate) fn event_kind(scope: &HookScope, trigger: &str) -> Option<EventKind> {
    let triggers: &[_] = match scope {
        HookScope::Project(_) => &PROJECT_TRIGGERS,
        HookScope::Instance => &SYSTEM_TRIGGERS,
    };
    triggers.iter().find(|(name, _)| *name == trigger).map(|(_, kind)| *kind)
}

/// Renders the sample of an event in this project or, for a system hook, in the newest project with commits.
pub(crate) fn render(tx: &mut ReadTx<'_>, kind: EventKind, project: Option<Project>) -> Result<String> {
    let user = tx.actor().user().cloned().ok_or(Error::Unauthenticated)?;
    match (kind, project) {
        (EventKind::System, _) => Ok(tx.shared().payload_renderer.render(WebhookEvent::SystemTest)),
        (EventKind::SystemPush | EventKind::SystemTagPush, _) => {
            let project =
                store::hooks::newest_project(tx.db())?.ok_or_else(|| cannot_test("nothing was pushed yet"))?;
            let project = tx.project(&ProjectRef::Id(project), ProjectAbility::DownloadCode)?;
            push(tx, kind, &project, &user)
        }
        (EventKind::Push | EventKind::TagPush, Some(project)) => {
            tx.authorize_project(&project, ProjectAbility::DownloadCode)?;
            push(tx, kind, &project, &user)
        }
        (EventKind::Issue | EventKind::ConfidentialIssue, Some(project)) => issue(tx, kind, &project, user),
        (EventKind::Note | EventKind::ConfidentialNote, Some(project)) => note(tx, &project, user),
        _ => Err(cannot_test("there is nothing of this kind here")),
    }
}

fn cannot_test(reason: &str) -> Error {
    Error::Unprocessable(format!("The hook cannot be tested with this trigger: {reason}"))
}

fn push(tx: &mut ReadTx<'_>, kind: EventKind, project: &Project, user: &User) -> Result<String> {
    let is_tag = matches!(kind, EventKind::TagPush | EventKind::SystemTagPush);
    let for_system_hook = matches!(kind, EventKind::SystemPush | EventKind::SystemTagPush);
    let missing = || cannot_test(if is_tag { "there are no tags" } else { "there are no commits" });
    let repository = tx.repository(project)?.ok_or_else(missing)?;
    let found = if is_tag { push_of_last_tag(&repository)? } else { push_of_last_commits(project, &repository)? };
    let (data, message) = found.ok_or_else(missing)?;
    let event = PushEvent { project, user, data: &data, message: message.as_deref(), files: &[], for_system_hook };
    Ok(tx.shared().payload_renderer.render(WebhookEvent::Push(&event)))
}

/// Returns the push that could have added the last commits of the default branch.
fn push_of_last_commits(project: &Project, repository: &Repository) -> Result<Option<(PushData, Option<String>)>> {
    let refs = repository.refs();
    let Some(branch) = default_branch(project, refs) else { return Ok(None) };
    let commits = repository.log(branch.target, &LogQuery { limit: MAX_COMMITS, ..LogQuery::default() })?;
    let data = PushData {
        ref_name: branch.name.to_string(),
        before: commits.last().and_then(|oldest| oldest.parents.first().copied()),
        after: Some(branch.target),
        total_commits: i64::try_from(commits.len()).unwrap_or_default(),
        commits: commits.into_iter().rev().map(to_push_commit).collect(),
    };
    Ok(Some((data, None)))
}

/// Returns the push that could have added the last tag by name, and the message of the tag.
fn push_of_last_tag(repository: &Repository) -> Result<Option<(PushData, Option<String>)>> {
    let refs = repository.refs();
    let Some(last) = refs.tags.last() else { return Ok(None) };
    let tag = repository.tag(last)?;
    let commits: Vec<PushCommit> = tag.commit.into_iter().map(to_push_commit).collect();
    let data = PushData {
        ref_name: last.name.to_string(),
        before: None,
        after: Some(last.target),
        total_commits: i64::try_from(commits.len()).unwrap_or_default(),
        commits,
    };
    Ok(Some((data, tag.message)))
}

/// Keeps the author with the time of the committer, as pushes are recorded.
fn to_push_commit(commit: Commit) -> PushCommit {
    let Commit { id, author, committer: Signature { seconds, offset, .. }, mut message, .. } = commit;
    let end = (0..=MAX_MESSAGE_BYTES.min(message.len())).rev().find(|at| message.is_char_boundary(*at));
    message.truncate(end.unwrap_or_default());
    PushCommit { id, message, author: Signature { seconds, offset, ..author } }
}

fn issue(tx: &mut ReadTx<'_>, kind: EventKind, project: &Project, user: User) -> Result<String> {
    let missing = || cannot_test("there are no such issues");
    if !tx.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let is_confidential = kind == EventKind::ConfidentialIssue;
    let id = store::hooks::newest_issue(tx.db(), project.id, is_confidential)?.ok_or_else(missing)?;
    let issue = find_issue(tx, project, id)?.ok_or_else(missing)?;
    let action = if issue.state == IssueState::Closed { IssueAction::Close } else { IssueAction::Open };
    let user = UserSummary::from(user);
    let event = IssueEvent { project, user: &user, issue: &issue, updated_by: None, action };
    Ok(tx.shared().payload_renderer.render(WebhookEvent::Issue(&event)))
}

fn note(tx: &mut ReadTx<'_>, project: &Project, user: User) -> Result<String> {
    let missing = || cannot_test("there are no comments");
    if !tx.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let (issue, id) = store::hooks::newest_note(tx.db(), project.id)?.ok_or_else(missing)?;
    let issue = find_issue(tx, project, issue)?.ok_or_else(missing)?;
    let note = store::notes::find(tx.db(), issue.id, id)?.ok_or_else(missing)?;
    let user = note.author.clone().unwrap_or_else(|| user.into());
    let on = NoteTarget::Issue { note: &note, issue: &issue, updated_by: None };
    Ok(tx.shared().payload_renderer.render(WebhookEvent::Note(&NoteEvent { project, user: &user, on })))
}

fn find_issue(tx: &mut ReadTx<'_>, project: &Project, id: IssueId) -> Result<Option<Issue>> {
    let visibility = tx.issue_visibility(project);
    Ok(store::issues::find(tx.db(), &visibility, project.id, id)?)
}
