//! What happened.

use std::collections::HashMap;

use model::{Event, Page, Project, Slice};

use crate::{Ability, Given, ProjectAbility, ProjectRef, Reader, Result, users};

/// A page of what happened, with the projects where it did.
pub struct Activity {
    /// What happened, newest first.
    pub events: Slice<Event>,
    /// By their numbers.
    pub projects: HashMap<i64, Project>,
}

/// What happened in a project, newest first: pushes and comments on commits only to those who read the code; what is about
/// an issue only to those who see it.
pub fn of_project(it: &mut Reader<'_>, project: &ProjectRef, page: &Given<Page>) -> Result<Activity> {
    it.may(Ability::Browse)?;
    let project = it.open(project, ProjectAbility::ReadProject)?;
    let page = *page.get()?;
    let code = it.can(&project, ProjectAbility::DownloadCode);
    let sight = it.can(&project, ProjectAbility::ReadIssues).then(|| it.sight_in(&project));
    let events = store::events::of_project(it.db(), project.id, code, sight.as_ref(), page)?;
    Ok(Activity { events, projects: HashMap::from([(project.id, project)]) })
}

/// What a user did, newest first, as far as the actor may see it.
pub fn of_user(it: &mut Reader<'_>, user: i64, page: &Given<Page>) -> Result<Activity> {
    it.may(Ability::ReadUsers)?;
    let page = *page.get()?;
    users::find(it, user)?;
    // A token may show users and no projects.
    let viewer = it.viewer_of_projects();
    let mut events = store::events::of_user(it.db(), &viewer, user, page)?;
    let mut places: Vec<i64> = events.items.iter().map(|event| event.project).collect();
    places.sort_unstable();
    places.dedup();
    let projects = store::projects::among(it.db(), &viewer, &places)?;
    let projects: HashMap<i64, Project> = projects.into_iter().map(|project| (project.id, project)).collect();
    // A project may have gone since a moment ago.
    events.items.retain(|event| projects.contains_key(&event.project));
    Ok(Activity { events, projects })
}
