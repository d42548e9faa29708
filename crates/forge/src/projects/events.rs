//! What happened.

use std::collections::HashMap;

use model::{Event, Page, Project, Slice};

use crate::{Ability, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, users};

/// A page of what happened, with the projects where it did.
pub struct Activity {
    /// What happened, newest first.
    pub events: Slice<Event>,
    /// By their numbers.
    pub projects: HashMap<i64, Project>,
}

/// What happened in a project, newest first: pushes and comments on commits only to those who read the code; what is about
/// an issue only to those who see it.
pub fn of_project(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Activity> {
    tx.may(Ability::Browse)?;
    let project = tx.open(project, ProjectAbility::ReadProject)?;
    let page = *page.get()?;
    let code = tx.can(&project, ProjectAbility::DownloadCode);
    let sight = tx.can(&project, ProjectAbility::ReadIssues).then(|| tx.sight_in(&project));
    let events = store::events::of_project(tx.db(), project.id, code, sight.as_ref(), page)?;
    Ok(Activity { events, projects: HashMap::from([(project.id, project)]) })
}

/// What a user did, newest first, as far as the actor may see it.
pub fn of_user(tx: &mut ReadTx<'_>, user: i64, page: &Unvalidated<Page>) -> Result<Activity> {
    tx.may(Ability::ReadUsers)?;
    let page = *page.get()?;
    users::find(tx, user)?;
    // A token may show users and no projects.
    let viewer = tx.viewer_of_projects();
    let mut events = store::events::of_user(tx.db(), &viewer, user, page)?;
    let mut places: Vec<i64> = events.items.iter().map(|event| event.project).collect();
    places.sort_unstable();
    places.dedup();
    let projects = store::projects::among(tx.db(), &viewer, &places)?;
    let projects: HashMap<i64, Project> = projects.into_iter().map(|project| (project.id, project)).collect();
    // A project may have gone since a moment ago.
    events.items.retain(|event| projects.contains_key(&event.project));
    Ok(Activity { events, projects })
}
