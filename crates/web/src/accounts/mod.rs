//! Pages of users: sign-in and dashboard.

pub(crate) mod dashboard;
pub(crate) mod sign_in;
