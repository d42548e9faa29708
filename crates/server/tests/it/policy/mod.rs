//! Tests of permissions: access tables of every route, policy tables, random memberships against an oracle.

mod access;
pub(crate) mod access_to_projects;
pub(crate) mod policy_rules;
pub(crate) mod policy_world;
