//! Pages of the issue tracker.

mod issue;
mod issues;
mod new_issue;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/issues", issues::show),
    post!("/{project}/-/issues", new_issue::create),
    get!("/{project}/-/issues/new", new_issue::form),
    get!("/{project}/-/issues/{iid}", issue::show),
    post!("/{project}/-/issues/{iid}/notes", issue::reply),
];
