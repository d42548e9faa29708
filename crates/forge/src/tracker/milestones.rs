//! Milestones of projects.

use model::{
    Issue, Milestone, Page, Project, Slice, Violations,
    events::{Action, Target},
    issues::{IssueFilter, IssueOrder},
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use store::{events::NewEvent, issue_lists::Scope};

use crate::{Ability, Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

/// The milestones of a project, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    filter: &Unvalidated<MilestoneFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Milestone>> {
    let project = open(tx, project, ProjectAbility::ReadProject)?;
    let (filter, page) = (filter.get()?, *page.get()?);
    if !project.tracks_work() {
        return Ok(Slice::empty(page));
    }
    Ok(store::milestones::list(tx.db(), project.id, filter, page)?)
}

/// One milestone of a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<i64>) -> Result<Milestone> {
    let project = open(tx, project, ProjectAbility::ReadProject)?;
    find(tx, &project, *id.get()?)
}

/// The issues of a milestone that the actor sees, newest first.
pub fn issues(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    id: &Unvalidated<i64>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    let project = open(tx, project, ProjectAbility::ReadProject)?;
    let (id, page) = (*id.get()?, *page.get()?);
    let milestone = find(tx, &project, id)?;
    if !tx.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = Scope::Milestone(milestone.id, tx.sight_in(&project));
    Ok(store::issue_lists::list(tx.db(), &scope, &IssueFilter::default(), IssueOrder::default(), page)?)
}

/// Adds a milestone; its title must be free in the project.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewMilestone>) -> Result<Milestone> {
    let project = open_to_change(tx, project)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    let new = new.get()?.checked()?;
    store::issues::hold(tx.db(), project.id)?;
    check_free(tx, &project, &new.title)?;
    let milestone = store::milestones::insert(tx.db(), project.id, &new, now)?;
    tell(tx, &milestone, me, Action::Created)?;
    Ok(milestone)
}

/// Changes a milestone, ends it or begins it again. What is as asked for already tells nobody anything.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    id: &Unvalidated<i64>,
    changes: &Unvalidated<MilestoneChanges>,
) -> Result<Milestone> {
    let project = open_to_change(tx, project)?;
    let (me, now) = (tx.my_id(Ability::Browse)?, tx.now());
    let (id, changes) = (*id.get()?, changes.get()?);
    store::issues::hold(tx.db(), project.id)?;
    let old = find(tx, &project, id)?;
    let mut milestone = old.changed_by(changes);
    milestone.check()?;
    if milestone == old {
        return Ok(old);
    }
    if milestone.title != old.title {
        check_free(tx, &project, &milestone.title)?;
    }
    milestone.updated_at = now;
    store::milestones::update(tx.db(), &milestone)?;
    match (old.closed, milestone.closed) {
        (false, true) => tell(tx, &milestone, me, Action::Closed)?,
        (true, false) => tell(tx, &milestone, me, Action::Reopened)?,
        (false, false) | (true, true) => {}
    }
    Ok(milestone)
}

fn open(tx: &mut ReadTx<'_>, project: &ProjectRef, ability: ProjectAbility) -> Result<Project> {
    tx.may(Ability::Browse)?;
    tx.open(project, ability)
}

fn open_to_change(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = open(tx, project, ProjectAbility::AdministerMilestones)?;
    if project.tracks_work() { Ok(project) } else { Err(Error::Forbidden(None)) }
}

fn find(tx: &mut ReadTx<'_>, project: &Project, id: i64) -> Result<Milestone> {
    if !project.tracks_work() {
        return Err(Error::NoSuchRow);
    }
    store::milestones::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

fn check_free(tx: &mut WriteTx<'_>, project: &Project, title: &str) -> Result<()> {
    match store::milestones::by_title(tx.db(), project.id, title)? {
        None => Ok(()),
        Some(_) => Err(Violations::one("title", "has already been taken").into()),
    }
}

/// Tells everybody what somebody did to a milestone.
fn tell(tx: &mut WriteTx<'_>, milestone: &Milestone, author: i64, action: Action) -> Result<()> {
    let now = tx.now();
    let target = Some(Target::Milestone(milestone.id));
    let event = NewEvent { project: milestone.project, author, action, target, push: None, intent: None, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}
