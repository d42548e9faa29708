//! Milestones of projects.

use model::{
    Issue, Milestone, MilestoneId, Page, Project, Slice, UserId, Violations,
    events::{EventAction, EventTarget},
    issues::{IssueFilter, IssueOrder},
    milestones::{MilestoneChanges, MilestoneFilter, NewMilestone},
};
use store::{events::NewEvent, issue_lists::IssueScope};

use crate::{Error, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, WriteTx};

/// Lists the milestones of a project, oldest first.
pub fn list(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    filter: &Unvalidated<MilestoneFilter>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Milestone>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (filter, page) = (filter.validate()?, *page.validate()?);
    if !project.has_tracker() {
        return Ok(Slice::empty(page));
    }
    Ok(store::milestones::list(tx.db(), project.id, filter, page)?)
}

/// Returns a milestone of a project.
pub fn get(tx: &mut ReadTx<'_>, project: &ProjectRef, id: &Unvalidated<MilestoneId>) -> Result<Milestone> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    find(tx, &project, *id.validate()?)
}

/// Lists the issues of a milestone that are visible to the caller, newest first.
pub fn issues(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    id: &Unvalidated<MilestoneId>,
    page: &Unvalidated<Page>,
) -> Result<Slice<Issue>> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let (id, page) = (*id.validate()?, *page.validate()?);
    let milestone = find(tx, &project, id)?;
    if !tx.can(&project, ProjectAbility::ReadIssues) {
        return Ok(Slice::empty(page));
    }
    let scope = IssueScope::Milestone(milestone.id, tx.issue_visibility(&project));
    Ok(store::issue_lists::list(tx.db(), &scope, &IssueFilter::default(), IssueOrder::default(), page)?)
}

/// Creates a milestone; the title must be unique within the project.
pub fn create(tx: &mut WriteTx<'_>, project: &ProjectRef, new: &Unvalidated<NewMilestone>) -> Result<Milestone> {
    let project = open_for_update(tx.read(), project)?;
    let (me, now) = (tx.user_id()?, tx.now());
    let new = new.validate()?.normalized()?;
    store::issues::lock_project(tx.db(), project.id)?;
    check_title_available(tx, &project, &new.title)?;
    let milestone = store::milestones::insert(tx.db(), project.id, &new, now)?;
    record_event(tx, &milestone, me, EventAction::Created)?;
    Ok(milestone)
}

/// Updates, closes or reopens a milestone. Records no event if nothing changes.
pub fn update(
    tx: &mut WriteTx<'_>,
    project: &ProjectRef,
    id: &Unvalidated<MilestoneId>,
    changes: &Unvalidated<MilestoneChanges>,
) -> Result<Milestone> {
    let project = open_for_update(tx.read(), project)?;
    let (me, now) = (tx.user_id()?, tx.now());
    let (id, changes) = (*id.validate()?, changes.validate()?);
    store::issues::lock_project(tx.db(), project.id)?;
    let old = find(tx.read(), &project, id)?;
    let mut milestone = old.with_changes(changes);
    milestone.check()?;
    if milestone == old {
        return Ok(old);
    }
    if milestone.title != old.title {
        check_title_available(tx, &project, &milestone.title)?;
    }
    milestone.updated_at = now;
    store::milestones::update(tx.db(), &milestone)?;
    match (old.closed, milestone.closed) {
        (false, true) => record_event(tx, &milestone, me, EventAction::Closed)?,
        (true, false) => record_event(tx, &milestone, me, EventAction::Reopened)?,
        (false, false) | (true, true) => {}
    }
    Ok(milestone)
}

fn open_for_update(tx: &mut ReadTx<'_>, project: &ProjectRef) -> Result<Project> {
    let project = tx.project(project, ProjectAbility::AdministerMilestones)?;
    if project.has_tracker() { Ok(project) } else { Err(Error::Forbidden(None)) }
}

fn find(tx: &mut ReadTx<'_>, project: &Project, id: MilestoneId) -> Result<Milestone> {
    if !project.has_tracker() {
        return Err(Error::NoSuchRow);
    }
    store::milestones::find(tx.db(), project.id, id)?.ok_or(Error::NoSuchRow)
}

fn check_title_available(tx: &mut WriteTx<'_>, project: &Project, title: &str) -> Result<()> {
    match store::milestones::by_title(tx.db(), project.id, title)? {
        None => Ok(()),
        Some(_) => Err(Violations::one("title", "has already been taken").into()),
    }
}

/// Records an event about a milestone in the activity feed.
fn record_event(tx: &mut WriteTx<'_>, milestone: &Milestone, author: UserId, action: EventAction) -> Result<()> {
    let now = tx.now();
    let target = Some(EventTarget::Milestone(milestone.id));
    let event = NewEvent { project: milestone.project, author, action, target, now };
    store::events::insert(tx.db(), &event)?;
    Ok(())
}
