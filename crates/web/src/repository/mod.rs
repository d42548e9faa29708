//! Pages of a repository.

mod branches;
mod commit;
mod commits;
mod compare;
pub(crate) mod files;
pub(crate) mod folder;
pub(crate) mod raw;
mod tags;

use crate::routes::{Route, get};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/tree", files::redirect_to_home),
    get!("/{project}/-/tree/{location}", files::folder),
    get!("/{project}/-/blob/{location}", files::file),
    get!("/{project}/-/raw/{location}", raw::show),
    get!("/{project}/-/commits", commits::redirect),
    get!("/{project}/-/commits/{location}", commits::show),
    get!("/{project}/-/commit/{location}", commit::show),
    get!("/{project}/-/branches", branches::show),
    get!("/{project}/-/tags", tags::show),
    get!("/{project}/-/compare", compare::form),
    get!("/{project}/-/compare/{location}", compare::show),
];
