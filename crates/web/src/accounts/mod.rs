//! Pages of users: sign-in, dashboard, profile and the settings of their account.

mod calendar;
mod dashboard;
mod settings;
mod sign_in;
pub(crate) mod user;

use settings::{emails, password, profile, sessions, ssh_keys, tokens};

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/", dashboard::redirect),
    get!("/users/sign_in", sign_in::form),
    post!("/users/sign_in", sign_in::create),
    post!("/users/sign_out", sign_in::end),
    get!("/dashboard", dashboard::show),
    get!("/-/user_settings", settings::redirect),
    get!("/-/profile", settings::redirect),
    get!("/-/profile/{location}", settings::redirect),
    get!("/profile", settings::redirect),
    get!("/profile/{location}", settings::redirect),
    get!("/-/user_settings/profile", profile::show),
    post!("/-/user_settings/profile", profile::update),
    post!("/-/user_settings/profile/avatar", profile::set_avatar),
    post!("/-/user_settings/profile/username", profile::rename),
    get!("/-/user_settings/password", password::show),
    post!("/-/user_settings/password", password::update),
    get!("/-/user_settings/emails", emails::show),
    post!("/-/user_settings/emails", emails::create),
    post!("/-/user_settings/emails/primary", emails::make_primary),
    post!("/-/user_settings/emails/{id}/delete", emails::delete),
    get!("/-/user_settings/ssh_keys", ssh_keys::show),
    post!("/-/user_settings/ssh_keys", ssh_keys::create),
    post!("/-/user_settings/ssh_keys/{id}/delete", ssh_keys::delete),
    get!("/-/user_settings/personal_access_tokens", tokens::show),
    post!("/-/user_settings/personal_access_tokens", tokens::create),
    post!("/-/user_settings/personal_access_tokens/{id}/revoke", tokens::revoke),
    get!("/-/user_settings/active_sessions", sessions::show),
    post!("/-/user_settings/active_sessions/end_others", sessions::end_others),
    post!("/-/user_settings/active_sessions/{id}/end", sessions::end),
];
