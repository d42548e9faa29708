//! Tests of permissions: access tables of every route, and random memberships against a reference model.

mod access;
mod access_to_pages;
pub(crate) mod access_to_projects;
pub(crate) mod random_memberships;
pub(crate) mod reference_model;
