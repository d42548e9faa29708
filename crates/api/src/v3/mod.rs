//! Version 3 of the interface.

mod emails;
mod events;
mod instance;
mod keys;
mod sessions;
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
}
