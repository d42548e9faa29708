//! The page of a user: their personal projects and their activity, as far as the visitor can see them.

use jiff::SignedDuration;
use model::{
    Namespace, Page, Project, Slice, Time, User, UserState,
    projects::{ProjectFilter, ProjectOrder},
};
use store::project_lists::ProjectListScope;

use crate::{
    Ability, Error, ReadTx, Result,
    events::{self, ActivityPage},
};

/// The number of days of the calendar: 52 weeks, and the current one up to today.
pub const CALENDAR_DAYS: i64 = 52 * 7;
/// The number of newest events that are counted for the calendar.
pub const MAX_CALENDAR_EVENTS: i64 = 5000;
/// The number of events on the page.
const RECENT_EVENTS: i64 = 15;

/// A user with those of their personal projects and activities that the visitor can see.
pub struct UserPage {
    /// The user.
    pub user: User,
    /// The projects, most recently active first.
    pub projects: Slice<Project>,
    /// The number of events on each day of the last year that has some, by the number of the day since 1970.
    pub days: Vec<(i64, i64)>,
    /// The newest events.
    pub activity: ActivityPage,
}

/// Returns the page of a user.
///
/// Users see all active users; visitors who are not signed in see those who have a public project, as for private groups.
pub(crate) fn get(tx: &mut ReadTx<'_>, namespace: &Namespace, page: Page) -> Result<UserPage> {
    tx.authorize(Ability::ViewPages)?;
    let missing = || Error::NotFound(None);
    let user = namespace.owner_id.map(|id| store::users::by_id(tx.db(), id)).transpose()?.flatten();
    let user = user.ok_or_else(missing)?;
    let (viewer, admin) = (tx.viewer(), tx.actor().is_admin());
    let is_known =
        tx.authorize(Ability::ReadUsers).is_ok() || store::groups::has_visible_project(tx.db(), &viewer, namespace.id)?;
    if !is_known || (user.state != UserState::Active && !admin) {
        return Err(missing());
    }
    let all = admin || user.id == viewer.user;
    let scope = ProjectListScope::OfGroup { group: namespace.id, own: true, shared: false, all };
    let filter = ProjectFilter { order: ProjectOrder::LastActivityAt, ..ProjectFilter::default() };
    let projects = store::project_lists::list(tx.db(), &viewer, scope, &filter, page)?;
    let since = tx.now() - SignedDuration::from_hours((CALENDAR_DAYS + 7) * 24);
    let days =
        store::events::count_by_day(tx.db(), &viewer, user.id, since.max(Time::UNIX_EPOCH), MAX_CALENDAR_EVENTS)?;
    let activity = events::visible_of_user(tx, user.id, Page { number: 1, size: RECENT_EVENTS })?;
    let activity = ActivityPage::new(tx, activity)?;
    Ok(UserPage { user, projects, days, activity })
}
