//! What a disk that fills up in the middle of everything leaves: writes are refused with a reason, everything goes on by
//! itself once there is room, and nothing that was acknowledged is lost, also if the server is killed after that.

use crate::{
    crash::crash_hooks,
    crash::crash_jobs,
    crash::crash_projects,
    crash::crash_pushes,
    crash::crash_ways::{Campaign, Way, as_usual},
};

/// How often one data folder is hit, unless told otherwise.
const KILLS: usize = 3;

#[test]
fn no_project_and_no_file_is_lost_to_a_full_disk() {
    crash_projects::hit(Campaign::begin("crash_full/projects", KILLS, Way::Full, as_usual));
}

#[test]
fn no_push_is_lost_to_a_full_disk() {
    crash_pushes::hit(Campaign::begin("crash_full/pushes", KILLS, Way::Full, as_usual));
}

#[test]
fn no_message_to_a_hook_is_lost_to_a_full_disk() {
    crash_hooks::hit(Campaign::begin("crash_full/hooks", KILLS, Way::Full, crash_hooks::with_neighbours));
}

#[test]
fn no_job_is_lost_to_a_full_disk() {
    crash_jobs::hit(Campaign::begin("crash_full/jobs", KILLS, Way::Full, crash_jobs::with_quick_requeue));
}
