//! The protocol of GitLab Runner 9 and later.

mod job_json;
mod jobs;
mod registration;

use crate::routes::Routes;

/// The prefix of the routes.
pub(crate) const PREFIX: &str = "/api/v4";

/// Returns the routes of the protocol.
pub(crate) fn routes() -> Routes {
    registration::routes().merge(jobs::routes())
}
