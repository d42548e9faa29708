//! Issues of projects.
//!
//! Whoever changes issues of a project first holds them ([`store::issues::hold`]): what is judged then stays as it is, and
//! counters of one project are never waited for in two orders.

use model::{
    Change, EventKind, Issue, IssueState, Page, Project, Slice, Violations, Visibility, WebhookEvent,
    events::{Action, Target},
    issues::{IssueChanges, IssueFilter, IssueOrder, LONGEST_TITLE, NewIssue},
    notes::LONGEST,
    text::has_control,
    users::UserSummary,
    webhook_events::{IssueAction, IssueHappening},
};
use store::{events::NewEvent, issue_lists::Scope, issues::Update, projects::Key};

use crate::{
    Ability, Error, GroupAbility, GroupRef, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx,
    announcements, labels, notes, projects,
};

/// With this word a note of the service begins that tells of a move.
const MOVED: &str = "Moved";

/// Which issues are wanted, and in which order.
#[derive(Clone, Debug, Default)]
pub struct IssueList {
    /// Which ones.
    pub filter: IssueFilter,
    /// In which order.
    pub order: IssueOrder,
}

/// The issues of a project that the actor sees.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    wanted: &Unvalidated<IssueList>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    if !tx.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = Scope::Project(project.id, tx.sight_in(&project));
    look_up(tx, &scope, wanted, page)
}

/// The issues that the actor wrote, in projects that they still see.
pub fn mine(tx: &mut ReadTx<'_>, wanted: &Unvalidated<IssueList>, page: &Unvalidated<Page>) -> Result<Slice<Issue>> {
    tx.my_id(Ability::Browse)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    let scope = Scope::Written(tx.viewer());
    look_up(tx, &scope, wanted, page)
}

/// The issues of a group's projects that the actor sees.
pub fn of_group(
    tx: &mut ReadTx<'_>,
    group: &GroupRef,
    wanted: &Unvalidated<IssueList>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    tx.may(Ability::Browse)?;
    let (group, _) = tx.open_group(group, GroupAbility::ReadGroup)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    let scope = Scope::Group(group.id, tx.viewer());
    look_up(tx, &scope, wanted, page)
}

fn look_up(tx: &mut ReadTx<'_>, scope: &Scope, wanted: &IssueList, page: Page) -> Result<Slice<Issue>> {
    labels::refuse_too_many(&wanted.filter.labels)?;
    if projects::is_beyond(wanted.filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    Ok(store::issue_lists::list(tx.db(), scope, &wanted.filter, wanted.order, page)?)
}

/// One issue.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, issue: &Unvalidated<i64>) -> Result<Issue> {
    open(tx, project, issue, ProjectAbility::ReadIssues).map(|(_, issue)| issue)
}

/// Writes an issue. Who may not manage issues writes the text alone: the rest is left out, as clients of the original
/// expect.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewIssue>) -> Result<Issue> {
    let me = tx.my_id(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::WriteIssues)?;
    let new = new.get()?;
    check(Some(&new.title), new.description.as_deref())?;
    store::issues::hold(tx.db(), project.id)?;
    let manages = tx.can(&project, ProjectAbility::AdministerIssues);
    let assignee = new.assignee.filter(|_| manages);
    let milestone = new.milestone.filter(|_| manages);
    check_relations(tx, &project, assignee, milestone)?;
    let labels = if manages { labels::find_or_make(tx, &project, &new.labels)? } else { Vec::new() };
    let now = tx.now();
    let created_at = new.created_at.filter(|_| tx.can(&project, ProjectAbility::RemoveIssues)).unwrap_or(now);
    let iid = store::issues::next_number(tx.db(), project.id)?;
    let row = store::issues::NewIssue {
        project: project.id,
        iid,
        author: Some(me),
        title: new.title.trim(),
        description: new.description.as_deref(),
        assignee,
        milestone,
        due_on: new.due_on.filter(|_| manages),
        confidential: new.confidential,
        created_at,
        now,
    };
    let id = store::issues::insert(tx.db(), &row)?;
    let labels: Vec<i64> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(tx.db(), id, &labels)?;
    let issue = find(tx, &project, id)?;
    tell(tx, &issue, me, Action::Created)?;
    announce(tx, &issue, me, IssueAction::Open)?;
    Ok(issue)
}

/// Changes an issue: its author, whoever works on it, and those who manage issues may.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    changes: &Unvalidated<IssueChanges>,
) -> Result<Issue> {
    let me = tx.my_id(Ability::Browse)?;
    let (project, issue) = open_to_write(tx, project, issue)?;
    if !may_change(tx, &project, &issue, me) {
        return Err(Error::Forbidden(None));
    }
    let mut changes = changes.get()?.clone();
    check(changes.title.as_deref(), changes.description.set().map(String::as_str))?;
    if !tx.can(&project, ProjectAbility::AdministerIssues) {
        changes.assignee = Change::Keep;
        changes.milestone = Change::Keep;
        changes.labels = None;
        changes.due_on = Change::Keep;
        // What others wrote in confidence is not theirs to publish.
        changes.confidential = changes.confidential.filter(|confidential| *confidential);
    }
    if !tx.can(&project, ProjectAbility::RemoveIssues) {
        changes.updated_at = None;
    }
    let is_edit = changes.is_edit();
    // What stays as it is need not be right any more.
    changes.assignee = differs(&changes.assignee, issue.assignee.as_ref().map(|user| user.id).as_ref());
    changes.milestone = differs(&changes.milestone, issue.milestone.as_ref().map(|milestone| milestone.id).as_ref());
    check_relations(tx, &project, changes.assignee.set().copied(), changes.milestone.set().copied())?;
    let turned = changes.closed.filter(|closed| *closed != (issue.state == IssueState::Closed));
    if let Some(closed) = turned {
        turn(tx, &issue, closed, me, None)?;
    }
    rewrite(tx, &project, &issue, &changes, me)?;
    // Hooks hear of it as it is in the end: what becomes a secret now is one already.
    let issue = find(tx, &project, issue.id)?;
    if let Some(closed) = turned {
        announce(tx, &issue, me, if closed { IssueAction::Close } else { IssueAction::Reopen })?;
    }
    if is_edit {
        announce(tx, &issue, me, IssueAction::Update)?;
    }
    Ok(issue)
}

/// Changes what an issue says, and tells what others would want to know.
fn rewrite(tx: &mut WriteTx<'_>, project: &Project, issue: &Issue, changes: &IssueChanges, me: i64) -> Result<()> {
    let told = differences(tx, project, issue, changes)?;
    let relabelled = match &changes.labels {
        Some(titles) => relabel(tx, project, issue, titles)?,
        None => None,
    };
    let title = changes.title.as_deref().map(str::trim).filter(|title| *title != issue.title);
    let update = Update {
        title,
        description: differs(&changes.description, issue.description.as_ref()),
        closed: None,
        confidential: changes.confidential.filter(|confidential| *confidential != issue.confidential),
        assignee: changes.assignee.clone(),
        milestone: changes.milestone.clone(),
        due_on: differs(&changes.due_on, issue.due_on.as_ref()),
        moved_to: None,
    };
    if update == Update::default() && relabelled.is_none() && changes.updated_at.is_none() {
        return Ok(());
    }
    let now = changes.updated_at.unwrap_or(tx.now());
    store::issues::update(tx.db(), issue.id, &update, Some(me), now)?;
    for body in relabelled.into_iter().chain(told) {
        notes::tell(tx, issue, me, &body)?;
    }
    Ok(())
}

/// A change, unless everything is as it shall be already.
fn differs<T: Clone + PartialEq>(change: &Change<T>, present: Option<&T>) -> Change<T> {
    match change {
        Change::Set(value) if Some(value) != present => Change::Set(value.clone()),
        Change::Clear if present.is_some() => Change::Clear,
        Change::Keep | Change::Clear | Change::Set(_) => Change::Keep,
    }
}

/// What is told of a change besides labels, in the words of the original.
fn differences(tx: &mut WriteTx<'_>, project: &Project, issue: &Issue, changes: &IssueChanges) -> Result<Vec<String>> {
    let mut told = Vec::new();
    match changes.milestone {
        Change::Keep => {}
        Change::Clear => told.push("Milestone removed".to_owned()),
        Change::Set(id) => {
            let milestone = store::milestones::find(tx.db(), project.id, id)?;
            told.extend(milestone.map(|milestone| format!("Milestone changed to %{}", milestone.iid)));
        }
    }
    match changes.assignee {
        Change::Keep => {}
        Change::Clear => told.push("Assignee removed".to_owned()),
        Change::Set(id) => {
            let user = store::users::by_id(tx.db(), id)?;
            told.extend(user.map(|user| format!("Reassigned to @{}", user.username)));
        }
    }
    if let Some(title) = changes.title.as_deref().map(str::trim).filter(|title| *title != issue.title) {
        told.push(format!("Changed title from **{}** to **{title}**", issue.title));
    }
    match changes.confidential.filter(|confidential| *confidential != issue.confidential) {
        Some(true) => told.push("Made the issue confidential".to_owned()),
        Some(false) => told.push("Made the issue visible".to_owned()),
        None => {}
    }
    Ok(told)
}

/// Gives an issue exactly these labels; answers what there is to tell of it, if anything changed.
fn relabel(tx: &mut WriteTx<'_>, project: &Project, issue: &Issue, titles: &[String]) -> Result<Option<String>> {
    let wanted: Vec<i64> = labels::find_or_make(tx, project, titles)?.into_iter().map(|(label, _)| label).collect();
    let present: Vec<i64> = store::issues::labels_of(tx.db(), issue.id)?.into_iter().map(|(label, _)| label).collect();
    let added: Vec<i64> = wanted.iter().filter(|label| !present.contains(label)).copied().collect();
    let removed: Vec<i64> = present.iter().filter(|label| !wanted.contains(label)).copied().collect();
    store::issues::remove_labels(tx.db(), issue.id, &removed)?;
    store::issues::add_labels(tx.db(), issue.id, &added)?;
    let names = |labels: &[i64]| labels.iter().map(|label| format!("~{label}")).collect::<Vec<_>>().join(" ");
    let word = if added.len() + removed.len() == 1 { "label" } else { "labels" };
    Ok(match (added.is_empty(), removed.is_empty()) {
        (true, true) => None,
        (false, true) => Some(format!("Added {} {word}", names(&added))),
        (true, false) => Some(format!("Removed {} {word}", names(&removed))),
        (false, false) => Some(format!("Added {} and removed {} {word}", names(&added), names(&removed))),
    })
}

/// Removes an issue with all that was said about it; answers what it was.
pub fn delete(tx: &mut WriteTx<'_>, project: &ProjectRef, issue: &Unvalidated<i64>) -> Result<Issue> {
    tx.may(Ability::Browse)?;
    let (project, issue) = open_to_write(tx, project, issue)?;
    tx.may_to(&project, ProjectAbility::RemoveIssues)?;
    store::issues::delete(tx.db(), issue.id)?;
    Ok(issue)
}

/// Follows an issue, or stops following it.
pub fn set_subscribed(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    subscribed: bool,
) -> Result<Issue> {
    let me = tx.my_id(Ability::Browse)?;
    let (_, issue) = open(tx, project, issue, ProjectAbility::ReadIssues)?;
    if issue.subscribed == subscribed {
        return Err(Error::Unchanged);
    }
    store::issues::set_subscribed(tx.db(), issue.id, me, subscribed)?;
    Ok(Issue { subscribed, ..issue })
}

/// Moves an issue to another project: a copy goes on there, and the issue itself is closed.
pub fn move_to(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    target: &Unvalidated<i64>,
) -> Result<Issue> {
    const NO_RIGHT: &str = "Cannot move issue due to insufficient permissions!";
    let me = tx.my_id(Ability::Browse)?;
    let (project, issue) = open(tx, project, issue, ProjectAbility::ReadIssues)?;
    let target = tx.open(&ProjectRef::Id(*target.get()?), ProjectAbility::ReadProject)?;
    if target.id == project.id {
        return Err(Error::Refused("Cannot move issue to project it originates from!".into()));
    }
    let manages = |place: &Project| tx.can(place, ProjectAbility::AdministerIssues);
    if !manages(&project) || !manages(&target) {
        return Err(Error::Refused(NO_RIGHT.into()));
    }
    for place in [project.id.min(target.id), project.id.max(target.id)] {
        store::issues::hold(tx.db(), place)?;
    }
    // As it is now that nobody else changes it.
    let issue = find(tx, &project, issue.id)?;
    if issue.moved_to.is_some() {
        return Err(Error::Refused(NO_RIGHT.into()));
    }
    let copy = copy_to(tx, &issue, &target)?;
    let (from, to) = (place_of(&project, &issue), place_of(&target, &copy));
    notes::tell(tx, &copy, me, &format!("{MOVED} from {from}"))?;
    notes::tell(tx, &issue, me, &format!("{MOVED} to {to}"))?;
    tell(tx, &copy, me, Action::Created)?;
    let was_open = issue.state != IssueState::Closed;
    let update = Update { closed: was_open.then_some(true), moved_to: Some(copy.id), ..Update::default() };
    let now = tx.now();
    store::issues::update(tx.db(), issue.id, &update, Some(me), now)?;
    let copy = find(tx, &target, copy.id)?;
    announce(tx, &copy, me, IssueAction::Open)?;
    if was_open {
        tell(tx, &issue, me, Action::Closed)?;
        let closed = find(tx, &project, issue.id)?;
        announce(tx, &closed, me, IssueAction::Close)?;
    }
    Ok(copy)
}

/// Writes an issue once more in another project, with what was said about it and what the other project knows too.
fn copy_to(tx: &mut WriteTx<'_>, issue: &Issue, target: &Project) -> Result<Issue> {
    let assignee = match &issue.assignee {
        Some(user) if tx.is_seen_by(target, user.id)? => Some(user.id),
        Some(_) | None => None,
    };
    let milestone = match &issue.milestone {
        Some(milestone) => store::milestones::by_title(tx.db(), target.id, &milestone.title)?,
        None => None,
    };
    let labels = store::labels::among_titles(tx.db(), target.id, &issue.labels)?;
    let (iid, now) = (store::issues::next_number(tx.db(), target.id)?, tx.now());
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
    let labels: Vec<i64> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(tx.db(), copy, &labels)?;
    // From where it came before concerns nobody here.
    store::issues::copy_notes(tx.db(), issue.id, copy, target.id, MOVED)?;
    find(tx, target, copy)
}

/// An issue by its place, for whoever reads of it in another project: what not everybody knows of has no name there.
fn place_of(project: &Project, issue: &Issue) -> String {
    if project.visibility == Visibility::Public {
        format!("{}#{}", issue.project_path, issue.iid)
    } else {
        "another project".to_owned()
    }
}

/// Finds an issue that the actor sees, in a project that they may use for something.
pub(crate) fn open(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
    ability: ProjectAbility,
) -> Result<(Project, Issue)> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let issue = find(tx, &project, *issue.get()?)?;
    tx.may_to(&project, ability)?;
    Ok((project, issue))
}

/// The same for a change, while nobody else changes issues of the project.
pub(crate) fn open_to_write(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    issue: &Unvalidated<i64>,
) -> Result<(Project, Issue)> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    store::issues::hold(tx.db(), project.id)?;
    let issue = find(tx, &project, *issue.get()?)?;
    Ok((project, issue))
}

/// An issue of an open project, if the actor sees it.
fn find(tx: &mut ReadTx<'_>, project: &Project, issue: i64) -> Result<Issue> {
    let sight = tx.sight_in(project);
    let found = if tx.can(project, ProjectAbility::ReadIssues) {
        store::issues::find(tx.db(), &sight, project.id, issue)?
    } else {
        None
    };
    found.ok_or(Error::NoSuchRow)
}

/// Whether somebody may change an issue that they see.
pub(crate) fn may_change(tx: &ReadTx<'_>, project: &Project, issue: &Issue, user: i64) -> bool {
    let is = |person: &Option<UserSummary>| person.as_ref().is_some_and(|person| person.id == user);
    tx.can(project, ProjectAbility::AdministerIssues) || is(&issue.author) || is(&issue.assignee)
}

fn check(title: Option<&str>, description: Option<&str>) -> Result<()> {
    let mut violations = Violations::new();
    if let Some(title) = title {
        violations.unless(!title.trim().is_empty(), "title", "can't be blank");
        violations.unless(!has_control(title.trim()), "title", "is invalid");
        violations.longest("title", title.trim(), LONGEST_TITLE);
    }
    violations.longest("description", description.unwrap_or_default(), LONGEST);
    Ok(violations.into_result()?)
}

/// Refuses what is of another project, and people who could not see what they shall work on.
fn check_relations(
    tx: &mut WriteTx<'_>,
    project: &Project,
    assignee: Option<i64>,
    milestone: Option<i64>,
) -> Result<()> {
    let mut violations = Violations::new();
    if let Some(assignee) = assignee {
        violations.unless(tx.is_seen_by(project, assignee)?, "assignee", "is invalid");
    }
    if let Some(milestone) = milestone {
        let found = store::milestones::find(tx.db(), project.id, milestone)?;
        violations.unless(found.is_some(), "milestone", "is invalid");
    }
    Ok(violations.into_result()?)
}

/// Closes an issue or opens it again, and tells so. Whoever calls this holds the issues of the project, and announces it.
pub(crate) fn turn(tx: &mut WriteTx<'_>, issue: &Issue, closed: bool, by: i64, via: Option<&str>) -> Result<()> {
    let now = tx.now();
    let update = Update { closed: Some(closed), ..Update::default() };
    store::issues::update(tx.db(), issue.id, &update, Some(by), now)?;
    let (action, word) = if closed { (Action::Closed, "closed") } else { (Action::Reopened, "reopened") };
    let via = via.map(|via| format!(" by {via}")).unwrap_or_default();
    notes::tell(tx, issue, by, &format!("Status changed to {word}{via}"))?;
    tell(tx, issue, by, action)
}

/// Tells hooks what somebody did to an issue, which is given as it is now. Of one that only some see, only those hear
/// that want to know of such.
pub(crate) fn announce(tx: &mut WriteTx<'_>, issue: &Issue, by: i64, action: IssueAction) -> Result<()> {
    let occasion = if issue.confidential { EventKind::ConfidentialIssue } else { EventKind::Issue };
    if !announcements::is_wanted(tx, occasion, Some(issue.project))? {
        return Ok(());
    }
    let Some(Scene { project, user, updated_by }) = scene(tx, issue, by)? else { return Ok(()) };
    let happening = IssueHappening { project: &project, user: &user, issue, updated_by, action };
    announcements::write_down(tx, occasion, Some(issue.project), WebhookEvent::Issue(&happening), None)
}

/// What hooks are told beside an issue: where it is, who does something, and who changed it last.
pub(crate) struct Scene {
    pub(crate) project: Project,
    pub(crate) user: UserSummary,
    pub(crate) updated_by: Option<i64>,
}

pub(crate) fn scene(tx: &mut WriteTx<'_>, issue: &Issue, by: i64) -> Result<Option<Scene>> {
    let viewer = tx.viewer();
    let project = store::projects::find(tx.db(), &viewer, Key::Id(issue.project))?;
    let user = store::users::by_id(tx.db(), by)?;
    let updated_by = store::issues::updated_by(tx.db(), issue.id)?;
    Ok(project.zip(user).map(|(project, user)| Scene { project, user: user.into(), updated_by }))
}

/// Tells everybody what somebody did to an issue.
fn tell(tx: &mut WriteTx<'_>, issue: &Issue, author: i64, action: Action) -> Result<()> {
    let now = tx.now();
    let target = Some(Target::Issue(issue.id));
    let event = NewEvent { project: issue.project, author, action, target, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}
