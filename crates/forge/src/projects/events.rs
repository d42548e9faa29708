//! Activity events of users and projects.

use std::collections::{HashMap, HashSet};

use model::{Event, IssueId, IssueIid, Page, Project, ProjectId, RefName, Slice, UserId, events::EventTarget};

use crate::{Ability, ProjectAbility, ProjectRef, ReadTx, Result, Unvalidated, browse::InProject, users};

/// A page of events with their projects.
pub struct Activity {
    /// The events, newest first.
    pub events: Slice<Event>,
    /// The projects of the events, by ID.
    pub projects: HashMap<ProjectId, Project>,
}

/// A page of events with what their descriptions link to.
pub struct ActivityPage {
    /// The events and their projects.
    pub activity: Activity,
    /// The numbers of the issues of the events within their projects.
    pub issue_iids: HashMap<IssueId, IssueIid>,
    /// The refs of the pushes that do not exist any more, in the list of one project.
    pub missing_refs: HashSet<RefName>,
    /// Whether the visitor may restore them.
    pub can_restore: bool,
}

impl ActivityPage {
    pub(crate) fn new(tx: &mut ReadTx<'_>, activity: Activity) -> Result<Self> {
        let issues: Vec<IssueId> = activity.events.items.iter().filter_map(issue_of).collect();
        let issue_iids = store::issues::iids(tx.db(), &issues)?.into_iter().collect();
        Ok(Self { activity, issue_iids, missing_refs: HashSet::new(), can_restore: false })
    }
}

fn issue_of(event: &Event) -> Option<IssueId> {
    match event.target {
        Some(EventTarget::Issue(issue) | EventTarget::Note { issue, .. }) => Some(issue),
        Some(EventTarget::CommitNote(_) | EventTarget::Milestone(_)) | None => None,
    }
}

/// Lists the events of a project, newest first. Pushes and comments on commits require access to the code; events of issues
/// require access to the issue.
pub fn of_project(tx: &mut ReadTx<'_>, project: &ProjectRef, page: &Unvalidated<Page>) -> Result<Activity> {
    let project = tx.project(project, ProjectAbility::ReadProject)?;
    visible_of_project(tx, project, *page.validate()?)
}

/// Returns the page with the events of a project, under the same rules as [`of_project`].
pub fn page_of_project(
    tx: &mut ReadTx<'_>,
    project: &ProjectRef,
    page: &Unvalidated<Page>,
) -> Result<InProject<ActivityPage>> {
    let project = tx.project(project, ProjectAbility::ViewProject)?;
    let activity = visible_of_project(tx, project.clone(), *page.validate()?)?;
    let pushed = activity.events.items.iter().filter_map(|event| RefName::new(&event.push.as_ref()?.ref_name));
    let mut missing_refs: HashSet<RefName> = pushed.collect();
    if !missing_refs.is_empty() {
        let refs = tx.refs(&project)?;
        missing_refs.retain(|name| refs.find(name).is_none());
    }
    let can_restore = tx.user_id().is_ok() && tx.can(&project, ProjectAbility::PushCode);
    Ok(InProject { project, value: ActivityPage { missing_refs, can_restore, ..ActivityPage::new(tx, activity)? } })
}

fn visible_of_project(tx: &mut ReadTx<'_>, project: Project, page: Page) -> Result<Activity> {
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
