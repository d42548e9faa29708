//! Pages of users: sign-in and dashboard.

mod dashboard;
mod sign_in;

use crate::routes::{Route, get, post};

pub(crate) const ROUTES: &[Route] = &[
    get!("/", dashboard::redirect),
    get!("/users/sign_in", sign_in::form),
    post!("/users/sign_in", sign_in::create),
    post!("/users/sign_out", sign_in::end),
    get!("/dashboard", dashboard::show),
];
