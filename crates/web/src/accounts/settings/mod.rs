//! The pages on which users change their own account.

pub(super) mod emails;
pub(super) mod password;
pub(super) mod profile;
pub(super) mod sessions;
pub(super) mod ssh_keys;
pub(super) mod tokens;

use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use forge::Error;

use super::sign_in;
use crate::{
    context::{PageCx, Viewer},
    error::{PageError, PageResult},
    form_errors::FormErrors,
    forms::Fields,
    layout::Layout,
    links, response,
};

/// The pages of the settings: path, label.
const PAGES: [(&str, &str); 6] = [
    (profile::PATH, "Profile"),
    (emails::PATH, "Email addresses"),
    (password::PATH, "Password"),
    (ssh_keys::PATH, "SSH keys"),
    (tokens::PATH, "Access tokens"),
    (sessions::PATH, "Sessions"),
];

/// The messages after a change, by the value of the parameter `done`.
const NOTICES: [(&str, &str); 12] = [
    ("avatar", "The avatar was changed."),
    ("profile", "The profile was saved."),
    ("username", "The username was changed."),
    ("password", "The password was changed. All other sessions have ended."),
    ("email-added", "The address was added."),
    ("email-removed", "The address was removed."),
    ("email-primary", "The primary address was changed."),
    ("key-added", "The key was added."),
    ("key-removed", "The key was removed."),
    ("token-revoked", "The token was revoked."),
    ("session-ended", "The session was ended."),
    ("sessions-ended", "All other sessions were ended."),
];

/// The head of every page of the settings.
pub(crate) struct SettingsHead {
    pub(crate) profile_url: String,
    /// URL, label, and whether it is the current page.
    pub(crate) pages: Vec<(&'static str, &'static str, bool)>,
    /// The result of the change that led to this page.
    pub(crate) notice: Option<&'static str>,
}

impl SettingsHead {
    fn new(cx: &PageCx, viewer: &Viewer, path: &str) -> Result<Self, PageError> {
        let user = viewer.user().ok_or(Error::Unauthenticated)?;
        let query = cx.query();
        let done = query.get("done");
        Ok(Self {
            profile_url: links::page(&user.username),
            pages: PAGES.iter().map(|(url, label)| (*url, *label, *url == path)).collect(),
            notice: NOTICES.iter().find(|(value, _)| *value == done).map(|(_, text)| *text),
        })
    }
}

/// Returns the frame and the head of a page of the settings; fails if the visitor is not signed in.
fn frame(cx: &PageCx, viewer: Viewer, path: &str) -> Result<(Layout, SettingsHead), PageError> {
    let head = SettingsHead::new(cx, &viewer, path)?;
    let label = PAGES.iter().find(|(url, _)| *url == path).map_or("Settings", |(_, label)| label);
    Ok((Layout::new(cx, viewer, format!("{label} · Settings")), head))
}

/// Leads back to a page of the settings after a change.
fn done(path: &str, what: &str) -> Response {
    response::redirect(&format!("{path}?done={what}"))
}

/// Leads from the addresses of older versions to the current ones.
pub(super) async fn redirect(cx: PageCx) -> PageResult {
    let path = match cx.params.location.as_str() {
        "keys" => ssh_keys::PATH,
        "emails" => emails::PATH,
        "password/edit" | "password" => password::PATH,
        "personal_access_tokens" => tokens::PATH,
        "active_sessions" => sessions::PATH,
        _ => profile::PATH,
    };
    Ok(response::moved(path))
}

/// The current password in a form; `None` if it is blank. A password counts as an attempt to sign in, so that nobody can guess
/// it faster here.
fn current_password(cx: &PageCx, fields: &Fields) -> Result<Option<String>, PageError> {
    let password = Some(fields.get("current_password").to_owned()).filter(|password| !password.is_empty());
    if password.is_some() {
        sign_in::count_attempt(cx)?;
    }
    Ok(password)
}

/// Returns the messages for a form with the current password, and logs a wrong one as a failed sign-in.
async fn password_errors(cx: &PageCx, error: Error) -> Result<FormErrors, PageError> {
    let errors = FormErrors::by_field(error)?;
    if errors.is("current_password", "is invalid")
        && let Some(user) = cx.viewer().await?.user()
    {
        forge::sessions::log_failure(cx.forge(), "web", cx.origin.address, &user.username).await;
    }
    Ok(errors)
}

/// Keeps browsers and proxies from storing a page with a secret.
fn no_store(mut page: Response) -> Response {
    page.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}
