//! What a loss of power leaves: nothing that was acknowledged is lost, whatever the disk has lost, and the server starts by
//! itself on what is there.
//!
//! Each write and each name that was not synced is kept, lost or torn; see `testkit::faults`.

use crate::{
    crash::crash,
    crash::crash_hooks,
    crash::crash_jobs,
    crash::crash_projects,
    crash::crash_pushes,
    crash::crash_ways::{Campaign, Way, as_usual},
};

/// How often one data folder is hit, unless told otherwise.
const CUTS: usize = 5;

#[test]
fn no_acknowledged_write_is_lost_to_power_cuts() {
    crash::hit(Campaign::begin("crash_power/writes", CUTS, Way::Power, as_usual));
}

#[test]
fn no_project_and_no_file_is_lost_to_power_cuts() {
    crash_projects::hit(Campaign::begin("crash_power/projects", CUTS, Way::Power, as_usual));
}

#[test]
fn no_push_is_lost_to_power_cuts() {
    crash_pushes::hit(Campaign::begin("crash_power/pushes", CUTS, Way::Power, as_usual));
}

#[test]
fn no_message_to_a_hook_is_lost_to_power_cuts() {
    crash_hooks::hit(Campaign::begin("crash_power/hooks", CUTS, Way::Power, crash_hooks::with_neighbours));
}

#[test]
fn no_job_is_lost_to_power_cuts() {
    crash_jobs::hit(Campaign::begin("crash_power/jobs", CUTS, Way::Power, crash_jobs::with_quick_requeue));
}
