//! Pages of a repository.

mod branches;
mod commit;
mod commits;
mod compare;
pub(crate) mod files;
pub(crate) mod folder;
mod new_ref;
pub(crate) mod raw;
mod tags;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/tree", files::redirect_to_home),
    get!("/{project}/-/tree/{location}", files::folder),
    get!("/{project}/-/blob/{location}", files::file),
    get!("/{project}/-/raw/{location}", raw::show),
    get!("/{project}/-/commits", commits::redirect),
    get!("/{project}/-/commits/{location}", commits::show),
    get!("/{project}/-/commit/{location}", commit::show),
    get!("/{project}/-/branches", branches::show),
    get!("/{project}/-/branches/new", new_ref::branch_form),
    post!("/{project}/-/branches/new", new_ref::create_branch),
    post!("/{project}/-/branches/delete", branches::delete),
    get!("/{project}/-/tags", tags::show),
    get!("/{project}/-/tags/new", new_ref::tag_form),
    post!("/{project}/-/tags/new", new_ref::create_tag),
    post!("/{project}/-/tags/delete", tags::delete),
    get!("/{project}/-/compare", compare::form),
    get!("/{project}/-/compare/{location}", compare::show),
];
