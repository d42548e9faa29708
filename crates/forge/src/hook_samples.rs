//! What hooks are told when somebody tries them out: something that is there, as if it had just happened.

use git::{LogQuery, Repository};
use model::{
    Commit, Happening, Issue, IssueState, Occasion, Project, User,
    events::{PushCommit, PushData},
    happenings::{Commented, IssueAction, IssueHappening, NoteHappening, Pushed},
    repository::Signature,
    users::UserSummary,
};

use crate::{Error, ProjectAbility, ProjectRef, Reader, Result, branches::default_branch, hooks::Place};

/// How many commits the sample of a push has at most.
const COMMITS: usize = 3;
/// How much of the message of a commit is told, in bytes.
const LONGEST_MESSAGE: usize = 64 << 10;

/// What hooks of projects can be tried out with: the names of their switches.
const OF_PROJECTS: [(&str, Occasion); 10] = [
    ("push_events", Occasion::Push),
    ("tag_push_events", Occasion::TagPush),
    ("issues_events", Occasion::Issue),
    ("confidential_issues_events", Occasion::ConfidentialIssue),
    ("note_events", Occasion::Note),
    ("merge_requests_events", Occasion::MergeRequest),
    ("build_events", Occasion::Build),
    ("pipeline_events", Occasion::Pipeline),
    ("wiki_page_events", Occasion::WikiPage),
    ("wiki_events", Occasion::WikiPage),
];
/// The same for hooks of the instance.
const OF_INSTANCE: [(&str, Occasion); 3] = [
    ("push_events", Occasion::SystemPush),
    ("tag_push_events", Occasion::SystemTagPush),
    ("project_create", Occasion::System),
];

/// The occasion that somebody names.
pub(crate) fn occasion(place: &Place, trigger: &str) -> Option<Occasion> {
    let known: &[_] = match place {
        Place::Project(_) => &OF_PROJECTS,
        Place::Instance => &OF_INSTANCE,
    };
    known.iter().find(|(name, _)| *name == trigger).map(|(_, occasion)| *occasion)
}

/// Puts into words what might happen on an occasion: in this project, or else in the newest one with something in it.
pub(crate) fn write(it: &mut Reader<'_>, occasion: Occasion, project: Option<Project>) -> Result<String> {
    let user = it.actor().user().cloned().ok_or(Error::Unauthenticated)?;
    match (occasion, project) {
        (Occasion::System, _) => Ok(it.shared().scribe.write(Happening::SystemTest)),
        (Occasion::SystemPush | Occasion::SystemTagPush, _) => {
            let project = store::hooks::newest_project(it.db())?.ok_or_else(|| nothing("nothing was pushed yet"))?;
            let project = it.open(&ProjectRef::Id(project), ProjectAbility::DownloadCode)?;
            push(it, occasion, &project, &user)
        }
        (Occasion::Push | Occasion::TagPush, Some(project)) => {
            it.may_to(&project, ProjectAbility::DownloadCode)?;
            push(it, occasion, &project, &user)
        }
        (Occasion::Issue | Occasion::ConfidentialIssue, Some(project)) => issue(it, occasion, &project, user),
        (Occasion::Note | Occasion::ConfidentialNote, Some(project)) => note(it, &project, user),
        _ => Err(nothing("there is nothing of this kind here")),
    }
}

fn nothing(why: &str) -> Error {
    Error::Unprocessable(format!("The hook cannot be tested with this trigger: {why}"))
}

fn push(it: &Reader<'_>, occasion: Occasion, project: &Project, user: &User) -> Result<String> {
    let is_tag = matches!(occasion, Occasion::TagPush | Occasion::SystemTagPush);
    let to_system = matches!(occasion, Occasion::SystemPush | Occasion::SystemTagPush);
    let missing = || nothing(if is_tag { "there are no tags" } else { "there are no commits" });
    let repository = it.repository(project)?.ok_or_else(missing)?;
    let found = if is_tag { last_tag(&repository)? } else { last_commits(project, &repository)? };
    let (data, message) = found.ok_or_else(missing)?;
    let pushed = Pushed { project, user, data: &data, message: message.as_deref(), files: &[], to_system };
    Ok(it.shared().scribe.write(Happening::Push(&pushed)))
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

fn issue(it: &mut Reader<'_>, occasion: Occasion, project: &Project, user: User) -> Result<String> {
    let missing = || nothing("there are no such issues");
    if !it.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let is_confidential = occasion == Occasion::ConfidentialIssue;
    let number = store::hooks::newest_issue(it.db(), project.id, is_confidential)?.ok_or_else(missing)?;
    let issue = find_issue(it, project, number)?.ok_or_else(missing)?;
    let action = if issue.state == IssueState::Closed { IssueAction::Close } else { IssueAction::Open };
    let user = UserSummary::from(user);
    let happening = IssueHappening { project, user: &user, issue: &issue, updated_by: None, action };
    Ok(it.shared().scribe.write(Happening::Issue(&happening)))
}

fn note(it: &mut Reader<'_>, project: &Project, user: User) -> Result<String> {
    let missing = || nothing("there are no comments");
    if !it.can(project, ProjectAbility::ReadIssues) {
        return Err(missing());
    }
    let (issue, number) = store::hooks::newest_note(it.db(), project.id)?.ok_or_else(missing)?;
    let issue = find_issue(it, project, issue)?.ok_or_else(missing)?;
    let note = store::notes::find(it.db(), issue.id, number)?.ok_or_else(missing)?;
    let user = note.author.clone().unwrap_or_else(|| user.into());
    let on = Commented::Issue { note: &note, issue: &issue, updated_by: None };
    Ok(it.shared().scribe.write(Happening::Note(&NoteHappening { project, user: &user, on })))
}

fn find_issue(it: &mut Reader<'_>, project: &Project, number: i64) -> Result<Option<Issue>> {
    let sight = it.sight_in(project);
    Ok(store::issues::find(it.db(), &sight, project.id, number)?)
}
