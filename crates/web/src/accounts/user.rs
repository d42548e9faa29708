//! The page of a user: profile, activities and personal projects.

use askama::Template;
use forge::{
    Ability,
    user_pages::{CALENDAR_DAYS, UserPage},
};
use model::{User, UserState};

use super::calendar::Calendar;
use crate::{
    context::{PageCx, Viewer},
    error::PageResult,
    layout::Layout,
    links,
    paging::Pager,
    projects::{activity::ListedEvent, list::ListedProject},
    response, text,
};

#[derive(Template)]
#[template(path = "accounts/user.html")]
struct UserTemplate {
    layout: Layout,
    user: User,
    avatar: String,
    website: Option<String>,
    /// Whether it is the page of the visitor.
    is_own: bool,
    can_administer: bool,
    calendar: Calendar,
    events: Vec<ListedEvent>,
    /// Whether the events name their authors.
    has_authors: bool,
    projects: Vec<ListedProject>,
    pager: Pager,
}

/// Renders the page of a user.
pub(crate) fn render(cx: &PageCx, viewer: Viewer, page: UserPage) -> PageResult {
    let UserPage { user, projects, days, activity } = page;
    let website = user.profile.website_url.trim();
    let is_http = ["http://", "https://"].iter().any(|scheme| website.to_ascii_lowercase().starts_with(scheme));
    let template = UserTemplate {
        pager: Pager::of(&cx.uri, &cx.query(), &projects),
        avatar: user.avatar_path(),
        website: is_http.then(|| website.to_owned()),
        is_own: viewer.user().is_some_and(|viewer| viewer.id == user.id),
        can_administer: viewer.can(Ability::AdministerUsers),
        calendar: Calendar::new(&days, CALENDAR_DAYS / 7, viewer.now),
        events: ListedEvent::list(&activity),
        has_authors: false,
        projects: projects.items.into_iter().map(ListedProject::new).collect(),
        layout: Layout::new(cx, viewer, format!("{} (@{})", user.name, user.username)),
        user,
    };
    response::page(&template)
}
