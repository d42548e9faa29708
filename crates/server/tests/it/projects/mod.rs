//! Tests of projects and groups.

mod closed_projects;
mod deploy_keys;
mod events;
mod fork_links;
mod groups;
mod imports;
mod list_costs;
mod list_counters;
mod long_lists;
mod members;
mod project_lists;
#[expect(clippy::module_inception, reason = "the resource that gives the domain its name")]
mod projects;
mod uploads;
