//! What the pages of issues show and change. A page names an issue by its number within the project.

use std::collections::HashMap;

use jiff::civil::Date;
use model::{
    Change, Issue, IssueId, IssueIid, Milestone, MilestoneId, Namespace, Note, NoteId, Page, Project, Role, Slice,
    UserId, Violations,
    issues::{AssigneeFilter, IssueChanges, IssueFilter, IssueOrder, NewIssue},
    labels::LabelSummary,
    milestones::MilestoneFilter,
    users::UserSummary,
};
use sha2::{Digest as _, Sha256};
use store::issue_lists::IssueScope;

use crate::{
    Ability, Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    browse::InProject,
    issues::{self, IssueListOptions},
    notes::{self, NoteText},
};

/// The maximum numbers of labels, members and milestones that a form offers.
const MAX_CHOICES: i64 = 100;

/// A list of issues.
pub struct IssueList {
    /// The issues.
    pub issues: Slice<Issue>,
    /// The labels of the issues.
    pub labels: HashMap<IssueId, Vec<LabelSummary>>,
    /// The values to filter by.
    pub choices: IssueChoices,
    /// Whether the visitor may create issues.
    pub can_create: bool,
}

/// A filter that names users by their usernames.
#[derive(Clone, Debug, Default)]
pub struct IssueSearch {
    /// The conditions that do not concern users.
    pub filter: IssueFilter,
    /// The username of the author.
    pub author: Option<String>,
    /// The username of the assignee.
    pub assignee: Option<AssigneeName>,
    /// The sort order.
    pub order: IssueOrder,
}

/// A condition on the assignee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssigneeName {
    /// The issue has no assignee.
    Nobody,
    /// The issue is assigned to the user with this username.
    User(String),
}

/// The values that a form or a filter of issues offers.
#[derive(Default)]
pub struct IssueChoices {
    /// The first labels of the project, in alphabetical order.
    pub labels: Vec<LabelSummary>,
    /// Whether the project has more labels.
    pub has_more_labels: bool,
    /// Users with a role in the project, by username; empty if the visitor may not see them.
    pub members: Vec<UserSummary>,
    /// The open milestones, oldest first.
    pub milestones: Vec<Milestone>,
}

/// An issue with its notes.
pub struct IssuePage {
    /// The issue.
    pub issue: Issue,
    /// The labels of the issue.
    pub labels: Vec<LabelSummary>,
    /// The notes in order of insertion, system notes included.
    pub notes: Slice<Note>,
    /// Whether the visitor may comment.
    pub can_comment: bool,
    /// Whether the visitor may change, close and reopen the issue.
    pub can_change: bool,
    /// Whether the visitor may change comments of others.
    pub can_moderate: bool,
}

/// The form of an issue: the issue if it exists, and what the visitor may set.
pub struct IssueForm {
    /// The issue; `None` for a new one.
    pub issue: Option<Issue>,
    /// The values to choose from; `None` if the visitor may only change the text.
    pub choices: Option<IssueChoices>,
    /// Whether the visitor may remove the issue.
    pub can_remove: bool,
    /// Whether the visitor may move the issue to another project.
    pub can_move: bool,
}

/// A submitted form of an issue.
#[derive(Clone, Debug)]
pub struct IssueInput {
    /// The title.
    pub title: String,
    /// The description; empty for none.
    pub description: String,
    /// Whether the issue is confidential; `None` keeps it as it is.
    pub confidential: Option<bool>,
    /// The fields that only users who manage issues can set; `None` if the form did not have them.
    pub managed: Option<ManagedFields>,
    /// The [`form_version`] of the issue that the user has seen; `None` replaces anything.
    pub seen_version: Option<String>,
}

/// The fields of an issue that only users who manage issues can set.
#[derive(Clone, Debug, Default)]
pub struct ManagedFields {
    /// The titles of the labels.
    pub labels: Vec<String>,
    /// The username of the assignee; empty for none.
    pub assignee: String,
    /// The milestone.
    pub milestone: Option<MilestoneId>,
    /// The due date as it was typed; empty for none.
    pub due_on: String,
}

/// A comment on an issue, a change of its state, or both.
#[derive(Clone, Debug)]
pub struct IssueReply {
    /// The comment; nothing is added if it is blank and the state changes.
    pub note: String,
    /// Whether to close or reopen the issue.
    pub closed: Option<bool>,
}

/// The issues of a user in all projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnIssues {
    /// Those that the user is assigned to.
    Assigned,
    /// Those that the user wrote.
    Authored,
}

/// The issues of a group.
pub struct GroupIssues {
    /// The group.
    pub group: Namespace,
    /// The role of the visitor in the group.
    pub role: Option<Role>,
    /// The issues of its projects.
    pub list: CrossProjectIssues,
}

/// A list of issues of several projects.
pub struct CrossProjectIssues {
    /// The issues.
    pub issues: Slice<Issue>,
    /// The labels of the issues.
    pub labels: HashMap<IssueId, Vec<LabelSummary>>,
}

/// Lists the issues of a project that the visitor can see.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    search: &Unvalidated<IssueSearch>,
    page: &Unvalidated<Page>,
) -> Result<InProject<IssueList>> {
    let project = tx.project(project, ProjectAbility::ViewIssues)?;
    let page = *page.validate()?;
    let issues = match resolve_search(tx, search.validate()?)? {
        Some(options) => {
            let scope = IssueScope::Project(project.id, tx.issue_visibility(&project));
            issues::list_in_scope(tx, &scope, &options, page)?
        }
        None => Slice::empty(page),
    };
    let labels = labels_of(tx, &issues.items)?;
    let (choices, can_create) = (choices(tx, &project)?, may_write(tx, &project));
    Ok(InProject { project, value: IssueList { issues, labels, choices, can_create } })
}

/// Lists the issues that the user is assigned to or wrote, in all projects.
pub fn list_own(
    tx: &mut ReadTx<'_>,
    kind: OwnIssues,
    search: &Unvalidated<IssueSearch>,
    page: &Unvalidated<Page>,
) -> Result<CrossProjectIssues> {
    tx.current_user_id(Ability::Browse)?;
    let page = *page.validate()?;
    let scope = match kind {
        OwnIssues::Assigned => IssueScope::Assigned(tx.viewer()),
        OwnIssues::Authored => IssueScope::Authored(tx.viewer()),
    };
    list_in_projects(tx, &scope, search.validate()?, page)
}

/// Lists the issues in the projects of a group and its subgroups that the visitor can see.
pub fn list_in_group(
    tx: &mut ReadTx<'_>,
    group: &str,
    search: &Unvalidated<IssueSearch>,
    page: &Unvalidated<Page>,
) -> Result<GroupIssues> {
    let (group, role) = tx.group(&GroupRef::Path(group.to_owned()), GroupAbility::ViewGroup)?;
    let scope = IssueScope::Group(group.id, tx.viewer());
    let list = list_in_projects(tx, &scope, search.validate()?, *page.validate()?)?;
    Ok(GroupIssues { group, role, list })
}

fn list_in_projects(
    tx: &mut ReadTx<'_>,
    scope: &IssueScope,
    search: &IssueSearch,
    page: Page,
) -> Result<CrossProjectIssues> {
    let issues = match resolve_search(tx, search)? {
        Some(options) => issues::list_in_scope(tx, scope, &options, page)?,
        None => Slice::empty(page),
    };
    let labels = labels_of(tx, &issues.items)?;
    Ok(CrossProjectIssues { issues, labels })
}

/// Looks up the users of a filter; `None` if one does not exist, so that no issue matches.
fn resolve_search(tx: &mut ReadTx<'_>, search: &IssueSearch) -> Result<Option<IssueListOptions>> {
    let mut filter = search.filter.clone();
    if let Some(username) = &search.author {
        let Some(author) = user_id(tx, username)? else { return Ok(None) };
        filter.author = Some(author);
    }
    filter.assignee = match &search.assignee {
        None => None,
        Some(AssigneeName::Nobody) => Some(AssigneeFilter::Nobody),
        Some(AssigneeName::User(username)) => {
            let Some(assignee) = user_id(tx, username)? else { return Ok(None) };
            Some(AssigneeFilter::User(assignee))
        }
    };
    Ok(Some(IssueListOptions { filter, order: search.order }))
}

fn user_id(tx: &mut ReadTx<'_>, username: &str) -> Result<Option<UserId>> {
    Ok(store::users::holder_of_username(tx.db(), username)?)
}

pub(crate) fn labels_of(tx: &mut ReadTx<'_>, issues: &[Issue]) -> Result<HashMap<IssueId, Vec<LabelSummary>>> {
    let labelled: Vec<IssueId> = issues.iter().filter(|issue| !issue.labels.is_empty()).map(|issue| issue.id).collect();
    if labelled.is_empty() { Ok(HashMap::new()) } else { Ok(store::labels::of_issues(tx.db(), &labelled)?) }
}

/// Returns the labels, members and milestones of a project.
fn choices(tx: &mut ReadTx<'_>, project: &Project) -> Result<IssueChoices> {
    let mut labels = store::labels::first(tx.db(), project.id, MAX_CHOICES + 1)?;
    let max = usize::try_from(MAX_CHOICES).unwrap_or(usize::MAX);
    let has_more_labels = labels.len() > max;
    labels.truncate(max);
    let now = tx.now();
    // Others must not learn who is a member of a private group that the project is shared with.
    let members = if tx.can(project, ProjectAbility::AdministerIssues) {
        store::members::with_role(tx.db(), project, MAX_CHOICES, now)?
    } else {
        Vec::new()
    };
    let open = MilestoneFilter { closed: Some(false), iids: Vec::new() };
    let page = Page { number: 1, size: MAX_CHOICES };
    let milestones = store::milestones::list(tx.db(), project.id, &open, page)?.items;
    Ok(IssueChoices { labels, has_more_labels, members, milestones })
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
    let labels = labels_of(tx, std::slice::from_ref(&issue))?.remove(&issue.id).unwrap_or_default();
    let can_comment = may_write(tx, &project);
    let can_change = tx.user_id().is_ok_and(|user| issues::may_change(tx, &project, &issue, user));
    let can_moderate = can_comment && tx.can(&project, ProjectAbility::AdministerNotes);
    Ok(InProject { project, value: IssuePage { issue, labels, notes, can_comment, can_change, can_moderate } })
}

/// Returns the form for a new issue.
pub fn open_for_creation(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<InProject<IssueForm>> {
    let project = tx.project(project, ProjectAbility::WriteIssues)?;
    let choices = choices_of_managers(tx, &project)?;
    let value = IssueForm { issue: None, choices, can_remove: false, can_move: false };
    Ok(InProject { project, value })
}

/// Returns the form of an issue that the visitor may change.
pub fn open_for_editing(tx: &mut ReadTx<'_>, project: &ProjectRef, iid: IssueIid) -> Result<InProject<IssueForm>> {
    let project = tx.project(project, ProjectAbility::ReadIssues)?;
    let issue = find(tx, &project, iid)?;
    let me = tx.user_id()?;
    if !issues::may_change(tx, &project, &issue, me) {
        return Err(Error::Forbidden(None));
    }
    let choices = choices_of_managers(tx, &project)?;
    let can_remove = tx.can(&project, ProjectAbility::RemoveIssues);
    let can_move = choices.is_some() && issue.moved_to.is_none();
    Ok(InProject { project, value: IssueForm { issue: Some(issue), choices, can_remove, can_move } })
}

fn choices_of_managers(tx: &mut ReadTx<'_>, project: &Project) -> Result<Option<IssueChoices>> {
    let may_manage = tx.can(project, ProjectAbility::AdministerIssues);
    may_manage.then(|| choices(tx, project)).transpose()
}

/// Creates an issue.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, input: &Unvalidated<IssueInput>) -> Result<Issue> {
    tx.project(project, ProjectAbility::WriteIssues)?;
    let input = input.validate()?;
    let managed = input.managed.clone().unwrap_or_default();
    let (assignee, due_on) = parse_managed(tx, &managed)?;
    let new = NewIssue {
        title: input.title.clone(),
        description: Some(input.description.clone()).filter(|text| !text.trim().is_empty()),
        assignee,
        milestone: managed.milestone,
        labels: managed.labels,
        due_on,
        confidential: input.confidential.unwrap_or(false),
        created_at: None,
    };
    issues::create(tx, project, &Unvalidated::valid(new))
}

/// Returns what identifies the fields of an issue that its form changes: a digest.
pub fn form_version(issue: &Issue) -> String {
    let mut digest = Sha256::new();
    let managed = format!("{:?}", managed_values(issue));
    // A title has no line breaks, and neither have the other values in this form.
    for line in [issue.title.as_str(), if issue.confidential { "confidential" } else { "" }, managed.as_str()] {
        digest.update(line.as_bytes());
        digest.update(b"\n");
    }
    digest.update(issue.description.as_deref().unwrap_or_default().as_bytes());
    model::text::hex(&digest.finalize())
}

/// Returns the labels, the assignee, the milestone and the due date of an issue, as its form sends them.
fn managed_values(issue: &Issue) -> (Vec<String>, String, Option<MilestoneId>, String) {
    let mut labels = issue.labels.clone();
    labels.sort_unstable();
    let assignee = issue.assignee.as_ref().map(|user| user.username.clone()).unwrap_or_default();
    let milestone = issue.milestone.as_ref().map(|milestone| milestone.id);
    (labels, assignee, milestone, issue.due_on.map(|day| day.to_string()).unwrap_or_default())
}

/// Fails with [`Error::Conflicting`] if an issue is neither as the user has seen it nor as the form would make it.
fn require_seen_version(issue: &Issue, input: &IssueInput) -> Result<()> {
    let is_seen = input.seen_version.as_ref().is_none_or(|seen| *seen == form_version(issue));
    if is_seen || is_submitted_again(issue, input) {
        return Ok(());
    }
    Err(Error::Conflicting(Violations::one("base", "The issue was changed in the meantime")))
}

/// Returns whether an issue has all values of a form already.
fn is_submitted_again(issue: &Issue, input: &IssueInput) -> bool {
    let has_managed = input.managed.as_ref().is_none_or(|managed| {
        let mut labels = managed.labels.clone();
        labels.sort_unstable();
        labels.dedup();
        let assignee = managed.assignee.trim().trim_start_matches('@').to_owned();
        (labels, assignee, managed.milestone, managed.due_on.trim().to_owned()) == managed_values(issue)
    });
    has_managed
        && issue.title == input.title.trim()
        && issue.description.as_deref().unwrap_or_default() == input.description.as_str()
        && input.confidential.is_none_or(|confidential| confidential == issue.confidential)
}

/// Changes an issue, if it is still as the user has seen it.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    input: &Unvalidated<IssueInput>,
) -> Result<Issue> {
    let id = id_for_writing(tx, project, iid)?;
    let input = input.validate()?;
    let mut changes = IssueChanges {
        title: Some(input.title.clone()),
        description: Change::from_text(Some(input.description.clone())),
        confidential: input.confidential,
        ..IssueChanges::default()
    };
    if let Some(managed) = &input.managed {
        let (assignee, due_on) = parse_managed(tx, managed)?;
        changes.assignee = assignee.map_or(Change::Clear, Change::Set);
        changes.due_on = due_on.map_or(Change::Clear, Change::Set);
        changes.milestone = managed.milestone.map_or(Change::Clear, Change::Set);
        changes.labels = Some(managed.labels.clone());
    }
    let precondition = |issue: &Issue| require_seen_version(issue, input);
    issues::update_if(tx, project, &id, &Unvalidated::valid(changes), precondition)
}

/// Looks up the assignee and parses the due date of a form.
fn parse_managed(tx: &mut WriteTx<'_>, managed: &ManagedFields) -> Result<(Option<UserId>, Option<Date>)> {
    let mut violations = Violations::new();
    let assignee = match managed.assignee.trim().trim_start_matches('@') {
        "" => None,
        username => {
            let found = user_id(tx.read(), username)?;
            // The same text as for a user who cannot see the project.
            violations.require(found.is_some(), "assignee", "is invalid");
            found
        }
    };
    let due_on = match managed.due_on.trim() {
        "" => None,
        text => {
            let day = text.parse::<Date>().ok();
            violations.require(day.is_some(), "due_date", "is not a date in the form 2026-12-31");
            day
        }
    };
    violations.into_result()?;
    Ok((assignee, due_on))
}

/// Removes an issue.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: IssueIid) -> Result<Issue> {
    let id = id_for_writing(tx, project, iid)?;
    issues::delete(tx, project, &id)
}

/// Moves an issue to the project with this path, and returns the copy.
pub fn move_to(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    target: &Unvalidated<String>,
) -> Result<Issue> {
    let id = id_for_writing(tx, project, iid)?;
    let path = target.validate()?.trim().trim_matches('/').to_owned();
    let target = tx.project(&ProjectRef::Path(path), ProjectAbility::ReadProject).map_err(|error| match error {
        Error::NotFound(_) | Error::Forbidden(_) => {
            Violations::one("target", "is not a project that you can see").into()
        }
        other => other,
    })?;
    issues::move_to(tx, project, &id, &Unvalidated::valid(target.id)).map_err(|error| match error {
        Error::Refused(text) => Violations::one("target", text).into(),
        other => other,
    })
}

/// Subscribes the user to an issue, or unsubscribes them. Nothing happens if they already are as wanted.
pub fn set_subscribed(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: IssueIid, subscribed: bool) -> Result<()> {
    let id = id_for_writing(tx, project, iid)?;
    match issues::set_subscribed(tx, project, &id, subscribed) {
        Ok(_) | Err(Error::Unchanged) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds a comment, closes or reopens an issue.
pub fn reply(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: IssueIid, reply: &Unvalidated<IssueReply>) -> Result<()> {
    let id = id_for_writing(tx, project, iid)?;
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

/// Returns a comment that the visitor may change.
pub fn open_note(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    note: NoteId,
) -> Result<InProject<(Issue, Note)>> {
    let project = tx.project(project, ProjectAbility::WriteIssues)?;
    let issue = find(tx, &project, iid)?;
    let me = tx.user_id()?;
    let note = store::notes::find(tx.db(), issue.id, note)?.ok_or(Error::NotFound(None))?;
    if !may_edit_note(&note, me, tx.can(&project, ProjectAbility::AdministerNotes)) {
        return Err(Error::Forbidden(None));
    }
    Ok(InProject { project, value: (issue, note) })
}

/// Returns whether a user may change a note; `can_moderate` says whether they may change those of others.
pub fn may_edit_note(note: &Note, user: UserId, can_moderate: bool) -> bool {
    !note.system && (can_moderate || note.author.as_ref().is_some_and(|author| author.id == user))
}

/// Changes the text of a comment.
pub fn update_note(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
    note: NoteId,
    body: &Unvalidated<String>,
) -> Result<Note> {
    let id = id_for_writing(tx, project, iid)?;
    notes::update(tx, project, &id, &Unvalidated::valid(note), body)
}

/// Deletes a comment.
pub fn delete_note(tx: &mut WriteTx<'_>, project: &ProjectRef, iid: IssueIid, note: NoteId) -> Result<Note> {
    let id = id_for_writing(tx, project, iid)?;
    notes::delete(tx, project, &id, &Unvalidated::valid(note))
}

/// Returns the id of a visible issue, for a use case that checks the permission.
pub(crate) fn id_for_writing(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    iid: IssueIid,
) -> Result<Unvalidated<IssueId>> {
    let found = tx.project(project, ProjectAbility::ReadIssues)?;
    Ok(Unvalidated::valid(find(tx.read(), &found, iid)?.id))
}

fn may_write(tx: &ReadTx<'_>, project: &Project) -> bool {
    tx.actor().user().is_some() && tx.can(project, ProjectAbility::WriteIssues)
}

pub(crate) fn find(tx: &mut ReadTx<'_>, project: &Project, iid: IssueIid) -> Result<Issue> {
    let visibility = tx.issue_visibility(project);
    store::issues::by_iid(tx.db(), &visibility, project.id, iid)?.ok_or(Error::NotFound(None))
}
