//! Activity events of users and projects.

use std::collections::HashMap;

use model::{Event, Page, Project, ProjectId, Slice, UserId};

use crate::{Ability, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, users};

/// A page of events with their projects.
pub struct Activity {
    /// The events, newest first.
    pub events: Slice<Event>,
    /// The projects of the events, by ID.
    pub projects: HashMap<ProjectId, Project>,
}

/// Lists the events of a project, newest first. Pushes and comments on commits require access to the code; events of issues
/// require access to the issue.
pub fn of_project(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Activity> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    let page = *page.validate()?;
    let code = tx.can(&project, ProjectAbility::DownloadCode);
    let visibility = tx.can(&project, ProjectAbility::ReadIssues).then(|| tx.issue_visibility(&project));
    let events = store::events::of_project(tx.db(), project.id, code, visibility.as_ref(), page)?;
    Ok(Activity { events, projects: HashMap::from([(project.id, project)]) })
}

/// Lists the events of a user that the caller may see, newest first.
pub fn of_user(tx: &mut ReadTx<'_>, user: UserId, page: &Unvalidated<Page>) -> Result<Activity> {
    tx.authorize(Ability::ReadUsers)?;
    let page = *page.validate()?;
    users::find(tx, user)?;
    visible_of_user(tx, user, page)
}

/// Lists the events of a user that the actor may see, newest first, for callers that have checked that the user is visible.
pub(crate) fn visible_of_user(tx: &mut ReadTx<'_>, user: UserId, page: Page) -> Result<Activity> {
    // The scope of the token may allow access to users but not to projects.
    let viewer = tx.viewer_of_projects();
    let mut events = store::events::of_user(tx.db(), &viewer, user, page)?;
    let mut places: Vec<ProjectId> = events.items.iter().map(|event| event.project).collect();
    places.sort_unstable();
    places.dedup();
    let projects = store::projects::by_ids(tx.db(), &viewer, &places)?;
    let projects: HashMap<ProjectId, Project> = projects.into_iter().map(|project| (project.id, project)).collect();
    // A project may have been deleted since the events were read.
    events.items.retain(|event| projects.contains_key(&event.project));
    Ok(Activity { events, projects })
}
