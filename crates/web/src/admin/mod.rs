//! Pages of the operator; only administrators learn that they exist.

mod hook_deliveries;
mod hooks;
mod lists;
mod overview;
mod runners;
mod tasks;
mod user;
mod users;

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use forge::Ability;

use crate::{
    context::{PageCx, Viewer},
    error::PageError,
    forms::Fields,
    layout::Layout,
    response,
    routes::{Route, get, post},
};

pub(crate) const ROUTES: &[Route] = &[
    get!("/admin", overview::show),
    get!("/admin/users", users::list),
    get!("/admin/users/new", users::new),
    post!("/admin/users", users::create),
    get!("/admin/users/{username}", user::show),
    post!("/admin/users/{username}", user::update),
    post!("/admin/users/{username}/block", user::block),
    post!("/admin/users/{username}/unblock", user::unblock),
    post!("/admin/users/{username}/delete", user::delete),
    get!("/admin/projects", lists::projects),
    get!("/admin/groups", lists::groups),
    get!("/admin/background_tasks", tasks::list),
    post!("/admin/background_tasks/{id}/retry", tasks::retry),
    get!("/admin/hooks", hooks::list),
    post!("/admin/hooks", hooks::create),
    get!("/admin/hooks/{id}", hook_deliveries::show),
    get!("/admin/hooks/{id}/hook_logs/{delivery}", hook_deliveries::show_delivery),
    post!("/admin/hooks/{id}/hook_logs/{delivery}/retry", hook_deliveries::resend),
    post!("/admin/hooks/{id}/test", hooks::test),
    post!("/admin/hooks/{id}/delete", hooks::delete),
    get!("/admin/runners", runners::list),
    post!("/admin/runners/registration_token", runners::show_token),
    post!("/admin/runners/reset_registration_token", runners::reset_token),
    post!("/admin/runners/{id}/pause", runners::pause),
    post!("/admin/runners/{id}/resume", runners::resume),
    post!("/admin/runners/{id}/delete", runners::delete),
];

/// The pages of the navigation: path, label.
const PAGES: [(&str, &str); 7] = [
    ("/admin", "Overview"),
    ("/admin/users", "Users"),
    ("/admin/projects", "Projects"),
    ("/admin/groups", "Groups"),
    ("/admin/background_tasks", "Background tasks"),
    ("/admin/hooks", "System hooks"),
    ("/admin/runners", "Runners"),
];

/// The messages after a change, by the value of the parameter `done`.
const NOTICES: [(&str, &str); 11] = [
    ("created", "The user was created."),
    ("saved", "The changes were saved."),
    ("blocked", "The user was blocked. All their sessions have ended."),
    ("unblocked", "The user was unblocked."),
    ("deleted", "The user was deleted."),
    ("retried", "The task will be run again now."),
    ("hook-added", "The hook was added."),
    ("hook-removed", "The hook was removed."),
    ("hook-tested", "A sample event was enqueued for the hook."),
    ("runner-changed", "The runner was changed."),
    ("runner-removed", "The runner was removed."),
];

/// The head of every page of the operator.
pub(crate) struct AdminHead {
    /// URL, label, and whether it is the current page.
    pub(crate) pages: Vec<(&'static str, &'static str, bool)>,
    /// The result of the change that led to this page.
    pub(crate) notice: Option<&'static str>,
}

/// Fails with 404 unless the visitor is an administrator.
fn require(viewer: &Viewer) -> Result<(), PageError> {
    if viewer.can(Ability::ManageServer) { Ok(()) } else { Err(StatusCode::NOT_FOUND.into()) }
}

/// Checks that the visitor is an administrator, before a use case says something else about the request.
async fn enter(cx: &PageCx) -> Result<(), PageError> {
    require(&cx.viewer().await?)
}

/// Reads a submitted form of an administrator.
async fn form(cx: &PageCx, body: Body) -> Result<Fields, PageError> {
    enter(cx).await?;
    cx.form(body).await
}

/// Returns the frame and the head of a page; fails with 404 unless the visitor is an administrator.
fn frame(cx: &PageCx, viewer: Viewer, path: &str, title: &str) -> Result<(Layout, AdminHead), PageError> {
    require(&viewer)?;
    let query = cx.query();
    let done = query.get("done");
    let head = AdminHead {
        pages: PAGES.iter().map(|(url, label)| (*url, *label, *url == path)).collect(),
        notice: NOTICES.iter().find(|(value, _)| *value == done).map(|(_, text)| *text),
    };
    Ok((Layout::new(cx, viewer, format!("{title} · Administration")), head))
}

/// Leads back to a page after a change.
fn done(path: &str, what: &str) -> Response {
    response::redirect(&format!("{path}?done={what}"))
}

/// Keeps browsers and proxies from storing a page with a secret.
fn no_store(mut page: Response) -> Response {
    page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

/// Formats a number of bytes.
fn byte_size(bytes: impl TryInto<u64>) -> String {
    let bytes: u64 = bytes.try_into().unwrap_or_default();
    let units = ["KB", "MB", "GB", "TB", "PB"];
    let (mut value, mut unit) = (bytes, None);
    let mut rest = 0;
    for name in units {
        if value < 1024 {
            break;
        }
        (rest, value, unit) = (value % 1024, value / 1024, Some(name));
    }
    match unit {
        None => format!("{value} bytes"),
        Some(unit) if value < 10 => format!("{value}.{} {unit}", rest * 10 / 1024),
        Some(unit) => format!("{value} {unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        let check = |bytes: u64, expected: &str| assert_eq!(byte_size(bytes), expected);
        check(0, "0 bytes");
        check(1023, "1023 bytes");
        check(1536, "1.5 KB");
        check(20 << 20, "20 MB");
        check(3 << 40, "3.0 TB");
    }
}
