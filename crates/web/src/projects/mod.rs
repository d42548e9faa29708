//! Pages of projects, groups and users.

pub(crate) mod activity;
mod explore;
mod forks;
pub(crate) mod group_head;
mod group_members;
mod group_settings;
mod home;
pub(crate) mod list;
mod member_list;
mod namespaces;
mod new;
mod new_group;
pub(crate) mod settings;

use settings::{ci, general, members, repository, runners};

use crate::routes::{Route, get, post};

/// The routes of groups come before those of projects, whose paths can begin with `groups` too.
pub(crate) const ROUTES: &[Route] = &[
    get!("/explore", explore::show),
    get!("/projects/new", new::form),
    post!("/projects/new", new::create),
    get!("/groups/new", new_group::form),
    post!("/groups/new", new_group::create),
    get!("/groups/{group}/-/edit", group_settings::show),
    post!("/groups/{group}/-/edit", group_settings::save),
    post!("/groups/{group}/-/avatar", group_settings::set_avatar),
    post!("/groups/{group}/-/delete", group_settings::delete),
    get!("/groups/{group}/-/group_members", group_members::show),
    post!("/groups/{group}/-/group_members", group_members::add),
    post!("/groups/{group}/-/group_members/leave", group_members::leave),
    post!("/groups/{group}/-/group_members/{user}", group_members::update),
    post!("/groups/{group}/-/group_members/{user}/delete", group_members::remove),
    get!("/groups/{group}", namespaces::group),
    post!("/{project}/-/star", home::star),
    get!("/{project}/-/activity", activity::show),
    post!("/{project}/-/activity/{id}/restore", activity::restore),
    get!("/{project}/-/forks", forks::show),
    get!("/{project}/-/forks/new", forks::form),
    post!("/{project}/-/forks/new", forks::create),
    get!("/{project}/-/edit", general::redirect),
    get!("/{project}/-/settings/general", general::show),
    post!("/{project}/-/settings/general", general::save),
    post!("/{project}/-/settings/general/avatar", general::set_avatar),
    post!("/{project}/-/settings/general/archive", general::archive),
    post!("/{project}/-/settings/general/unlink_fork", general::unlink_fork),
    post!("/{project}/-/settings/general/transfer", general::transfer),
    post!("/{project}/-/settings/general/delete", general::delete),
    get!("/{project}/-/project_members", members::show),
    post!("/{project}/-/project_members", members::add),
    post!("/{project}/-/project_members/leave", members::leave),
    post!("/{project}/-/project_members/{user}", members::update),
    post!("/{project}/-/project_members/{user}/delete", members::remove),
    post!("/{project}/-/group_links", members::share),
    post!("/{project}/-/group_links/{group_id}/delete", members::unshare),
    get!("/{project}/-/settings/repository", repository::show),
    post!("/{project}/-/protected_branches", repository::protect),
    post!("/{project}/-/protected_branches/delete", repository::unprotect),
    post!("/{project}/-/deploy_keys", repository::add_key),
    post!("/{project}/-/deploy_keys/{key}/enable", repository::enable_key),
    post!("/{project}/-/deploy_keys/{key}/disable", repository::disable_key),
    get!("/{project}/-/settings/ci_cd", ci::show),
    post!("/{project}/-/settings/ci_cd", ci::reveal),
    post!("/{project}/-/variables", ci::add_variable),
    post!("/{project}/-/variables/{key}", ci::update_variable),
    post!("/{project}/-/variables/{key}/delete", ci::delete_variable),
    post!("/{project}/-/triggers", ci::add_trigger),
    post!("/{project}/-/triggers/{trigger}/delete", ci::delete_trigger),
    post!("/{project}/-/runners/{runner}/enable", runners::enable),
    post!("/{project}/-/runners/{runner}/disable", runners::disable),
    post!("/{project}/-/runners/{runner}/pause", runners::pause),
    post!("/{project}/-/runners/{runner}/resume", runners::resume),
    post!("/{project}/-/runners/{runner}/delete", runners::delete),
    get!("/{namespace}", namespaces::show),
    get!("/{project}", home::show),
];
