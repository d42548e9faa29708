//! Disks that fill up during writes: writes are refused with a reason and succeed again once space is free, and no
//! acknowledged write is lost, even if the server is killed afterwards.

use crate::crash::{
    campaign::{Campaign, FailureMode, default_server},
    jobs, projects, pushes, webhooks,
};

/// The default number of crashes per data folder.
const KILLS: usize = 3;

#[test]
fn no_project_and_no_file_is_lost_to_a_full_disk() {
    projects::run(Campaign::new("crash_full/projects", KILLS, FailureMode::DiskFull, default_server));
}

#[test]
fn no_push_is_lost_to_a_full_disk() {
    pushes::run(Campaign::new("crash_full/pushes", KILLS, FailureMode::DiskFull, default_server));
}

#[test]
fn no_webhook_delivery_is_lost_to_a_full_disk() {
    webhooks::run(Campaign::new("crash_full/hooks", KILLS, FailureMode::DiskFull, webhooks::with_local_network));
}

#[test]
fn no_job_is_lost_to_a_full_disk() {
    jobs::run(Campaign::new("crash_full/jobs", KILLS, FailureMode::DiskFull, jobs::with_quick_requeue));
}
