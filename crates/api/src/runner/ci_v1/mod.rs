//! The protocol of runners before GitLab Runner 9, which calls jobs builds.

mod build_json;
mod builds;
mod registration;

use crate::routes::Routes;

/// The prefix of the routes.
pub(crate) const PREFIX: &str = "/ci/api/v1";

/// Returns the routes of the protocol.
pub(crate) fn routes() -> Routes {
    registration::routes().merge(builds::routes())
}
