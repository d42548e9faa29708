//! Milestones of projects.

use model::{
    Issue, Milestone, Page, Project, Slice, Violations,
    events::{Action, Target},
    issues::{IssueFilter, IssueOrder},
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use store::{events::NewEvent, issue_lists::Scope};

use crate::{Ability, Error, Given, ProjectAbility, ProjectRef, Reader, Result, Writer};

/// The milestones of a project, oldest first.
pub fn list(
    it: &mut Reader<'_>,
    project: &ProjectRef,
    filter: &Given<MilestoneFilter>,
    page: &Given<Page>,
) -> Result<Slice<Milestone>> {
    let project = open(it, project, ProjectAbility::ReadProject)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    if !project.tracks_work() {
        return Ok(Slice::empty(page));
    }
    Ok(store::milestones::list(it.db(), project.id, filter, page)?)
}

/// One milestone of a project.
pub fn get(it: &mut Reader<'_>, project: &ProjectRef, id: &Given<i64>) -> Result<Milestone> {
    let project = open(it, project, ProjectAbility::ReadProject)?;
    find(it, &project, *id.get()?)
}

/// The issues of a milestone that the actor sees, newest first.
pub fn issues(it: &mut Reader<'_>, project: &ProjectRef, id: &Given<i64>, page: &Given<Page>) -> Result<Slice<Issue>> {
    let project = open(it, project, ProjectAbility::ReadProject)?;
    let (id, page) = (*id.get()?, *page.get()?);
    let milestone = find(it, &project, id)?;
    if !it.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = Scope::Milestone(milestone.id, it.sight_in(&project));
    Ok(store::issue_lists::list(it.db(), &scope, &IssueFilter::default(), IssueOrder::default(), page)?)
}

/// Adds a milestone; its title must be free in the project.
pub fn create(it: &mut Writer<'_>, project: &ProjectRef, new: &Given<NewMilestone>) -> Result<Milestone> {
    let project = open_to_change(it, project)?;
    let (me, now) = (it.my_id(Ability::Browse)?, it.now());
    let new = new.get()?.checked()?;
    store::issues::hold(it.db(), project.id)?;
    check_free(it, &project, &new.title)?;
    let milestone = store::milestones::insert(it.db(), project.id, &new, now)?;
    tell(it, &milestone, me, Action::Created)?;
    Ok(milestone)
}

/// Changes a milestone, ends it or begins it again. What is as asked for already tells nobody anything.
pub fn update(
    it: &mut Writer<'_>,
    project: &ProjectRef,
    id: &Given<i64>,
    changes: &Given<MilestoneChanges>,
) -> Result<Milestone> {
    let project = open_to_change(it, project)?;
    let (me, now) = (it.my_id(Ability::Browse)?, it.now());
    let (id, changes) = (*id.get()?, changes.get()?);
    store::issues::hold(it.db(), project.id)?;
    let old = find(it, &project, id)?;
    let mut milestone = old.changed_by(changes);
    milestone.check()?;
    if milestone == old {
        return Ok(old);
    }
    if milestone.title != old.title {
        check_free(it, &project, &milestone.title)?;
    }
    milestone.updated_at = now;
    store::milestones::update(it.db(), &milestone)?;
    match (old.closed, milestone.closed) {
        (false, true) => tell(it, &milestone, me, Action::Closed)?,
        (true, false) => tell(it, &milestone, me, Action::Reopened)?,
        (false, false) | (true, true) => {}
    }
    Ok(milestone)
}

fn open(it: &mut Reader<'_>, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
    it.may(Ability::Browse)?;
    it.open(project, ability)
}

fn open_to_change(it: &mut Reader<'_>, project: &ProjectRef) -> Result<Project> {
    let project = open(it, project, ProjectAbility::AdministerMilestones)?;
    if project.tracks_work() { Ok(project) } else { Err(Error::Forbidden(None)) }
}

fn find(it: &mut Reader<'_>, project: &Project, id: i64) -> Result<Milestone> {
    if !project.tracks_work() {
        return Err(Error::NoSuchRow);
    }
    store::milestones::find(it.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

fn check_free(it: &mut Writer<'_>, project: &Project, title: &str) -> Result<()> {
    match store::milestones::by_title(it.db(), project.id, title)? {
        None => Ok(()),
        Some(_) => Err(Violations::one("title", "has already been taken").into()),
    }
}

/// Tells everybody what somebody did to a milestone.
fn tell(it: &mut Writer<'_>, milestone: &Milestone, author: i64, action: Action) -> Result<()> {
    let now = it.now();
    let target = Some(Target::Milestone(milestone.id));
    let event = NewEvent { project: milestone.project, author, action, target, push: None, intent: None, now };
    store::events::insert(it.db(), &event)?;
    Ok(())
}
