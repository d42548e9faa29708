//! Pages of projects, groups and users.

mod explore;
mod home;
pub(crate) mod list;
mod namespaces;

use crate::routes::{Route, get};

pub(crate) const ROUTES: &[Route] = &[
    get!("/explore", explore::show),
    get!("/groups/{group}", namespaces::group),
    get!("/{namespace}", namespaces::show),
    get!("/{project}", home::show),
];
