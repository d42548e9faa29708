//! Power cuts: no acknowledged write is lost, and the server starts without repair.
//!
//! Unsynced writes and names are kept, lost or torn; see `testkit::faults`.

use crate::crash::{
    accounts,
    campaign::{Campaign, FailureMode, default_server},
    jobs, projects, pushes, webhooks,
};

/// The default number of crashes per data folder.
const CUTS: usize = 5;

#[test]
fn no_acknowledged_write_is_lost_to_power_cuts() {
    accounts::run(Campaign::new("crash_power/writes", CUTS, FailureMode::PowerCut, default_server));
}

#[test]
fn no_project_and_no_file_is_lost_to_power_cuts() {
    projects::run(Campaign::new("crash_power/projects", CUTS, FailureMode::PowerCut, default_server));
}

#[test]
fn no_push_is_lost_to_power_cuts() {
    pushes::run(Campaign::new("crash_power/pushes", CUTS, FailureMode::PowerCut, default_server));
}

#[test]
fn no_webhook_delivery_is_lost_to_power_cuts() {
    webhooks::run(Campaign::new("crash_power/hooks", CUTS, FailureMode::PowerCut, webhooks::with_local_network));
}

#[test]
fn no_job_is_lost_to_power_cuts() {
    jobs::run(Campaign::new("crash_power/jobs", CUTS, FailureMode::PowerCut, jobs::with_quick_requeue));
}
