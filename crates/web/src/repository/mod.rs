//! Pages of a repository.

mod archive;
mod blame;
mod branches;
mod commit;
mod commits;
mod compare;
mod contributors;
mod edit;
pub(crate) mod files;
mod find_file;
pub(crate) mod folder;
mod new_ref;
pub(crate) mod raw;
mod releases;
mod tags;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/{project}/-/tree", files::redirect_to_home),
    get!("/{project}/-/tree/{location}", files::folder),
    get!("/{project}/-/blob/{location}", files::file),
    get!("/{project}/-/raw/{location}", raw::show),
    get!("/{project}/-/blame/{location}", blame::show),
    get!("/{project}/-/new/{location}", edit::new),
    post!("/{project}/-/new/{location}", edit::create),
    get!("/{project}/-/edit/{location}", edit::edit),
    post!("/{project}/-/edit/{location}", edit::update),
    post!("/{project}/-/delete/{location}", edit::delete),
    get!("/{project}/-/commits", commits::redirect),
    get!("/{project}/-/commits/{location}", commits::show),
    get!("/{project}/-/commit/{location}", commit::show),
    post!("/{project}/-/commit/{location}/notes", commit::comment),
    get!("/{project}/-/graphs/{location}", contributors::show),
    get!("/{project}/-/find_file/{location}", find_file::show),
    get!("/{project}/-/branches", branches::show),
    get!("/{project}/-/branches/new", new_ref::branch_form),
    post!("/{project}/-/branches/new", new_ref::create_branch),
    post!("/{project}/-/branches/delete", branches::delete),
    get!("/{project}/-/tags", tags::show),
    get!("/{project}/-/tags/new", new_ref::tag_form),
    post!("/{project}/-/tags/new", new_ref::create_tag),
    post!("/{project}/-/tags/delete", tags::delete),
    get!("/{project}/-/tags/{location}/release/edit", releases::edit),
    post!("/{project}/-/tags/{location}/release", releases::save),
    get!("/{project}/-/releases", releases::show),
    get!("/{project}/-/archive/{location}", archive::download),
    get!("/{project}/-/compare", compare::form),
    get!("/{project}/-/compare/{location}", compare::show),
];
