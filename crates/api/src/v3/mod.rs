//! Version 3 of the interface.

mod emails;
mod events;
mod groups;
mod instance;
mod keys;
mod members;
mod namespaces;
mod project_params;
mod projects;
mod sessions;
mod uploads;
mod users;

use crate::routes::Routes;

/// Every route of version 3.
pub(crate) fn routes() -> Routes {
    users::routes()
        .and(keys::routes())
        .and(emails::routes())
        .and(events::routes())
        .and(sessions::routes())
        .and(instance::routes())
        .and(groups::routes())
        .and(projects::routes())
        .and(members::routes())
        .and(namespaces::routes())
        .and(uploads::routes())
}
