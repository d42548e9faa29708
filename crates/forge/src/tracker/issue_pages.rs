//! What the pages of issues show and change. A page names an issue by its number within the project.

use model::{
    Issue, IssueId, IssueIid, Note, Page, Project, Slice,
    issues::{IssueChanges, NewIssue},
};
use store::issue_lists::IssueScope;

use crate::{
    Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    browse::InProject,
    issues::{self, IssueListOptions},
    notes::{self, NoteText},
};

/// A list of issues.
pub struct IssueList {
    /// The issues.
    pub issues: Slice<Issue>,
    /// Whether the visitor may create issues.
    pub can_create: bool,
}

/// An issue with its notes.
pub struct IssuePage {
    /// The issue.
    pub issue: Issue,
    /// The notes in order of insertion, system notes included.
    pub notes: Slice<Note>,
    /// Whether the visitor may comment.
    pub can_comment: bool,
    /// Whether the visitor may close and reopen the issue.
    pub can_change: bool,
}

/// A comment on an issue, a change of its state, or both.
#[derive(Clone, Debug)]
pub struct IssueReply {
    /// The comment; nothing is added if it is blank and the state changes.
    pub note: String,
    /// Whether to close or reopen the issue.
    pub closed: Option<bool>,
}

/// Lists the issues of a project that the visitor can see.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    options: &Unvalidated<IssueListOptions>,
    page: &Unvalidated<Page>,
) -> Result<InProject<IssueList>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let scope = IssueScope::Project(project.id, tx.issue_visibility(&project));
    let issues = issues::list_in_scope(tx, &scope, options.validate()?, *page.validate()?)?;
    let can_create = may_write(tx, &project);
    Ok(InProject { project, value: IssueList { issues, can_create } })
}

/// Returns an issue with a page of its notes.
pub fn get(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    page: &Unvalidated<Page>,
) -> Result<InProject<IssuePage>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let page = *page.validate()?;
    let issue = find(tx, &project, iid)?;
    let notes = store::notes::list(tx.db(), issue.id, page)?;
    let can_comment = may_write(tx, &project);
    let can_change = tx.user_id().is_ok_and(|user| issues::may_change(tx, &project, &issue, user));
    Ok(InProject { project, value: IssuePage { issue, notes, can_comment, can_change } })
}

/// Returns a project in which the visitor may create an issue.
pub fn open_for_creation(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    tx.project(project, ProjectAbility::WriteIssues)
}

/// Creates an issue.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewIssue>) -> Result<Issue> {
    issues::create(tx, project, new)
}

/// Adds a comment, closes or reopens an issue.
pub fn reply(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: IssueIid, reply: &Unvalidated<IssueReply>) -> Result<()> {
    let found = tx.project(project, ProjectAbility::ReadIssues)?;
    let id: Unvalidated<IssueId> = Unvalidated::valid(find(tx.read(), &found, iid)?.id);
    let IssueReply { note, closed } = reply.validate()?;
    if !note.trim().is_empty() || closed.is_none() {
        let text = Unvalidated::valid(NoteText { body: note.clone(), created_at: None });
        notes::create(tx, project, &id, &text)?;
    }
    if closed.is_some() {
        let changes = Unvalidated::valid(IssueChanges { closed: *closed, ..IssueChanges::default() });
        issues::update(tx, project, &id, &changes)?;
    }
    Ok(())
}

fn may_write(tx: &ReadTx<'_>, project: &Project) -> bool {
    tx.actor().user().is_some() && tx.can(project, ProjectAbility::WriteIssues)
}

fn find(tx: &mut ReadTx<'_>, project: &Project, iid: IssueIid) -> Result<Issue> {
    let visibility = tx.issue_visibility(project);
    store::issues::by_iid(tx.db(), &visibility, project.id, iid)?.ok_or(Error::NotFound(None))
}
