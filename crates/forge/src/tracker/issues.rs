//! Issues of projects.
//!
//! Every change first locks the issues of the project ([`store::issues::lock_project`]): checks stay valid until the
//! commit, and transactions lock the counters of projects in the same order.

use model::{
    Change, EventKind, Issue, IssueId, IssueState, LabelId, MilestoneId, Page, Project, ProjectId, Slice, UserId,
    Violations, Visibility, WebhookEvent,
    events::{EventAction, EventTarget},
    issues::{IssueChanges, IssueFilter, IssueOrder, MAX_TITLE_LENGTH, NewIssue},
    notes::MAX_TEXT_LENGTH,
    text::has_control,
    users::UserSummary,
    webhook_events::{IssueAction, IssueEvent},
};
use store::{events::NewEvent, issue_lists::IssueScope, issues::IssueUpdate, projects::ProjectKey};

use crate::{
    Ability, Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx, labels,
    notes, outbox, projects,
};

/// The first word of system notes about moves.
const MOVED_PREFIX: &str = "Moved";

/// The filter and the sort order of a list of issues.
#[derive(Clone, Debug, Default)]
pub struct IssueListOptions {
    /// The filter.
    pub filter: IssueFilter,
    /// The sort order.
    pub order: IssueOrder,
}

/// Lists the issues of a project that are visible to the caller.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    options: &Unvalidated<IssueListOptions>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (options, page) = (options.validate()?, *page.validate()?);
    if !tx.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = IssueScope::Project(project.id, tx.issue_visibility(&project));
    list_in_scope(tx, &scope, options, page)
}

/// Lists the issues that the caller wrote, in projects visible to them.
pub fn list_authored(
    tx: &mut ReadTx<'_>,
    options: &Unvalidated<IssueListOptions>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    tx.current_user_id(Ability::Browse)?;
    let (options, page) = (options.validate()?, *page.validate()?);
    let scope = IssueScope::Authored(tx.viewer());
    list_in_scope(tx, &scope, options, page)
}

/// Lists the issues of the projects of a group that are visible to the caller.
pub fn list_in_group(
    tx: &mut ReadTx<'_>,
    group: &GroupRef,
    options: &Unvalidated<IssueListOptions>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    let (group, _) = tx.group(group, GroupAbility::ReadGroup)?;
    let (options, page) = (options.validate()?, *page.validate()?);
    let scope = IssueScope::Group(group.id, tx.viewer());
    list_in_scope(tx, &scope, options, page)
}

pub(crate) fn list_in_scope(
    tx: &mut ReadTx<'_>,
    scope: &IssueScope,
    options: &IssueListOptions,
    page: Page,
) -> Result<Slice<Issue>> {
    labels::check_label_count(&options.filter.labels)?;
    if projects::cannot_match(options.filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    Ok(store::issue_lists::list(tx.db(), scope, &options.filter, options.order, page)?)
}

/// Returns an issue.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, issue: &Unvalidated<IssueId>) -> Result<Issue> {
    open(tx, project, issue, ProjectAbility::ReadIssues).map(|(_, issue)| issue)
}

/// Creates an issue. Without the permission to manage issues, fields other than the text and confidentiality are
/// ignored, as in GitLab 8.14.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewIssue>) -> Result<Issue> {
    let project = tx.project(project, ProjectAbility::WriteIssues)?;
    let me = tx.user_id()?;
    let new = new.validate()?;
    check(Some(&new.title), new.description.as_deref())?;
    store::issues::lock_project(tx.db(), project.id)?;
    let may_manage = tx.can(&project, ProjectAbility::AdministerIssues);
    let assignee = new.assignee.filter(|_| may_manage);
    let milestone = new.milestone.filter(|_| may_manage);
    check_relations(tx, &project, assignee, milestone)?;
    let labels = if may_manage { labels::find_or_create(tx, &project, &new.labels)? } else { Vec::new() };
    let now = tx.now();
    let created_at = new.created_at.filter(|_| tx.can(&project, ProjectAbility::RemoveIssues)).unwrap_or(now);
    let iid = store::issues::next_iid(tx.db(), project.id)?;
    let row = store::issues::NewIssue {
        project: project.id,
        iid,
        author: Some(me),
        title: new.title.trim(),
        description: new.description.as_deref(),
        assignee,
        milestone,
        due_on: new.due_on.filter(|_| may_manage),
        confidential: new.confidential,
        created_at,
        now,
    };
    let id = store::issues::insert(tx.db(), &row)?;
    let labels: Vec<LabelId> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(tx.db(), id, &labels)?;
    let issue = find(tx.read(), &project, id)?;
    record_event(tx, &issue, me, EventAction::Created)?;
    enqueue_webhooks(tx, &issue, me, IssueAction::Open)?;
    Ok(issue)
}

/// Updates an issue; allowed to its author, its assignee and users who manage issues.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    changes: &Unvalidated<IssueChanges>,
) -> Result<Issue> {
    update_if(tx, project, issue, changes, |_| Ok(()))
}

/// Like [`update`], with a condition on the issue as it is before the change. Nothing can change it in between.
pub(crate) fn update_if(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    changes: &Unvalidated<IssueChanges>,
    precondition: impl FnOnce(&Issue) -> Result<()>,
) -> Result<Issue> {
    let (project, issue) = open_for_update(tx, project, issue)?;
    let me = tx.user_id()?;
    if !may_change(tx.read(), &project, &issue, me) {
        return Err(Error::Forbidden(None));
    }
    precondition(&issue)?;
    let mut changes = changes.validate()?.clone();
    check(changes.title.as_deref(), changes.description.set().map(String::as_str))?;
    if !tx.can(&project, ProjectAbility::AdministerIssues) {
        changes.assignee = Change::Keep;
        changes.milestone = Change::Keep;
        changes.labels = None;
        changes.due_on = Change::Keep;
        // Only users who manage issues may publish a confidential issue, which may contain notes by others.
        changes.confidential = changes.confidential.filter(|confidential| *confidential);
    }
    if !tx.can(&project, ProjectAbility::RemoveIssues) {
        changes.updated_at = None;
    }
    let is_edit = changes.is_edit();
    // Present values are kept even if they are no longer valid.
    changes.assignee = effective(&changes.assignee, issue.assignee.as_ref().map(|user| user.id).as_ref());
    changes.milestone = effective(&changes.milestone, issue.milestone.as_ref().map(|milestone| milestone.id).as_ref());
    check_relations(tx, &project, changes.assignee.set().copied(), changes.milestone.set().copied())?;
    let state_change = changes.closed.filter(|closed| *closed != (issue.state == IssueState::Closed));
    if let Some(closed) = state_change {
        set_closed(tx, &issue, closed, me, None)?;
    }
    apply_changes(tx, &project, &issue, &changes, me)?;
    // Webhooks receive the final state, so that an issue that becomes confidential is reported as confidential.
    let issue = find(tx.read(), &project, issue.id)?;
    if let Some(closed) = state_change {
        enqueue_webhooks(tx, &issue, me, if closed { IssueAction::Close } else { IssueAction::Reopen })?;
    }
    if is_edit {
        enqueue_webhooks(tx, &issue, me, IssueAction::Update)?;
    }
    Ok(issue)
}

/// Applies all changes but the state, and adds system notes about them.
fn apply_changes(
    tx: &mut WriteTx<'_>,
    project: &Project,
    issue: &Issue,
    changes: &IssueChanges,
    me: UserId,
) -> Result<()> {
    let system_notes = change_notes(tx, project, issue, changes)?;
    let label_note = match &changes.labels {
        Some(titles) => replace_labels(tx, project, issue, titles)?,
        None => None,
    };
    let title = changes.title.as_deref().map(str::trim).filter(|title| *title != issue.title);
    let update = IssueUpdate {
        title,
        description: effective(&changes.description, issue.description.as_ref()),
        closed: None,
        confidential: changes.confidential.filter(|confidential| *confidential != issue.confidential),
        assignee: changes.assignee.clone(),
        milestone: changes.milestone.clone(),
        due_on: effective(&changes.due_on, issue.due_on.as_ref()),
        moved_to: None,
    };
    if update == IssueUpdate::default() && label_note.is_none() && changes.updated_at.is_none() {
        return Ok(());
    }
    let now = changes.updated_at.unwrap_or(tx.now());
    store::issues::update(tx.db(), issue.id, &update, Some(me), now)?;
    for body in label_note.into_iter().chain(system_notes) {
        notes::add_system_note(tx, issue, me, &body)?;
    }
    Ok(())
}

/// Returns the change, or `Keep` if it has no effect.
fn effective<T: Clone + PartialEq>(change: &Change<T>, present: Option<&T>) -> Change<T> {
    match change {
        Change::Set(value) if Some(value) != present => Change::Set(value.clone()),
        Change::Clear if present.is_some() => Change::Clear,
        Change::Keep | Change::Clear | Change::Set(_) => Change::Keep,
    }
}

/// Returns the system notes about changes other than labels, in the words of GitLab 8.14.
fn change_notes(tx: &mut WriteTx<'_>, project: &Project, issue: &Issue, changes: &IssueChanges) -> Result<Vec<String>> {
    let mut system_notes = Vec::new();
    match changes.milestone {
        Change::Keep => {}
        Change::Clear => system_notes.push("Milestone removed".to_owned()),
        Change::Set(id) => {
            let milestone = store::milestones::find(tx.db(), project.id, id)?;
            system_notes.extend(milestone.map(|milestone| format!("Milestone changed to %{}", milestone.iid)));
        }
    }
    match changes.assignee {
        Change::Keep => {}
        Change::Clear => system_notes.push("Assignee removed".to_owned()),
        Change::Set(id) => {
            let user = store::users::by_id(tx.db(), id)?;
            system_notes.extend(user.map(|user| format!("Reassigned to @{}", user.username)));
        }
    }
    if let Some(title) = changes.title.as_deref().map(str::trim).filter(|title| *title != issue.title) {
        system_notes.push(format!("Changed title from **{}** to **{title}**", issue.title));
    }
    match changes.confidential.filter(|confidential| *confidential != issue.confidential) {
        Some(true) => system_notes.push("Made the issue confidential".to_owned()),
        Some(false) => system_notes.push("Made the issue visible".to_owned()),
        None => {}
    }
    Ok(system_notes)
}

/// Replaces the labels of an issue; returns a system note if anything changed.
fn replace_labels(tx: &mut WriteTx<'_>, project: &Project, issue: &Issue, titles: &[String]) -> Result<Option<String>> {
    let wanted: Vec<LabelId> =
        labels::find_or_create(tx, project, titles)?.into_iter().map(|(label, _)| label).collect();
    let present: Vec<LabelId> =
        store::issues::labels_of(tx.db(), issue.id)?.into_iter().map(|(label, _)| label).collect();
    let added: Vec<LabelId> = wanted.iter().filter(|label| !present.contains(label)).copied().collect();
    let removed: Vec<LabelId> = present.iter().filter(|label| !wanted.contains(label)).copied().collect();
    store::issues::remove_labels(tx.db(), issue.id, &removed)?;
    store::issues::add_labels(tx.db(), issue.id, &added)?;
    let names = |labels: &[LabelId]| labels.iter().map(|label| format!("~{label}")).collect::<Vec<_>>().join(" ");
    let word = if added.len() + removed.len() == 1 { "label" } else { "labels" };
    Ok(match (added.is_empty(), removed.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("Added {} {word}", names(&added))),
        (true, false) => Some(format!("Removed {} {word}", names(&removed))),
        (false, false) => Some(format!("Added {} and removed {} {word}", names(&added), names(&removed))),
    })
}

/// Deletes an issue with its notes and returns it.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, issue: &Unvalidated<IssueId>) -> Result<Issue> {
    let (project, issue) = open_for_update(tx, project, issue)?;
    tx.authorize_project(&project, ProjectAbility::RemoveIssues)?;
    store::issues::delete(tx.db(), issue.id)?;
    Ok(issue)
}

/// Subscribes the caller to an issue, or unsubscribes them.
pub fn set_subscribed(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    subscribed: bool,
) -> Result<Issue> {
    let (_, issue) = open(tx.read(), project, issue, ProjectAbility::ReadIssues)?;
    let me = tx.user_id()?;
    if issue.subscribed == subscribed {
        return Err(Error::Unchanged);
    }
    store::issues::set_subscribed(tx.db(), issue.id, me, subscribed)?;
    Ok(Issue { subscribed, ..issue })
}

/// Moves an issue to another project: copies it there and closes the original.
pub fn move_to(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    target: &Unvalidated<ProjectId>,
) -> Result<Issue> {
    const NOT_PERMITTED: &str = "Cannot move issue due to insufficient permissions!";
    let (project, issue) = open(tx.read(), project, issue, ProjectAbility::ReadIssues)?;
    let me = tx.user_id()?;
    let target = tx.project(&ProjectRef::Id(*target.validate()?), ProjectAbility::ReadProject)?;
    if target.id == project.id {
        return Err(Error::Refused("Cannot move issue to project it originates from!".into()));
    }
    let may_manage = |project: &Project| tx.can(project, ProjectAbility::AdministerIssues);
    if !may_manage(&project) || !may_manage(&target) {
        return Err(Error::Refused(NOT_PERMITTED.into()));
    }
    for id in [project.id.min(target.id), project.id.max(target.id)] {
        store::issues::lock_project(tx.db(), id)?;
    }
    // Read again under the lock.
    let issue = find(tx.read(), &project, issue.id)?;
    if issue.moved_to.is_some() {
        return Err(Error::Refused(NOT_PERMITTED.into()));
    }
    let copy = copy_to(tx, &issue, &target)?;
    let (from, to) = (public_reference(&project, &issue), public_reference(&target, &copy));
    notes::add_system_note(tx, &copy, me, &format!("{MOVED_PREFIX} from {from}"))?;
    notes::add_system_note(tx, &issue, me, &format!("{MOVED_PREFIX} to {to}"))?;
    record_event(tx, &copy, me, EventAction::Created)?;
    let was_open = issue.state != IssueState::Closed;
    let update = IssueUpdate { closed: was_open.then_some(true), moved_to: Some(copy.id), ..IssueUpdate::default() };
    let now = tx.now();
    store::issues::update(tx.db(), issue.id, &update, Some(me), now)?;
    let copy = find(tx.read(), &target, copy.id)?;
    enqueue_webhooks(tx, &copy, me, IssueAction::Open)?;
    if was_open {
        record_event(tx, &issue, me, EventAction::Closed)?;
        let closed = find(tx.read(), &project, issue.id)?;
        enqueue_webhooks(tx, &closed, me, IssueAction::Close)?;
    }
    Ok(copy)
}

/// Copies an issue to another project with its notes, and with the assignee, milestone and labels that exist there.
fn copy_to(tx: &mut WriteTx<'_>, issue: &Issue, target: &Project) -> Result<Issue> {
    let assignee = match &issue.assignee {
        Some(user) if tx.read().is_visible_to(target, user.id)? => Some(user.id),
        Some(_) | None => None,
    };
    let milestone = match &issue.milestone {
        Some(milestone) => store::milestones::by_title(tx.db(), target.id, &milestone.title)?,
        None => None,
    };
    let labels = store::labels::by_titles(tx.db(), target.id, &issue.labels)?;
    let (iid, now) = (store::issues::next_iid(tx.db(), target.id)?, tx.now());
    let row = store::issues::NewIssue {
        project: target.id,
        iid,
        author: issue.author.as_ref().map(|author| author.id),
        title: &issue.title,
        description: issue.description.as_deref(),
        assignee,
        milestone: milestone.map(|milestone| milestone.id),
        due_on: issue.due_on,
        confidential: issue.confidential,
        created_at: issue.created_at,
        now,
    };
    let copy = store::issues::insert(tx.db(), &row)?;
    let labels: Vec<LabelId> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(tx.db(), copy, &labels)?;
    // Notes about earlier moves could name projects that are not visible here.
    store::issues::copy_notes(tx.db(), issue.id, copy, target.id, MOVED_PREFIX)?;
    find(tx.read(), target, copy)
}

/// Formats a reference to an issue for readers of another project; does not reveal the path of a project that is not
/// public.
fn public_reference(project: &Project, issue: &Issue) -> String {
    if project.visibility == Visibility::Public {
        format!("{}#{}", issue.project_path, issue.iid)
    } else {
        "another project".to_owned()
    }
}

/// Returns an issue visible to the caller and its project, if they have the ability there.
pub(crate) fn open(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
    ability: ProjectAbility,
) -> Result<(Project, Issue)> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let issue = find(tx, &project, *issue.validate()?)?;
    tx.authorize_project(&project, ability)?;
    Ok((project, issue))
}

/// Locks the issues of a project and returns an issue visible to the caller.
pub(crate) fn open_for_update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<IssueId>,
) -> Result<(Project, Issue)> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    store::issues::lock_project(tx.db(), project.id)?;
    let issue = find(tx.read(), &project, *issue.validate()?)?;
    Ok((project, issue))
}

/// Returns an issue of a project if it is visible to the caller.
fn find(tx: &mut ReadTx<'_>, project: &Project, issue: IssueId) -> Result<Issue> {
    let visibility = tx.issue_visibility(project);
    let found = if tx.can(project, ProjectAbility::ReadIssues) {
        store::issues::find(tx.db(), &visibility, project.id, issue)?
    } else {
        None
    };
    found.ok_or(Error::NoSuchRow)
}

/// Returns whether a user may change an issue visible to them.
pub(crate) fn may_change(tx: &ReadTx<'_>, project: &Project, issue: &Issue, user: UserId) -> bool {
    let is_user = |summary: &Option<UserSummary>| summary.as_ref().is_some_and(|summary| summary.id == user);
    tx.can(project, ProjectAbility::AdministerIssues) || is_user(&issue.author) || is_user(&issue.assignee)
}

fn check(title: Option<&str>, description: Option<&str>) -> Result<()> {
    let mut violations = Violations::new();
    if let Some(title) = title {
        violations.require(!title.trim().is_empty(), "title", "can't be blank");
        violations.require(!has_control(title.trim()), "title", "is invalid");
        violations.max_length("title", title.trim(), MAX_TITLE_LENGTH);
    }
    violations.max_length("description", description.unwrap_or_default(), MAX_TEXT_LENGTH);
    Ok(violations.into_result()?)
}

/// Rejects milestones of other projects, and assignees who cannot see the project.
fn check_relations(
    tx: &mut WriteTx<'_>,
    project: &Project,
    assignee: Option<UserId>,
    milestone: Option<MilestoneId>,
) -> Result<()> {
    let mut violations = Violations::new();
    if let Some(assignee) = assignee {
        violations.require(tx.read().is_visible_to(project, assignee)?, "assignee", "is invalid");
    }
    if let Some(milestone) = milestone {
        let found = store::milestones::find(tx.db(), project.id, milestone)?;
        violations.require(found.is_some(), "milestone", "is invalid");
    }
    Ok(violations.into_result()?)
}

/// Closes or reopens an issue, with a system note and an event. The caller holds the lock and enqueues the webhooks.
pub(crate) fn set_closed(
    tx: &mut WriteTx<'_>,
    issue: &Issue,
    closed: bool,
    by: UserId,
    via: Option<&str>,
) -> Result<()> {
    let now = tx.now();
    let update = IssueUpdate { closed: Some(closed), ..IssueUpdate::default() };
    store::issues::update(tx.db(), issue.id, &update, Some(by), now)?;
    let (action, word) = if closed { (EventAction::Closed, "closed") } else { (EventAction::Reopened, "reopened") };
    let via = via.map(|via| format!(" by {via}")).unwrap_or_default();
    notes::add_system_note(tx, issue, by, &format!("Status changed to {word}{via}"))?;
    record_event(tx, issue, by, action)
}

/// Enqueues the webhooks for a change of an issue, passed in its new state. Confidential issues have an event kind of
/// their own.
pub(crate) fn enqueue_webhooks(tx: &mut WriteTx<'_>, issue: &Issue, by: UserId, action: IssueAction) -> Result<()> {
    let kind = if issue.confidential { EventKind::ConfidentialIssue } else { EventKind::Issue };
    if !outbox::has_subscribers(tx.read(), kind, Some(issue.project))? {
        return Ok(());
    }
    let Some(EventContext { project, user, updated_by }) = event_context(tx, issue, by)? else { return Ok(()) };
    let event = IssueEvent { project: &project, user: &user, issue, updated_by, action };
    outbox::enqueue(tx, kind, Some(issue.project), WebhookEvent::Issue(&event))
}

/// The data of a webhook event beside the issue: the project, the acting user and the user of the last change.
pub(crate) struct EventContext {
    pub(crate) project: Project,
    pub(crate) user: UserSummary,
    pub(crate) updated_by: Option<UserId>,
}

pub(crate) fn event_context(tx: &mut WriteTx<'_>, issue: &Issue, by: UserId) -> Result<Option<EventContext>> {
    let viewer = tx.read().viewer();
    let project = store::projects::find(tx.db(), &viewer, ProjectKey::Id(issue.project))?;
    let user = store::users::by_id(tx.db(), by)?;
    let updated_by = store::issues::updated_by(tx.db(), issue.id)?;
    Ok(project.zip(user).map(|(project, user)| EventContext { project, user: user.into(), updated_by }))
}

/// Records an event about an issue in the activity feed.
fn record_event(tx: &mut WriteTx<'_>, issue: &Issue, author: UserId, action: EventAction) -> Result<()> {
    let now = tx.now();
    let target = Some(EventTarget::Issue(issue.id));
    let event = NewEvent { project: issue.project, author, action, target, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}
