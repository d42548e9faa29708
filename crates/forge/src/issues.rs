//! Issues of projects.
//!
//! Whoever changes issues of a project first holds them ([`store::issues::hold`]): what is judged then stays as it is, and
//! counters of one project are never waited for in two orders.

use model::{
    Change, Happening, Issue, IssueState, Occasion, Page, Project, Slice, Violations, Visibility,
    events::{Action, Target},
    happenings::{IssueAction, IssueHappening},
    issues::{IssueChanges, IssueFilter, IssueOrder, LONGEST_TITLE, NewIssue},
    notes::LONGEST,
    text::has_control,
    users::UserSummary,
};
use store::{events::NewEvent, issue_lists::Scope, issues::Update, projects::Key};

use crate::{
    Ability, Error, Given, GroupAbility, GroupRef, ProjectAbility, ProjectRef, Reader, Result, Writer, announcements,
    labels, notes, projects,
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
    it: &mut Reader<'_>,
    project: &ProjectRef,
    wanted: &Given<IssueList>,
    page: &Given<Page>,
) -> Result<Slice<Issue>> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadProject)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    if !it.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = Scope::Project(project.id, it.sight_in(&project));
    look_up(it, &scope, wanted, page)
}

/// The issues that the actor wrote, in projects that they still see.
pub fn mine(it: &mut Reader<'_>, wanted: &Given<IssueList>, page: &Given<Page>) -> Result<Slice<Issue>> {
    it.my_id(Ability::Browse)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    let scope = Scope::Written(it.viewer());
    look_up(it, &scope, wanted, page)
}

/// The issues of a group's projects that the actor sees.
pub fn of_group(
    it: &mut Reader<'_>,
    group: &GroupRef,
    wanted: &Given<IssueList>,
    page: &Given<Page>,
) -> Result<Slice<Issue>> {
    it.may(Ability::Browse)?;
    let (group, _) = it.open_group(group, GroupAbility::ReadGroup)?;
    let (wanted, page) = (wanted.get()?, *page.get()?);
    let scope = Scope::Group(group.id, it.viewer());
    look_up(it, &scope, wanted, page)
}

fn look_up(it: &mut Reader<'_>, scope: &Scope, wanted: &IssueList, page: Page) -> Result<Slice<Issue>> {
    labels::refuse_too_many(&wanted.filter.labels)?;
    if projects::is_beyond(wanted.filter.search.as_deref()) {
        return Ok(Slice::empty(page));
    }
    Ok(store::issue_lists::list(it.db(), scope, &wanted.filter, wanted.order, page)?)
}

/// One issue.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, issue: &Given<i64>) -> Result<Issue> {
    open(it, project, issue, ProjectAbility::ReadIssues).map(|(_, issue)| issue)
}

/// Writes an issue. Who may not manage issues writes the text alone: the rest is left out, as clients of the original
/// expect.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef, new: &Given<NewIssue>) -> Result<Issue> {
    let me = it.my_id(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::WriteIssues)?;
    let new = new.get()?;
    check(Some(&new.title), new.description.as_deref())?;
    store::issues::hold(it.db(), project.id)?;
    let manages = it.can(&project, ProjectAbility::AdministerIssues);
    let assignee = new.assignee.filter(|_| manages);
    let milestone = new.milestone.filter(|_| manages);
    check_relations(it, &project, assignee, milestone)?;
    let labels = if manages { labels::find_or_make(it, &project, &new.labels)? } else { Vec::new() };
    let now = it.now();
    let created_at = new.created_at.filter(|_| it.can(&project, ProjectAbility::RemoveIssues)).unwrap_or(now);
    let iid = store::issues::next_number(it.db(), project.id)?;
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
    let id = store::issues::insert(it.db(), &row)?;
    let labels: Vec<i64> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(it.db(), id, &labels)?;
    let issue = find(it, &project, id)?;
    tell(it, &issue, me, Action::Created)?;
    announce(it, &issue, me, IssueAction::Open)?;
    Ok(issue)
}

/// Changes an issue: its author, whoever works on it, and those who manage issues may.
pub fn update(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    issue: &Given<i64>,
    changes: &Given<IssueChanges>,
) -> Result<Issue> {
    let me = it.my_id(Ability::Browse)?;
    let (project, issue) = open_to_write(it, project, issue)?;
    if !may_change(it, &project, &issue, me) {
        return Err(Error::Forbidden(None));
    }
    let mut changes = changes.get()?.clone();
    check(changes.title.as_deref(), changes.description.set().map(String::as_str))?;
    if !it.can(&project, ProjectAbility::AdministerIssues) {
        changes.assignee = Change::Keep;
        changes.milestone = Change::Keep;
        changes.labels = None;
        changes.due_on = Change::Keep;
        // What others wrote in confidence is not theirs to publish.
        changes.confidential = changes.confidential.filter(|confidential| *confidential);
    }
    if !it.can(&project, ProjectAbility::RemoveIssues) {
        changes.updated_at = None;
    }
    let is_edit = changes.is_edit();
    // What stays as it is need not be right any more.
    changes.assignee = differs(&changes.assignee, issue.assignee.as_ref().map(|user| user.id).as_ref());
    changes.milestone = differs(&changes.milestone, issue.milestone.as_ref().map(|milestone| milestone.id).as_ref());
    check_relations(it, &project, changes.assignee.set().copied(), changes.milestone.set().copied())?;
    let turned = changes.closed.filter(|closed| *closed != (issue.state == IssueState::Closed));
    if let Some(closed) = turned {
        turn(it, &issue, closed, me, None)?;
    }
    rewrite(it, &project, &issue, &changes, me)?;
    // Hooks hear of it as it is in the end: what becomes a secret now is one already.
    let issue = find(it, &project, issue.id)?;
    if let Some(closed) = turned {
        announce(it, &issue, me, if closed { IssueAction::Close } else { IssueAction::Reopen })?;
    }
    if is_edit {
        announce(it, &issue, me, IssueAction::Update)?;
    }
    Ok(issue)
}

/// Changes what an issue says, and tells what others would want to know.
fn rewrite(it: &mut Writer<'_>, project: &Project, issue: &Issue, changes: &IssueChanges, me: i64) -> Result<()> {
    let told = differences(it, project, issue, changes)?;
    let relabelled = match &changes.labels {
        Some(titles) => relabel(it, project, issue, titles)?,
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
    let now = changes.updated_at.unwrap_or(it.now());
    store::issues::update(it.db(), issue.id, &update, Some(me), now)?;
    for body in relabelled.into_iter().chain(told) {
        notes::tell(it, issue, me, &body)?;
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
fn differences(it: &mut Writer<'_>, project: &Project, issue: &Issue, changes: &IssueChanges) -> Result<Vec<String>> {
    let mut told = Vec::new();
    match changes.milestone {
        Change::Keep => {}
        Change::Clear => told.push("Milestone removed".to_owned()),
        Change::Set(id) => {
            let milestone = store::milestones::find(it.db(), project.id, id)?;
            told.extend(milestone.map(|milestone| format!("Milestone changed to %{}", milestone.iid)));
        }
    }
    match changes.assignee {
        Change::Keep => {}
        Change::Clear => told.push("Assignee removed".to_owned()),
        Change::Set(id) => {
            let user = store::users::by_id(it.db(), id)?;
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
fn relabel(it: &mut Writer<'_>, project: &Project, issue: &Issue, titles: &[String]) -> Result<Option<String>> {
    let wanted: Vec<i64> = labels::find_or_make(it, project, titles)?.into_iter().map(|(label, _)| label).collect();
    let present: Vec<i64> = store::issues::labels_of(it.db(), issue.id)?.into_iter().map(|(label, _)| label).collect();
    let added: Vec<i64> = wanted.iter().filter(|label| !present.contains(label)).copied().collect();
    let removed: Vec<i64> = present.iter().filter(|label| !wanted.contains(label)).copied().collect();
    store::issues::remove_labels(it.db(), issue.id, &removed)?;
    store::issues::add_labels(it.db(), issue.id, &added)?;
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
pub fn delete(it: &mut Writer<'_>, project: &ProjectRef, issue: &Given<i64>) -> Result<Issue> {
    it.may(Ability::Browse)?;
    let (project, issue) = open_to_write(it, project, issue)?;
    it.may_to(&project, ProjectAbility::RemoveIssues)?;
    store::issues::delete(it.db(), issue.id)?;
    Ok(issue)
}

/// Follows an issue, or stops following it.
pub fn set_subscribed(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    issue: &Given<i64>,
    subscribed: bool,
) -> Result<Issue> {
    let me = it.my_id(Ability::Browse)?;
    let (_, issue) = open(it, project, issue, ProjectAbility::ReadIssues)?;
    if issue.subscribed == subscribed {
        return Err(Error::Unchanged);
    }
    store::issues::set_subscribed(it.db(), issue.id, me, subscribed)?;
    Ok(Issue { subscribed, ..issue })
}

/// Moves an issue to another project: a copy goes on there, and the issue itself is closed.
pub fn move_to(it: &mut Writer<'_>, project: &ProjectRef, issue: &Given<i64>, target: &Given<i64>) -> Result<Issue> {
    const NO_RIGHT: &str = "Cannot move issue due to insufficient permissions!";
    let me = it.my_id(Ability::Browse)?;
    let (project, issue) = open(it, project, issue, ProjectAbility::ReadIssues)?;
    let target = it.open(&ProjectRef::Id(*target.get()?), ProjectAbility::ReadProject)?;
    if target.id == project.id {
        return Err(Error::Refused("Cannot move issue to project it originates from!".into()));
    }
    let manages = |place: &Project| it.can(place, ProjectAbility::AdministerIssues);
    if !manages(&project) || !manages(&target) {
        return Err(Error::Refused(NO_RIGHT.into()));
    }
    for place in [project.id.min(target.id), project.id.max(target.id)] {
        store::issues::hold(it.db(), place)?;
    }
    // As it is now that nobody else changes it.
    let issue = find(it, &project, issue.id)?;
    if issue.moved_to.is_some() {
        return Err(Error::Refused(NO_RIGHT.into()));
    }
    let copy = copy_to(it, &issue, &target)?;
    let (from, to) = (place_of(&project, &issue), place_of(&target, &copy));
    notes::tell(it, &copy, me, &format!("{MOVED} from {from}"))?;
    notes::tell(it, &issue, me, &format!("{MOVED} to {to}"))?;
    tell(it, &copy, me, Action::Created)?;
    let was_open = issue.state != IssueState::Closed;
    let update = Update { closed: was_open.then_some(true), moved_to: Some(copy.id), ..Update::default() };
    let now = it.now();
    store::issues::update(it.db(), issue.id, &update, Some(me), now)?;
    let copy = find(it, &target, copy.id)?;
    announce(it, &copy, me, IssueAction::Open)?;
    if was_open {
        tell(it, &issue, me, Action::Closed)?;
        let closed = find(it, &project, issue.id)?;
        announce(it, &closed, me, IssueAction::Close)?;
    }
    Ok(copy)
}

/// Writes an issue once more in another project, with what was said about it and what the other project knows too.
fn copy_to(it: &mut Writer<'_>, issue: &Issue, target: &Project) -> Result<Issue> {
    let assignee = match &issue.assignee {
        Some(user) if it.is_seen_by(target, user.id)? => Some(user.id),
        Some(_) | None => None,
    };
    let milestone = match &issue.milestone {
        Some(milestone) => store::milestones::by_title(it.db(), target.id, &milestone.title)?,
        None => None,
    };
    let labels = store::labels::among_titles(it.db(), target.id, &issue.labels)?;
    let (iid, now) = (store::issues::next_number(it.db(), target.id)?, it.now());
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
    let copy = store::issues::insert(it.db(), &row)?;
    let labels: Vec<i64> = labels.into_iter().map(|(label, _)| label).collect();
    store::issues::add_labels(it.db(), copy, &labels)?;
    // From where it came before concerns nobody here.
    store::issues::copy_notes(it.db(), issue.id, copy, target.id, MOVED)?;
    find(it, target, copy)
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
    it: &mut Reader<'_>,
    project: &ProjectRef,
    issue: &Given<i64>,
    ability: ProjectAbility,
) -> Result<(Project, Issue)> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadProject)?;
    let issue = find(it, &project, *issue.get()?)?;
    it.may_to(&project, ability)?;
    Ok((project, issue))
}

/// The same for a change, while nobody else changes issues of the project.
pub(crate) fn open_to_write(it: &mut Writer<'_>, project: &ProjectRef, issue: &Given<i64>) -> Result<(Project, Issue)> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadProject)?;
    store::issues::hold(it.db(), project.id)?;
    let issue = find(it, &project, *issue.get()?)?;
    Ok((project, issue))
}

/// An issue of an open project, if the actor sees it.
fn find(it: &mut Reader<'_>, project: &Project, issue: i64) -> Result<Issue> {
    let sight = it.sight_in(project);
    let found = if it.can(project, ProjectAbility::ReadIssues) {
        store::issues::find(it.db(), &sight, project.id, issue)?
    } else {
        None
    };
    found.ok_or(Error::NoSuchRow)
}

/// Whether somebody may change an issue that they see.
pub(crate) fn may_change(it: &Reader<'_>, project: &Project, issue: &Issue, user: i64) -> bool {
    let is = |person: &Option<UserSummary>| person.as_ref().is_some_and(|person| person.id == user);
    it.can(project, ProjectAbility::AdministerIssues) || is(&issue.author) || is(&issue.assignee)
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
    it: &mut Writer<'_>,
    project: &Project,
    assignee: Option<i64>,
    milestone: Option<i64>,
) -> Result<()> {
    let mut violations = Violations::new();
    if let Some(assignee) = assignee {
        violations.unless(it.is_seen_by(project, assignee)?, "assignee", "is invalid");
    }
    if let Some(milestone) = milestone {
        let found = store::milestones::find(it.db(), project.id, milestone)?;
        violations.unless(found.is_some(), "milestone", "is invalid");
    }
    Ok(violations.into_result()?)
}

/// Closes an issue or opens it again, and tells so. Whoever calls this holds the issues of the project, and announces it.
pub(crate) fn turn(it: &mut Writer<'_>, issue: &Issue, closed: bool, by: i64, via: Option<&str>) -> Result<()> {
    let now = it.now();
    let update = Update { closed: Some(closed), ..Update::default() };
    store::issues::update(it.db(), issue.id, &update, Some(by), now)?;
    let (action, word) = if closed { (Action::Closed, "closed") } else { (Action::Reopened, "reopened") };
    let via = via.map(|via| format!(" by {via}")).unwrap_or_default();
    notes::tell(it, issue, by, &format!("Status changed to {word}{via}"))?;
    tell(it, issue, by, action)
}

/// Tells hooks what somebody did to an issue, which is given as it is now. Of one that only some see, only those hear
/// that want to know of such.
pub(crate) fn announce(it: &mut Writer<'_>, issue: &Issue, by: i64, action: IssueAction) -> Result<()> {
    let occasion = if issue.confidential { Occasion::ConfidentialIssue } else { Occasion::Issue };
    if !announcements::is_wanted(it, occasion, Some(issue.project))? {
        return Ok(());
    }
    let Some(Scene { project, user, updated_by }) = scene(it, issue, by)? else { return Ok(()) };
    let happening = IssueHappening { project: &project, user: &user, issue, updated_by, action };
    announcements::write_down(it, occasion, Some(issue.project), Happening::Issue(&happening), None)
}

/// What hooks are told beside an issue: where it is, who does something, and who changed it last.
pub(crate) struct Scene {
    pub(crate) project: Project,
    pub(crate) user: UserSummary,
    pub(crate) updated_by: Option<i64>,
}

pub(crate) fn scene(it: &mut Writer<'_>, issue: &Issue, by: i64) -> Result<Option<Scene>> {
    let viewer = it.viewer();
    let project = store::projects::find(it.db(), &viewer, Key::Id(issue.project))?;
    let user = store::users::by_id(it.db(), by)?;
    let updated_by = store::issues::updated_by(it.db(), issue.id)?;
    Ok(project.zip(user).map(|(project, user)| Scene { project, user: user.into(), updated_by }))
}

/// Tells everybody what somebody did to an issue.
fn tell(it: &mut Writer<'_>, issue: &Issue, author: i64, action: Action) -> Result<()> {
    let now = it.now();
    let target = Some(Target::Issue(issue.id));
    let event = NewEvent { project: issue.project, author, action, target, push: None, intent: None, now };
    store::events::insert(it.db(), &event)?;
    Ok(())
}
